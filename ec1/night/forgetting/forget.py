"""Forgetting, step by step: whatever happens in between, the same command again finishes it.

Belongs here: the order of the steps, the locks, the record, what is said at the end. Does not: finding
(`places`), single files (`scrubbing`), the graph's file (`ec1.graph.rewrite`).

First the tombstones, so that nothing comes back; then the record of what goes, so that versions are withdrawn and
trained again even if the next moment is the last; then the rest, each file in one step.
"""

import contextlib
import datetime as dt
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.tombstones import FILE, Tombstones
from ec1.corpus.tuples import TrainingTuple
from ec1.deployment import Deployment
from ec1.documents.convert import Converter
from ec1.errors import BusyError, ServiceError
from ec1.files import read_json, write_json
from ec1.graph.writer_lock import writer_lock
from ec1.home import Home
from ec1.night.forgetting.places import Action, Holdings, everything_held, holds
from ec1.night.forgetting.scrubbing import clean_database, redact_file, without_lines
from ec1.night.forgetting.tuples import FoundTuple, entries_of, tuple_of
from ec1.night.forgetting.wanted import Wanted
from ec1.strict_yaml import load_mapping

_LEARNT = "learnt from what was forgotten"
_SERVING_SECONDS = 120
_UNTOLD = "whether a night is at work cannot be told"
Learnt = Callable[[set[str], set[str]], "list[tuple[str, tuple[str, str, int]]]"]
"""Names and places of the usable versions that rest on some snapshots or datasets."""


@dataclass(frozen=True)
class Forgotten:
    """What was found or removed. `documents` and `files` are paths, `snapshots` and `datasets` digests, `versions`
    those that learnt from it. `spellings` counts how it was spelt, normalised; `doubtful` what may be somebody else and
    stays. `left`: what still holds it, and why."""

    documents: list[str] = field(default_factory=list)
    tuples: list[FoundTuple] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    spellings: dict[str, int] = field(default_factory=dict)
    doubtful: dict[str, int] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def look(wanted: Wanted, deployment: Deployment, home: Home, learnt: Learnt) -> Forgotten:
    """What would be forgotten; nothing is changed but the cache of conversions."""
    held = everything_held(wanted, deployment, home, live=False)
    snapshots, datasets = {path.name for path in held.snapshots}, {path.name for path in held.datasets}
    return _said(held, home, [name for name, _ in learnt(snapshots, datasets)])


def forget(
    wanted: Wanted, deployment: Deployment, home: Home, registry: AdapterRegistry, learnt: Learnt, *, who: str = ""
) -> Forgotten:
    """Take out everything that holds it, and keep it out; returns what was removed and what is left. Idempotent.

    Raises BusyError while a night, a training or another writer of the graph is at work, ServiceError if that cannot
    be told.
    """
    with _alone(deployment, home):
        held = everything_held(wanted, deployment, home)
        Tombstones(home).add(
            _tuples_of(held, wanted, deployment.corpus_root(home)),
            contents={each.sha256 for each in held.documents} | _contents_of(held, home),
            texts=[each.text for each in held.documents if each.text],
        )
        record = _begin(held, _sent(wanted, home), learnt, home)
        for tenant, role, version in record.withdrawn.values():
            registry.withdraw(tenant, role, version, _LEARNT, who)
        _remove(held, wanted, deployment, home, record)
        _take_out_of_graph(wanted, deployment, home)
        rest = everything_held(wanted, deployment, home)
        done = _said(held, home, sorted(record.withdrawn))
        done.left.clear()
        done.left.update(_left(rest, home) | _left_elsewhere(record.sent, home))
        _finish(record, done, home)
    return done


@contextlib.contextmanager
def _alone(deployment: Deployment, home: Home) -> Iterator[None]:
    """Hold what a night needs. Raises BusyError that says who is at work."""
    home.root.mkdir(parents=True, exist_ok=True)
    with writer_lock(home.graph.with_name(f"{home.graph.name}.lock"), 0):
        pass
    for run in _runs_in_progress(home):
        raise BusyError(
            f"a night is at work in this home (Dagster run {run}): run the command again when it has ended; "
            "if it crashed, `ec1 doctor --reconcile` says so to Dagster"
        )
    lease = deployment.gpu_lease(home, min_free_gib=0)
    holder = lease.holder()
    if holder is not None and holder.phase != "serving":
        raise BusyError(f"{holder} is at work: run the command again when it has ended")
    # Serving gives way, and comes back.
    wait = _SERVING_SECONDS if holder is not None else 0
    with lease.hold("forgetting", night="", holder="ec1 forget", wait_seconds=wait):
        yield


def _runs_in_progress(home: Home) -> list[str]:
    """Dagster's runs that wait or go. Raises ServiceError where that cannot be told."""
    if _history_lies_elsewhere(home):
        # On PostgreSQL, say. Dagster takes seconds to be loaded, and the home's own data base is read in no time.
        asked = [sys.executable, "-m", "jobs.nights", "--home", str(home.root)]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ServiceError(f"{_UNTOLD}: {done.stderr.strip().rpartition(chr(10))[2]}")
        return [run[:8] for run in json.loads(done.stdout)]
    path = home.dagster / "history" / "runs.db"
    if not path.is_file():
        return []
    query = "SELECT run_id FROM runs WHERE status IN ('QUEUED', 'NOT_STARTED', 'STARTING', 'STARTED', 'CANCELING')"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as database:
            return [run[:8] for (run,) in database.execute(query)]
    except sqlite3.Error as error:
        if "no such table" in str(error):
            # Dagster has begun to make it, and no run is there yet.
            return []
        raise ServiceError(f"{_UNTOLD}: {path}: {error}; `ec1 doctor` says more") from None


def _history_lies_elsewhere(home: Home) -> bool:
    """Whether Dagster's instance is not in the home's SQLite (configs/dagster-postgres.yaml)."""
    configuration = home.dagster / "dagster.yaml"
    return configuration.is_file() and "storage" in load_mapping(configuration)


def _tuples_of(held: Holdings, wanted: Wanted, corpus: Path) -> list[TrainingTuple]:
    """The tuples that go: of the corpus's files, and those that only snapshots hold any more."""
    from ec1.night.forgetting.tuples import corpus_lines

    wanted_files = {corpus / each.file for each in held.tuples}
    lines = (record for path, _, record, _ in corpus_lines(corpus) if path in wanted_files)
    parts = {part.stat().st_ino: part for path in held.snapshots for part in path.glob("tuples*.jsonl")}
    entries = (entry.get("tuple") for part in parts.values() for entry in entries_of(part))
    records = [each for each in (*lines, *entries) if isinstance(each, dict) and wanted.in_record(each)]
    return [item for item in map(tuple_of, records) if item is not None]


def _contents_of(held: Holdings, home: Home) -> set[str]:
    """The contents of documents that are gone or were changed, whose results still hold it."""
    names = (path.name.partition(".")[0] for path in held.places if path.is_relative_to(home.outbox))
    return {name for name in names if len(name) == 64}


def _sent(wanted: Wanted, home: Home) -> int:
    """How many names that hold it were sent to service-content, by the ledgers of what was."""
    count = 0
    for path in sorted((home.root / "service-content").glob("*.sqlite")):
        with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=5)) as database:
            count += sum(wanted.in_text(name or "") for (name,) in database.execute("SELECT name FROM sent"))
    return count


@dataclass(frozen=True)
class _Record:
    """What goes, as it is written down before it does: afterwards it cannot be found again. `withdrawn`: versions by
    name; `sent`: names that service-content has."""

    path: Path
    snapshots: set[str]
    datasets: set[str]
    withdrawn: dict[str, tuple[str, str, int]]
    sent: int

    def write(self, **more: object) -> None:
        content = {
            "snapshots": sorted(self.snapshots),
            "datasets": sorted(self.datasets),
            "versions": {name: list(place) for name, place in sorted(self.withdrawn.items())},
            "sent": self.sent,
        }
        write_json(self.path, {**content, **more})


def _unfinished(home: Home) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(home.removals.glob("*.json")):
        if path.name != FILE and (known := read_json(path)).get("finished") is False:
            yield path, known


def _begin(held: Holdings, sent: int, learnt: Learnt, home: Home) -> _Record:
    """Write down what goes, with what a removal that did not finish was to remove."""
    snapshots, datasets = {path.name for path in held.snapshots}, {path.name for path in held.datasets}
    withdrawn: dict[str, tuple[str, str, int]] = {}
    for _, known in _unfinished(home):
        snapshots.update(known["snapshots"])
        datasets.update(known["datasets"])
        withdrawn |= {name: (tenant, role, version) for name, (tenant, role, version) in known["versions"].items()}
        sent = max(sent, known["sent"])
    withdrawn |= dict(learnt(snapshots, datasets))
    moment = dt.datetime.now(dt.UTC)
    record = _Record(home.removals / f"{moment:%Y%m%dT%H%M%S%f}.json", snapshots, datasets, withdrawn, sent)
    record.write(finished=False)
    return record


def _finish(record: _Record, done: Forgotten, home: Home) -> None:
    # What was looked for is not written down, nor any path: the record would hold what was to be forgotten.
    counts = {"documents": len(done.documents), "tuples": len(done.tuples), "files": len(done.files)}
    record.write(**counts, finished=True)
    for path, known in list(_unfinished(home)):
        write_json(path, {**known, "finished": True})


def _left_elsewhere(sent: int, home: Home) -> dict[str, str]:
    left = {}
    if sent:
        left["service-content"] = f"{sent} names that were sent: its interface takes none back, ask its operator"
    if _history_lies_elsewhere(home):
        left["Dagster's history"] = "in a data base that is not opened: docs/forgetting.md says where to look"
    return left


def _remove(held: Holdings, wanted: Wanted, deployment: Deployment, home: Home, record: _Record) -> None:
    for folder in [path for path in home.snapshots.glob("*/*") if path.name in record.snapshots]:
        shutil.rmtree(folder)
    _remove_results(held, deployment, home)
    for name in record.datasets:
        shutil.rmtree(home.datasets / name, ignore_errors=True)
    _remove_weights(home, record.snapshots | record.datasets)
    for path in held.corpus:
        without_lines(path, wanted)
    for document in held.documents:
        if document.inside:
            document.path.unlink(missing_ok=True)
    # They name files and digests, and cost only time.
    for name in ("corpus", "datasets", home.row_indexes.name):
        shutil.rmtree(home.cache / name, ignore_errors=True)
    for path, action in held.places.items():
        if not path.exists() or action in (Action.GRAPH, Action.LEAVE):
            continue
        if action is Action.DELETE or wanted.in_text(path.relative_to(home.root).as_posix()):
            _delete(path, home)
        elif action is Action.DATABASE:
            _clean(path, wanted, home)
        else:
            redact_file(path, wanted)


def _remove_results(held: Holdings, deployment: Deployment, home: Home) -> None:
    """What was read out of documents that go, also where it does not say so."""
    removed = Tombstones(home)
    for path in home.outbox.glob("*/*/*"):
        if removed.refuses_content(path.name.partition(".")[0]):
            path.unlink(missing_ok=True)
    converter = Converter(deployment.documents.conversion, home.cache / "converted")
    for document in held.documents:
        converter.drop(document.path.suffix.lower(), document.sha256)


def _delete(path: Path, home: Home) -> None:
    # An export is read as a whole: without one of its tables it is worth nothing.
    if path.is_relative_to(home.graph_exports) and path.parent != home.graph_exports:
        shutil.rmtree(home.graph_exports / path.relative_to(home.graph_exports).parts[0])
    else:
        path.unlink(missing_ok=True)


def _clean(path: Path, wanted: Wanted, home: Home) -> None:
    try:
        clean_database(path, wanted, keep_rows=path.is_relative_to(home.dagster) or path.is_relative_to(home.tracking))
    except sqlite3.DatabaseError as error:
        raise BusyError(f"{path} cannot be cleaned now ({error}): end what uses it and run the command again") from None


def _remove_weights(home: Home, digests: set[str]) -> None:
    """Candidates that were not accepted, and what trainings left, if they learnt from something that goes."""
    for manifest in sorted(home.quarantine.rglob("manifest.json")):
        if any(digest in manifest.read_text(encoding="utf-8", errors="replace") for digest in digests):
            shutil.rmtree(manifest.parent)
    for spec in sorted(home.runs.rglob("spec.json")):
        if any(digest in spec.read_text(encoding="utf-8", errors="replace") for digest in digests):
            for weights in [*spec.parent.glob("checkpoint-*"), spec.parent / "adapter"]:
                shutil.rmtree(weights, ignore_errors=True)


def _take_out_of_graph(wanted: Wanted, deployment: Deployment, home: Home) -> None:
    """Rewrite the graph if a document of it was removed, or anything in it holds it."""
    from ec1.graph.ladybug_store import LadybugStore
    from ec1.graph.rewrite import documents_holding, rewrite_without

    files = [path for path in (home.graph, home.published_graph) if path.exists()]
    if not files:
        return
    in_file = any(holds(path, wanted) for path in files)
    pool, removed = deployment.graph.buffer_pool_mib, Tombstones(home)
    with LadybugStore.open(home.graph, buffer_pool_mib=pool, wait_seconds=0, published=home.published_graph) as store:
        ledger = store.ledger()
        gone = {key for key, entry in ledger.items() if removed.refuses_content(entry.content_sha256)}
        gone |= documents_holding(store, wanted.in_record)
        # What a night took out before is still in the file's free pages.
        if gone or in_file:
            night = dt.date.today().isoformat()
            rewrite_without(store, gone, night, published=home.published_graph, buffer_pool_mib=pool)
    if gone or in_file:
        home.graph.with_name(f"{home.graph.name}.resolution").unlink(missing_ok=True)
        shutil.rmtree(home.graph.with_name(f"{home.graph.name}.damaged"), ignore_errors=True)


def _said(held: Holdings, home: Home, versions: list[str]) -> Forgotten:
    return Forgotten(
        documents=[each.name for each in held.documents],
        tuples=held.tuples,
        snapshots=sorted(path.name for path in held.snapshots),
        datasets=sorted(path.name for path in held.datasets),
        versions=versions,
        files={
            path.relative_to(home.root).as_posix(): str(action)
            for path, action in held.places.items()
            if action is not Action.LEAVE
        },
        spellings=dict(held.sure.most_common()),
        doubtful=dict(held.doubtful.most_common()),
        left=_left(held, home, only=(Action.LEAVE,)),
    )


def _left(held: Holdings, home: Home, only: Sequence[Action] = tuple(Action)) -> dict[str, str]:
    """What holds it and stays, with the reason."""
    left = {
        path.relative_to(home.root).as_posix(): "a version's weights say it beside the numbers"
        if action is Action.LEAVE
        else "could not be cleaned: run the command again"
        for path, action in held.places.items()
        if action in only
    }
    outside = "lies outside the home: delete it there; its tombstone keeps it from being read"
    return left | {str(each.path): outside for each in held.documents if not each.inside}

"""Removal: what a person, a source or a text left in the corpus is found, taken out, and kept out.

Belongs here: finding tuples, rewriting the corpus without them, deleting the snapshots, datasets and caches that held
them, and the record of what was done. Does not: the tombstones (`ec1.corpus.tombstones`), versions of adapters (the
caller marks those that this names), backups and object stores outside the home.
"""

import datetime as dt
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ec1.corpus.tombstones import Tombstones
from ec1.corpus.tuples import TrainingTuple, load_record, metadata_of, parse_record, sources_of
from ec1.errors import InputError, RejectedError
from ec1.files import digest_of, read_json, write_atomic, write_json
from ec1.home import Home

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Query:
    """What to look for: exactly one of the three. `source` is `key:value`, such as `session_id:S1`."""

    match: str | None = None
    source: str | None = None
    person: str | None = None

    def __post_init__(self) -> None:
        given = [value for value in (self.match, self.source, self.person) if value is not None]
        if len(given) != 1 or not given[0].strip():
            raise InputError("say what to look for with one of --match TEXT, --source KEY:VALUE and --person NAME")
        if self.source is not None and ":" not in self.source:
            raise InputError(f"--source {self.source!r}: write it as key:value, such as session_id:S1")

    def finds(self, record: Mapping[str, Any]) -> bool:
        """Whether a record holds it, in whatever field."""
        if self.source is not None:
            key, _, value = self.source.partition(":")
            places = (record, metadata_of(record))
            return self.source in sources_of(record, [key]) or any(str(place.get(key)) == value for place in places)
        return any(self.in_text(text) for text in _strings(record))

    def in_text(self, text: str) -> bool:
        """Whether a text holds it: a text as it stands, a person's name or address as a whole, in any case."""
        if self.match is not None:
            return self.match in text
        wanted = self.person if self.person is not None else (self.source or "").partition(":")[2]
        return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", text, re.IGNORECASE) is not None


@dataclass(frozen=True)
class Found:
    """One tuple of the corpus: where it stands, and its digest."""

    file: str
    line: int
    row: str


@dataclass(frozen=True)
class Removal:
    """What was found or removed. `snapshots` and `datasets` are digests; `left` are files below the home that still
    hold it and are not ours to change."""

    tuples: list[Found] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def find(query: Query, corpus: Path, home: Home, row: str | None = None) -> Removal:
    """Everything that holds it, without touching anything. `row`: only the tuple whose digest begins like this."""
    found = Removal()
    digests: set[str] = set()
    for path, number, record in _corpus_lines(corpus):
        digest = digest_of(record)
        if digest.startswith(row) if row else query.finds(record):
            found.tuples.append(Found(path.relative_to(corpus).as_posix(), number, digest))
            digests.add(digest)
    holds: dict[int, bool] = {}
    for snapshot in sorted(path for path in home.snapshots.glob("*/*") if path.is_dir()):
        for part in snapshot.glob("tuples*.jsonl"):
            # Snapshots share files: each is read once.
            if part.stat().st_ino not in holds:
                holds[part.stat().st_ino] = _part_holds(part, query, digests, row)
        if any(holds[part.stat().st_ino] for part in snapshot.glob("tuples*.jsonl")):
            found.snapshots.append(snapshot.name)
    digests |= {each for each in _rows_of(found.snapshots, home, query, row)}
    for dataset in sorted(path for path in home.datasets.glob("*") if (path / "manifest.json").is_file()):
        # Of a removal every dataset of such a snapshot: its rejects and samples may quote what a row no longer shows.
        manifest = read_json(dataset / "manifest.json")
        made_of = {manifest.get("snapshot"), *(part["snapshot"] for part in manifest.get("mixed", {}).values())}
        of_snapshot = row is None and not made_of.isdisjoint(found.snapshots)
        if of_snapshot or _dataset_holds(dataset, digests):
            found.datasets.append(dataset.name)
    return found


def forget(query: Query, corpus: Path, home: Home) -> Removal:
    """Take out everything that holds it and keep it out; returns what was removed. Idempotent.

    The corpus is rewritten without the tuples; snapshots, datasets and the index that held them are deleted, and so are
    the files of runs and logs that quote them.
    """
    found = find(query, corpus, home)
    items: list[TrainingTuple] = []
    for name in sorted({each.file for each in found.tuples}):
        items += _rewritten(corpus / name, query)
    for entry in _entries_of(found.snapshots, home):
        if query.finds(entry["tuple"]) and (item := _parsed(entry["tuple"])) is not None:
            items.append(item)
    # First the tombstones: whatever happens from here on, nothing comes back.
    Tombstones(home).add(items)
    for path in [path for path in home.snapshots.glob("*/*") if path.name in found.snapshots]:
        shutil.rmtree(path)
    for digest in found.datasets:
        shutil.rmtree(home.datasets / digest)
    # They name files and digests, and cost only time.
    shutil.rmtree(home.cache / "corpus", ignore_errors=True)
    shutil.rmtree(home.cache / "datasets", ignore_errors=True)
    for folder in (home.runs, home.logs, home.tracking):
        for path in _holding(folder, query):
            path.unlink()
            found.files.append(path.relative_to(home.root).as_posix())
    found = replace(found, left=sorted(path.relative_to(home.root).as_posix() for path in _holding(home.root, query)))
    moment = dt.datetime.now(dt.UTC)
    # What was looked for is not written down: the record would hold what was to be forgotten.
    record = {**asdict(found), "tuples": len(found.tuples), "at": moment.isoformat(timespec="seconds")}
    write_json(home.removals / f"{moment:%Y%m%dT%H%M%S%f}.json", record)
    log.info(
        "removed %d tuples, %d snapshots, %d datasets", len(found.tuples), len(found.snapshots), len(found.datasets)
    )
    return found


def _rewritten(path: Path, query: Query) -> list[TrainingTuple]:
    """Write a file of the corpus without what is looked for; returns the tuples that were in it."""
    kept: list[bytes] = []
    gone: list[TrainingTuple] = []
    for line in path.read_bytes().splitlines(keepends=True):
        record = _loaded(line)
        if record is not None and query.finds(record):
            if (item := _parsed(record)) is not None:
                gone.append(item)
        else:
            kept.append(line)
    stat = path.stat()
    if kept:
        write_atomic(path, b"".join(kept))
        # What stays was there before: a night of the past still sees it.
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    else:
        path.unlink()
    return gone


def _corpus_lines(corpus: Path) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    for path in sorted(corpus.rglob("*.jsonl")):
        with path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                record = _loaded(line)
                if record is not None:
                    yield path, number, record


def _part_holds(part: Path, query: Query, digests: set[str], row: str | None) -> bool:
    with part.open("rb") as stream:
        for line in stream:
            entry = _loaded(line) or {}
            if entry.get("digest") in digests:
                return True
            if str(entry.get("digest")).startswith(row) if row else query.finds(entry.get("tuple", {})):
                return True
    return False


def _rows_of(snapshots: list[str], home: Home, query: Query, row: str | None) -> Iterator[str]:
    for entry in _entries_of(snapshots, home):
        if entry["digest"].startswith(row) if row else query.finds(entry["tuple"]):
            yield entry["digest"]


def _entries_of(snapshots: list[str], home: Home) -> Iterator[dict[str, Any]]:
    """The lines of snapshots; of what they share each once."""
    parts = (
        part for path in home.snapshots.glob("*/*") if path.name in snapshots for part in path.glob("tuples*.jsonl")
    )
    for part in {part.stat().st_ino: part for part in parts}.values():
        with part.open("rb") as stream:
            yield from filter(None, map(_loaded, stream))


def _dataset_holds(dataset: Path, digests: set[str]) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parts = [pq.read_table(path, columns=["row"])["row"].to_pylist() for path in dataset.glob("*/rows.parquet")]
    except (pa.ArrowException, OSError):
        # Who can tell what a damaged one holds? It can be built again without it.
        return True
    return any(not digests.isdisjoint(rows) for rows in parts)


def _holding(folder: Path, query: Query) -> Iterator[Path]:
    """Files below a folder whose bytes hold it; what is in a table or a database shows as it is stored."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        readable = path.is_file() and not path.is_symlink() and path.suffix not in (".safetensors", ".gguf")
        if readable and query.in_text(path.read_bytes().decode("utf-8", "replace")):
            yield path


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _loaded(line: bytes) -> dict[str, Any] | None:
    try:
        return load_record(line)
    except RejectedError:
        return None


def _parsed(record: Mapping[str, Any]) -> TrainingTuple | None:
    try:
        return parse_record(record)
    except RejectedError:
        return None

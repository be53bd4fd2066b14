"""`ec1 doctor --deep`: everything that is named by its content, read and compared with its name.

Belongs here: where such things lie and what becomes of a damaged one. Does not: how each is checked.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.dataset import load_dataset
from ec1.corpus.snapshots import load_snapshot
from ec1.errors import DamagedError, EC1Error, InputError
from ec1.extraction.reading.outbox import check_file
from ec1.graph import file_seal
from ec1.graph.reader import GraphReader
from ec1.home import Home
from ec1.night.operations.databases import damaged_databases
from ec1.night.operations.finding import Symptom
from ec1.training.checkpoints import SEAL, damage_of
from ec1.training.spec import CHECKPOINTS


def examine_deeply(home: Home, registry: AdapterRegistry) -> Iterator[Symptom]:
    """Hash everything. What the next night builds again by itself is a note, the rest a problem."""
    yield _all("snapshots", "note", home.snapshots.glob("[!.]*/[!.]*"), lambda path: _snapshot(home, path))
    yield _all("datasets", "note", home.datasets.glob("[!.]*"), lambda path: load_dataset(home, path.name))
    checkpoints = (seal.parent for seal in home.runs.glob(f"**/{CHECKPOINTS}/*/{SEAL}"))
    yield _all("checkpoints", "note", checkpoints, _checkpoint)
    yield _all("outbox", "note", home.outbox.glob("*/*/*.json"), check_file)
    yield _graph(home)
    broken = list(damaged_databases(home, deep=True))
    yield Symptom("databases", "problem" if broken else "ok", "; ".join(broken) or "whole")
    yield _adapters(registry)


def _all(subject: str, level: str, paths: "Iterator[Path]", check: Callable[[Path], object]) -> Symptom:
    count, damaged = 0, []
    for path in sorted(paths):
        count += 1
        try:
            check(path)
        except (DamagedError, InputError) as error:
            damaged.append(str(error))
    if damaged:
        return Symptom(subject, "note", f"{len(damaged)} of {count} damaged: {'; '.join(damaged)}")
    return Symptom(subject, "ok", f"{count} as they were written")


def _snapshot(home: Home, path: Path) -> None:
    snapshot = load_snapshot(home, path.parent.name, path.name)
    snapshot.check()
    snapshot.check_name()


def _checkpoint(path: Path) -> None:
    if problem := damage_of(path):
        raise DamagedError(f"{problem}: training goes on from the one before")


def _graph(home: Home) -> Symptom:
    mend = "the next night puts the published copy in its place, or fills an empty graph from the outbox"
    if file_seal.is_damaged(home.graph):
        return Symptom("graph", "note", f"{home.graph} is not as it was written: {mend}")
    if not home.published_graph.is_file():
        return Symptom("graph", "ok", "nothing published yet")
    try:
        with GraphReader(home.published_graph) as reader:
            if reader.digest() != reader.recounted_digest():
                return Symptom("graph", "note", f"{home.published_graph} does not hold what it says: delete it; {mend}")
    except EC1Error as error:
        return Symptom("graph", "note", str(error))
    return Symptom("graph", "ok", "every row counted")


def _adapters(registry: AdapterRegistry) -> Symptom:
    count, problems = 0, []
    for tenant, role in registry.roles():
        for version in registry.versions(tenant, role):
            count += 1
            problems += [f"{tenant}/{role}@v{version}: {each}" for each in registry.verify(tenant, role, version)]
    if problems:
        advice = "withdraw it with `ec1 adapters quarantine`, or restore it from a backup"
        return Symptom("adapters", "problem", f"{'; '.join(problems)}: {advice}")
    return Symptom("adapters", "ok", f"{count} versions as they were published")

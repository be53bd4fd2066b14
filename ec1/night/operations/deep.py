"""Everything that is named by its content, read and compared with its name: for `ec1 doctor --deep`, and in shares each
night (`recheck.py`).

Belongs here: where such things lie and what becomes of a damaged one. Does not: how each is checked.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.dataset import load_dataset
from ec1.corpus.snapshots import load_snapshot
from ec1.errors import DamagedError, EC1Error, InputError
from ec1.extraction.reading.outbox import check_file
from ec1.graph import file_seal
from ec1.graph.reader import GraphReader
from ec1.home import Home
from ec1.night.health.databases import damaged_databases
from ec1.night.health.finding import Symptom
from ec1.night.health.peers import guarded
from ec1.refused import advice_for
from ec1.storage.directory import DirectoryStore
from ec1.training.checkpoints import SEAL, damage_of
from ec1.training.spec import CHECKPOINTS

_WITHDRAW = "withdraw it with `ec1 adapters quarantine`, or restore it from a backup"


@dataclass(frozen=True)
class ByContent:
    """One thing that is named by its content. `check` raises DamagedError or InputError; of a folder of the outbox for
    its first damaged file."""

    kind: str
    path: Path
    name: str
    check: Callable[[Path], object]
    in_use: bool = False

    def problem(self) -> str | None:
        """What is wrong with it, and what becomes of it; None if it is as it was written."""
        try:
            self.check(self.path)
        except (DamagedError, InputError) as error:
            return str(error)
        except OSError as error:
            # One thing that cannot be read keeps nobody from the others. A read names no file.
            error.filename = error.filename or str(self.path)
            return advice_for(error)
        return None


def named_by_content(home: Home, registry: AdapterRegistry) -> Iterator[ByContent]:
    """All such things: snapshots, datasets, checkpoints, results in the outbox by folder, versions of adapters."""
    for path in sorted(home.snapshots.glob("[!.]*/[!.]*")):
        yield ByContent("snapshots", path, _name(home, path), lambda path: _snapshot(home, path))
    for path in sorted(home.datasets.glob("[!.]*")):
        yield ByContent("datasets", path, _name(home, path), lambda path: load_dataset(home, path.name))
    for seal in sorted(home.runs.glob(f"**/{CHECKPOINTS}/*/{SEAL}")):
        yield ByContent("checkpoints", seal.parent, _name(home, seal.parent), _checkpoint)
    for path in sorted(home.outbox.glob("*/*")):
        if path.is_dir():
            yield ByContent("outbox", path, _name(home, path), _results)
    for tenant, role in registry.roles():
        chosen = None
        # Another store's is read when it is fetched.
        if isinstance(registry.store, DirectoryStore):
            with contextlib.suppress(EC1Error):
                chosen = registry.incumbent(tenant, role)
        for version in registry.versions(tenant, role):
            path = registry.local / tenant / role / f"v{version}"
            in_use = chosen is not None and chosen.version == version
            yield ByContent(
                "adapters", path, f"{tenant}/{role}@v{version}", _version(registry, tenant, role, version), in_use
            )


def examine_deeply(home: Home, registry: AdapterRegistry) -> Iterator[Symptom]:
    """Hash everything. What the next night builds again by itself is a note, the rest a problem."""
    found: dict[str, list[str | None]] = {
        kind: [] for kind in ("snapshots", "datasets", "checkpoints", "outbox", "adapters")
    }
    for each in named_by_content(home, registry):
        found[each.kind].append(each.problem())
    for kind, problems in found.items():
        damaged = [problem for problem in problems if problem is not None]
        if damaged:
            text = f"{len(damaged)} of {len(problems)} damaged: {'; '.join(damaged)}"
            yield Symptom(kind, "problem" if kind == "adapters" else "note", text)
        else:
            yield Symptom(kind, "ok", f"{len(problems)} as they were written")
    yield guarded("graph", lambda: _graph(home))
    try:
        broken = list(damaged_databases(home, deep=True))
    except EC1Error as error:
        broken = [str(error)]
    except OSError as error:
        broken = [advice_for(error)]
    yield Symptom("databases", "problem" if broken else "ok", "; ".join(broken) or "whole")


def _name(home: Home, path: Path) -> str:
    return path.relative_to(home.root).as_posix()


def _snapshot(home: Home, path: Path) -> None:
    snapshot = load_snapshot(home, path.parent.name, path.name)
    snapshot.check()
    snapshot.check_name()


def _checkpoint(path: Path) -> None:
    if problem := damage_of(path):
        raise DamagedError(f"{problem}: training goes on from the one before")


def _results(folder: Path) -> None:
    for path in sorted(folder.glob("*.json")):
        check_file(path)


def _version(registry: AdapterRegistry, tenant: str, role: str, version: int) -> Callable[[Path], None]:
    def check(_: Path) -> None:
        if problems := registry.verify(tenant, role, version):
            raise DamagedError(f"{tenant}/{role}@v{version}: {'; '.join(problems)}: {_WITHDRAW}")

    return check


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

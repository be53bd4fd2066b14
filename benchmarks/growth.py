"""How a night's work grows, without anything new and with 1 % new, as documents, mentions, tuples, versions, nights
and recipes gather. One table.

Each night is a process of its own; what is counted is its CPU seconds after its libraries were loaded, the most memory
it had, and what it added on the disk. `a new one` is what 1 % new costs, for each of them: where that grows with the
size, work grows faster than the change, and the row is marked.

Run: python -m benchmarks.growth [--line tuples] [--sizes 1000,100000] (make bench-growth; with --full the large sizes)
"""

import argparse
import datetime as dt
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks import night_cost, quick_night, scan_documents, threshold_check
from benchmarks.apply_entities import documents
from benchmarks.serving import ROLE, TENANT, publish
from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.buckets import Bucket, bucket
from ec1.corpus.snapshots import take_snapshot
from ec1.corpus.threshold import decide
from ec1.documents.listing import Listing
from ec1.files import read_json, write_json
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.resolution.overrides import NO_OVERRIDES
from ec1.home import Home
from ec1.night.records import GraphRecord, HandoverRecord, Records, RunRecord
from ec1.night.report.growth import growth
from ec1.night.report.summary import night_report
from ec1.night.steps.candidate import EVALUATION_FOLDER, earlier_looks
from ec1.storage.directory import DirectoryStore

FIRST = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
LATER = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
BASE = "acme/base"
MARKED = 3.0
"""A new one that costs so many times as much at ten times the size is no longer linear: noise is below it."""


@dataclass(frozen=True)
class Night:
    """What one night took."""

    cpu_seconds: float
    peak_mib: float


@dataclass(frozen=True)
class Line:
    """One thing that gathers. `make` fills a folder with `size` of it, `change` adds or changes so many before a night,
    and `night` is what a night does about them; `change` is not counted."""

    short: tuple[int, ...]
    full: tuple[int, ...]
    make: Callable[[Path, int], None]
    change: Callable[[Path, int, int], None]
    night: Callable[[Path], Night]


# --- documents


def make_documents(folder: Path, size: int) -> None:
    scan_documents.make_tree(folder / "documents", size)
    scan_documents.scan(folder / "documents", folder / "cache", {}).save(folder / "listing.json")


def change_documents(folder: Path, size: int, new: int) -> None:
    stamp = scan_documents.AS_OF.timestamp() - 60
    paths = (path for path in (folder / "documents").rglob("*") if path.is_file())
    for number, path in zip(range(new), paths, strict=False):
        path.write_text(json.dumps({"corpus": f"changed {size} {number}"}))
        os.utime(path, (stamp, stamp))


def documents_night(folder: Path) -> Night:
    ledger = scan_documents.applied(Listing.load(folder / "listing.json"))
    return counted(lambda: scan_documents.scan(folder / "documents", folder / "cache", ledger))


# --- mentions


def make_mentions(folder: Path, size: int) -> None:
    names, _ = night_cost.fill(folder, size // 10, size, [])
    write_json(folder / "names.json", names)


def change_mentions(folder: Path, size: int, new: int) -> None:
    names = read_json(folder / "names.json")
    write_json(folder / "said.json", night_cost.names_of_night(1, names)[:new])


def mentions_night(folder: Path) -> Night:
    night_cost.load_libraries()
    said = read_json(folder / "said.json")
    found = documents("night", said, night_cost.PER_DOCUMENT)

    def work() -> None:
        with LadybugStore.open(folder / "live", buffer_pool_mib=2048, wait_seconds=0) as store:
            store.apply_many(found, "2026-06-11")
            store.update_resolution(NO_OVERRIDES, drift=1.0)
            store.publish(folder / "published")

    return counted(work)


# --- tuples


def make_tuples(folder: Path, size: int) -> None:
    threshold_check._write(folder / "corpus" / "engineering" / "bench", 0, size, 200, FIRST)
    take_snapshot(_bucket(folder), "sft", as_of=LATER, home=Home(folder / "home"))


def change_tuples(folder: Path, size: int, new: int) -> None:
    threshold_check._write(folder / "corpus" / "engineering" / "bench", size, new, 200, FIRST)


def tuples_night(folder: Path) -> Night:
    def work() -> None:
        snapshot = take_snapshot(_bucket(folder), "sft", as_of=LATER, home=Home(folder / "home"))
        decide(snapshot, threshold=50, trained=None)

    return counted(work)


def _bucket(folder: Path) -> Bucket:
    return bucket(folder / "corpus", "engineering", "bench")


# --- versions of one role


def make_versions(folder: Path, size: int) -> None:
    registry = _registry(folder)
    (folder / "config.json").write_text('{"hidden_size": 8}')
    publish(registry, folder / "candidate", 1, BASE, folder)
    change_versions(folder, 1, size - 1)


def change_versions(folder: Path, size: int, new: int) -> None:
    """Copies of the first one: publishing is what a night does, and is not counted here."""
    registry = _registry(folder)
    role = folder / "store" / "adapters" / TENANT / ROLE
    for number in range(size + 1, size + 1 + new):
        shutil.copytree(role / "v1", role / f"v{number}")
        manifest = registry.read(TENANT, ROLE, 1).model_copy(update={"version": number})
        data = (manifest.model_dump_json(indent=2) + "\n").encode()
        (role / f"v{number}" / "manifest.json").write_bytes(data)
        next((role / f"v{number}").glob("*.sig*")).write_bytes(registry.keys.sign(data))


def versions_night(folder: Path) -> Night:
    registry = _registry(folder)

    def work() -> None:
        assert registry.incumbent(TENANT, ROLE) is not None
        registry.best(TENANT, ROLE)
        registry.usable(TENANT, ROLE)
        registry.expendable(TENANT, ROLE, 10)

    return counted(work)


def _registry(folder: Path) -> AdapterRegistry:
    return AdapterRegistry(DirectoryStore(folder / "store"), folder / "home" / "adapters")


# --- nights


def make_nights(folder: Path, size: int) -> None:
    change_nights(folder, 0, size)


def change_nights(folder: Path, size: int, new: int) -> None:
    home = Home(folder / "home")
    for number in range(size, size + new):
        began = FIRST + dt.timedelta(days=number)
        date = began.date().isoformat()
        records = Records(home.night(date))
        records.write(
            f"run{number}", RunRecord(job="nightly_job", status="done", asked=began, began=began, ended=began)
        )
        records.write(
            f"run{number}", GraphRecord(applied=3, entities_after=number, entities_by_class={"Person": number})
        )
        handover = HandoverRecord(night=date, device="CPU", free_gib=8, total_gib=16, swept=0)
        records.write(f"run{number}", handover)
        looked = home.run(TENANT, ROLE, date) / EVALUATION_FOLDER
        looked.mkdir(parents=True)
        rows = (json.dumps({"example": str(row), "group": f"{number % 50}-{row}"}) for row in range(40))
        (looked / "examples.jsonl").write_text("\n".join(rows) + "\n")


def nights_night(folder: Path) -> Night:
    home = Home(folder / "home")
    last = max(path.name for path in home.nights.iterdir())

    def work() -> None:
        night_report(home, last)
        growth(home.nights, last)
        earlier_looks(home.run(TENANT, ROLE, last))

    return counted(work)


# --- recipes


def make_recipes(folder: Path, size: int) -> None:
    quick_night.project(folder / "project", size)


def change_recipes(folder: Path, size: int, new: int) -> None:
    settings = quick_night.embedded_model()
    for number in range(size, size + new):
        text = quick_night.RECIPE.format(number=number, id=settings)
        (folder / "project" / "recipes" / f"role-{number}.yaml").write_text(text)


def recipes_night(folder: Path) -> Night:
    """Loading the definitions, in a process as each night starts it; less what loading them takes without a recipe."""
    chosen = {"EC1_PROJECT": str(folder / "project"), "EC1_HOME": str(folder / "home"), "EC1_DEPLOYMENT": "quick"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", quick_night.LOAD]
    subprocess.run(command, cwd=quick_night.CHECKOUT, env={**os.environ, **chosen}, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Night(used, after.ru_maxrss / 1024)


LINES = {
    "documents": Line((1_000, 10_000), (1_000, 10_000, 100_000), make_documents, change_documents, documents_night),
    "mentions": Line((10_000, 100_000), (10_000, 100_000, 3_000_000), make_mentions, change_mentions, mentions_night),
    "tuples": Line((1_000, 10_000), (1_000, 100_000, 1_000_000), make_tuples, change_tuples, tuples_night),
    "versions": Line((20, 200), (20, 200, 2_000), make_versions, change_versions, versions_night),
    "nights": Line((10, 100), (10, 100, 1_000), make_nights, change_nights, nights_night),
    "recipes": Line((2, 20), (2, 20, 200), make_recipes, change_recipes, recipes_night),
}


def counted(work: Callable[[], object]) -> Night:
    """CPU seconds of some work, and the most memory of this process."""
    began = time.process_time()
    work()
    return Night(time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def measure(line: Line, size: int) -> dict[str, float]:
    """One row: a night without anything new, and one with 1 % new."""
    new = max(1, size // 100)
    with tempfile.TemporaryDirectory(prefix="ec1-growth-") as name:
        folder = Path(name)
        night_cost.apart(line.make, folder, size)
        line.change(folder, size, 0)
        # The first night after the filling tidies up.
        night_cost.apart(line.night, folder)
        quiet = min((night_cost.apart(line.night, folder) for _ in range(2)), key=lambda night: night.cpu_seconds)
        line.change(folder, size, new)
        before = _bytes(folder)
        busy = night_cost.apart(line.night, folder)
        added = _bytes(folder) - before
    return {
        "size": size,
        "new": new,
        "quiet_cpu": quiet.cpu_seconds,
        "quiet_mib": quiet.peak_mib,
        "busy_cpu": busy.cpu_seconds,
        "busy_mib": busy.peak_mib,
        "added_mib": added / 2**20,
        "each_ms": max(0.0, busy.cpu_seconds - quiet.cpu_seconds) / new * 1e3,
    }


def _bytes(folder: Path) -> int:
    """On the disk; a file of several links once."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            found[status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def table(rows: dict[str, list[dict[str, float]]]) -> Iterator[str]:
    """The Markdown table's lines."""
    yield "| what gathers | how many | quiet: CPU s | MiB | 1 % new: CPU s | MiB | added MiB | a new one: CPU ms | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, found in rows.items():
        for number, row in enumerate(found):
            before = found[number - 1] if number else None
            yield (
                f"| {name} | {row['size']:,} | {row['quiet_cpu']:.2f} | {row['quiet_mib']:.0f} | {row['busy_cpu']:.2f} "
                f"| {row['busy_mib']:.0f} | {row['added_mib']:.1f} | {row['each_ms']:.2f} | {verdict(row, before)} |"
            )


def verdict(row: dict[str, float], before: dict[str, float] | None) -> str:
    """Whether a new one became dearer than `MARKED` times what it was at a tenth of the size."""
    if before is None or before["each_ms"] < 0.5 or row["busy_cpu"] - row["quiet_cpu"] < 0.05:
        return ""
    steps = row["size"] / before["size"] / 10
    return "worse than linear" if row["each_ms"] > MARKED * max(1.0, steps) * before["each_ms"] else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--line", action="append", choices=list(LINES), help="default: all")
    parser.add_argument("--sizes", help="for the lines that are named, such as 1000,100000")
    parser.add_argument("--full", action="store_true", help="the large sizes: an hour")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {}
    for name in arguments.line or LINES:
        line = LINES[name]
        sizes = line.full if arguments.full else line.short
        if arguments.sizes:
            sizes = tuple(int(size) for size in arguments.sizes.split(","))
        for size in sizes:
            rows.setdefault(name, []).append(measure(line, size))
            print(f"{name} {size:,}: {rows[name][-1]}", file=sys.stderr, flush=True)
    print("\n".join(table(rows)))
    if arguments.json:
        write_json(arguments.json, rows)


if __name__ == "__main__":
    main()

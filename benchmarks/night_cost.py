"""What a night of 100 documents costs in a graph of 10,000, 30,000 and 100,000 entities: CPU seconds by step.

The graph is made: names as in `resolve_entities`, a million mentions over the entities (a few are in very many
documents, as in life), 20 to a document. The night brings 100 documents of 20 mentions, half of them of new entities,
and runs in a process of its own. `load` is what importing the libraries takes there; `night` is the sum of all steps
after it. `export` is a Parquet export of the whole graph, which nights write only with `graph.exports`.

Run: python -m benchmarks.night_cost [--sizes 30000,100000,300000] [--mentions N] [--steps apply,resolve,export,publish]
"""

import argparse
import contextlib
import gc
import random
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from benchmarks.apply_entities import documents
from benchmarks.resolve_entities import graph, made_names
from ec1.documents.ledger import DocumentKey
from ec1.graph import database, document_plans, tables
from ec1.graph.exports import export_night
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.resolution.overrides import NO_OVERRIDES

MENTIONS = 1_000_000
PER_DOCUMENT = 20
NIGHT = "2026-06-01"
Result = TypeVar("Result")


def build(store: LadybugStore, size: int, mentions: int) -> list[str]:
    """Fill an empty graph by COPY; returns the entities' names."""
    profiles = graph(size)
    rng = random.Random(size)
    names = [min(each.names) for each in profiles]
    keys = [each.key for each in profiles]
    weights = [1 / (rank + 10) for rank in range(size)]
    chosen = [*range(size), *rng.choices(range(size), weights, k=max(0, mentions - size))]
    rng.shuffle(chosen)
    owners = [f"meetings/old-{at // PER_DOCUMENT}.md" for at in range(len(chosen))]
    nodes = []
    for number in range(1 + (len(chosen) - 1) // PER_DOCUMENT):
        node = document_plans.empty_node(DocumentKey("meetings", f"old-{number}.md"))
        held = min(PER_DOCUMENT, len(chosen) - number * PER_DOCUMENT)
        node.update(
            document_id=f"mk-{number}", content_sha256=f"{number:064}", fingerprint="f" * 64, status="applied",
            night=NIGHT, attempts=0, mentions=held, applied_id=f"mk-{number}", applied_content=f"{number:064}",
            applied_night=NIGHT,
        )  # fmt: skip
        nodes.append(node)
    schema = pa.schema([(name, database.arrow_type(name, pa)) for name in tables.DOCUMENT_COLUMNS])
    count = len(chosen)
    execute = store._db.execute
    execute("COPY Document FROM $batch", {"batch": pa.Table.from_pylist(nodes, schema=schema)})
    classes = [each.entity_class for each in profiles]
    execute("COPY Entity FROM $batch", {"batch": pa.table({"key": keys, "name": names, "c": classes})})
    columns = {
        "from": owners,
        "to": [keys[at] for at in chosen],
        "name": [names[at] for at in chosen],
        "chunk": [0] * count,
        "start_char": list(range(count)),
        "end_char": list(range(9, count + 9)),
        "confidence": [0.9] * count,
        "fingerprint": ["f" * 64] * count,
        "model": ["benchmark"] * count,
    }
    execute("COPY MENTIONS FROM $batch", {"batch": pa.table(columns)})
    execute("CHECKPOINT")
    return names


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process, its threads included."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def load_libraries() -> None:
    """What a process loads once, whatever the graph. The database's binding looks for pandas at its first question."""
    for name in ("ladybug", "pandas", "pyarrow.parquet"):
        import_module(name)


def night(folder: Path, number: int, said: list[str], steps: list[str]) -> dict[str, float]:
    """A night's CPU seconds by step, those of opening and closing the graph among them."""
    found = documents(f"night{number}", said, PER_DOCUMENT)
    date = f"2026-06-{10 + number:02}"
    load = cpu(load_libraries)
    with contextlib.ExitStack() as stack:
        opening = LadybugStore.open(folder / "live", buffer_pool_mib=2048, wait_seconds=0)
        began = time.process_time()
        store = stack.enter_context(opening)
        took = {"load": load, "open": time.process_time() - began}
        work: dict[str, Callable[[], object]] = {
            "apply": lambda: store.apply_many(found, date),
            "resolve": lambda: (store.update_resolution(NO_OVERRIDES, drift=1.0), store.resolution_counts()),
            "export": lambda: export_night(store, folder / "exports", date, store.digest_with_resolution(), 7),
            "publish": lambda: store.publish(folder / "published"),
        }
        took |= {name: cpu(work[name]) for name in work if name in steps}
        took["close"] = cpu(stack.close)
    return took


def names_of_night(number: int, names: list[str]) -> list[str]:
    """What its documents name: every other name is new, with a surname that others have."""
    rng = random.Random(number)
    count = 100 * PER_DOCUMENT
    given = made_names(rng, count)
    return [rng.choice(names) if at % 2 else f"{given[at]} {rng.choice(names).split()[-1]}" for at in range(count)]


def fill(folder: Path, size: int, mentions: int, steps: list[str]) -> tuple[list[str], float]:
    """Make the graph, resolve all of it, export it; returns its names and the CPU seconds of the resolution."""
    with LadybugStore.open(folder / "live", buffer_pool_mib=2048, wait_seconds=0) as store:
        names = build(store, size, mentions)
        # The first change to a graph that was filled from outside counts its rows once.
        store.apply_many(documents("first", ["Some Body"], 1), "2026-06-09")
        whole = cpu(lambda: store.update_resolution(NO_OVERRIDES))
    return names, whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,30000,100000")
    parser.add_argument("--mentions", type=int, default=MENTIONS)
    parser.add_argument("--steps", default="apply,resolve,publish")
    parser.add_argument("--nights", type=int, default=3, help="the median of so many nights is shown")
    arguments = parser.parse_args()
    steps = arguments.steps.split(",")
    shown = " ".join(f"{step:>8}" for step in ("load", "open", *steps, "close", "night", "whole"))
    print(f"{'entities':>9} {shown} {'file MiB':>9} {'peak MiB':>9}")
    totals = []
    for size in (int(part) for part in arguments.sizes.split(",")):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            names, whole = apart(fill, folder, size, arguments.mentions, steps)
            nights, peaks = [], []
            for number in range(arguments.nights):
                took, peak = apart(measured, folder, number, names_of_night(number, names), steps)
                nights.append(took)
                peaks.append(peak)
            took = {step: sorted(each[step] for each in nights)[len(nights) // 2] for step in nights[0]}
            totals.append(sum(took.values()) - took["load"])
            mib = (folder / "live").stat().st_size / 2**20
            shown = " ".join(f"{seconds:>8.2f}" for seconds in (*took.values(), totals[-1], whole))
            print(f"{size:>9,} {shown} {mib:>9.0f} {max(peaks):>9.0f}", flush=True)
    print(f"a night: slowest / fastest = {max(totals) / min(totals):.2f}")


def measured(folder: Path, number: int, said: list[str], steps: list[str]) -> tuple[dict[str, float], float]:
    """A night's CPU seconds by step, and the most memory that its process had, in MiB."""
    took = night(folder, number, said, steps)
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def apart(work: Callable[..., Result], *arguments: Any) -> Result:
    """Do something in a process of its own, as a night is: in one that resolved the whole graph before, all that is
    looked up lies scattered over gigabytes, and a night takes up to twice as long."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result()


if __name__ == "__main__":
    main()

"""Applying 10,000 entity upserts to graphs of 10,000, 100,000 and 300,000 entities.

Half of the names are new, half are known; 500 documents mention 20 each. Measured are the upserts alone and the whole
of `apply_many` (ledger rows, entities, mentions with their evidence, counted), each against a bare `LOAD FROM … MERGE`
of as many keys, in the same run, on the same graph. Times are medians of several rounds with other names.

Run: python -m benchmarks.apply_entities [--sizes 10000,100000,300000] [--rounds 5]
"""

import argparse
import gc
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import ladybug
import pyarrow as pa

from ec1.documents.ledger import DocumentKey
from ec1.extraction.results import ChunkAnswer, ExtractionResult, Mention
from ec1.graph import changes, database, document_plans, news, tables
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.model import entity_key

UPSERTS, DOCUMENTS = 10_000, 500
NIGHT = "2026-06-01"
Change = tuple[DocumentKey, str, ExtractionResult]


def documents(prefix: str, names: list[str], per_document: int) -> list[Change]:
    """Documents whose mentions are `names`, in order."""
    changes = []
    for number in range(0, len(names), per_document):
        part = names[number : number + per_document]
        path = f"{prefix}-{number}.md"
        result = ExtractionResult(
            content_sha256=hashlib.sha256(path.encode()).hexdigest(),
            stream="meetings",
            fingerprint="f" * 64,
            status="complete",
            mentions=tuple(
                Mention(
                    name=name, entity_class="Person", confidence=0.9, chunk=0, start=at * 20, end=at * 20 + len(name)
                )
                for at, name in enumerate(part)
            ),
            answers=(ChunkAnswer(chunk=0, start=0, end=20 * per_document, finish_reason="stop", model="benchmark"),),
        )
        changes.append((DocumentKey("meetings", path), path, result))
    return changes


def seed(store: LadybugStore, size: int) -> None:
    """Fill an empty graph by COPY, which takes seconds: `size` entities, one mention each, 100 per document."""
    owners = [f"meetings/seed-{number // 100}.md" for number in range(size)]
    nodes = [
        document_plans.empty_node(DocumentKey("meetings", f"seed-{number}.md")) for number in range(len(set(owners)))
    ]
    for node in nodes:
        node.update(status="applied", attempts=0, mentions=100)
    schema = pa.schema([(name, database.arrow_type(name, pa)) for name in tables.DOCUMENT_COLUMNS])
    names = [f"Person {number}" for number in range(size)]
    keys = [entity_key(name, "Person") for name in names]
    mentions: dict[str, Sequence[object]] = {
        "from": owners,
        "to": keys,
        "name": names,
        "chunk": [0] * size,
        "start_char": list(range(size)),
        "end_char": list(range(9, size + 9)),
        "confidence": [0.9] * size,
        "fingerprint": ["f" * 64] * size,
        "model": ["benchmark"] * size,
    }
    store._db.execute("COPY Document FROM $batch", {"batch": pa.Table.from_pylist(nodes, schema=schema)})
    store._db.execute(
        "COPY Entity FROM $batch", {"batch": pa.table({"key": keys, "name": names, "c": ["Person"] * size})}
    )
    store._db.execute("COPY MENTIONS FROM $batch", {"batch": pa.table(mentions)})
    store._db.execute("CHECKPOINT")


def names_of(round_: int, size: int, what: str) -> list[str]:
    """10,000 names: every other one is already in a graph of `size` entities."""
    step = size / (UPSERTS / 2)
    return [
        f"Person {int(number // 2 * step)}" if number % 2 else f"{what} {round_} {number}" for number in range(UPSERTS)
    ]


def timed(work: Callable[[], object], clock: Callable[[], float]) -> float:
    began = clock()
    work()
    return clock() - began


def bare_merge(store: LadybugStore, names: list[str]) -> None:
    keys = [f"Person:{name.lower()}" for name in names]
    table = pa.table({"row_key": keys, "row_name": names, "row_class": ["Person"] * len(keys)})
    store._db.execute("BEGIN TRANSACTION")
    store._db.execute(
        "LOAD FROM $batch MERGE (e:Entity {key: row_key}) ON CREATE SET e.name = row_name, e.entity_class = row_class",
        {"batch": table},
    )
    store._db.execute("COMMIT")


def upsert(store: LadybugStore, todo: list[Change]) -> None:
    """The store's own entity step, without ledger and mentions."""
    plans = [
        document_plans.DocumentPlan(
            news.Change(key, identity, "", "", "complete"),
            {},
            None,
            mentions=news.Change.of(key, identity, result).mentions,
        )
        for key, identity, result in todo
    ]
    with store._db.transaction():
        changes.Changes(store._db)._write_entities(plans, changes._Touched(tables.GraphTotals()))


def measure(
    folder: Path, size: int, rounds: int, buffer_pool_mib: int, clock: Callable[[], float]
) -> tuple[float, float, float]:
    """Median seconds of the bare merge, the upserts and the whole apply at `size` entities."""
    bare, alone, whole = list[float](), list[float](), list[float]()
    with LadybugStore.open(folder / str(size), buffer_pool_mib=buffer_pool_mib, wait_seconds=0) as store:
        seed(store, size)
        for round_ in range(rounds + 1):
            store._db.execute("CHECKPOINT")
            names = names_of(round_, size, "Bare")
            alone_changes = documents("x", names_of(round_, size, "Alone"), 20)
            whole_changes = documents(f"d{round_}", names_of(round_, size, "Whole"), 20)
            # What the benchmark itself keeps is not looked through for garbage while the clock runs.
            gc.collect()
            gc.freeze()
            times = (
                timed(partial(bare_merge, store, names), clock),
                timed(partial(upsert, store, alone_changes), clock),
                timed(partial(store.apply_many, whole_changes, NIGHT), clock),
            )
            if round_:  # The first round warms the pool.
                for values, value in zip((bare, alone, whole), times, strict=True):
                    values.append(value)
    return statistics.median(bare), statistics.median(alone), statistics.median(whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000,300000", help="numbers of entities in the graph before")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--buffer-pool-mib", type=int, default=512)
    parser.add_argument("--cpu", action="store_true", help="count CPU time, for a machine that is busy otherwise")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu else time.perf_counter
    print(f"ladybug {ladybug.__version__}, {UPSERTS:,} upserts, buffer pool {arguments.buffer_pool_mib} MiB")
    print(f"{'entities':>9} {'bare merge':>11} {'upserts':>9} {'/ bare':>7} {'whole apply':>12} {'/ bare':>7}")
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (int(part) for part in arguments.sizes.split(",")):
            bare, alone, whole = measure(Path(folder), size, arguments.rounds, arguments.buffer_pool_mib, clock)
            figures.append((alone, whole))
            print(
                f"{size:>9,} {bare:>9.3f} s {alone:>7.3f} s {alone / bare:>7.2f} {whole:>10.3f} s {whole / bare:>7.2f}"
            )
    for name, values in zip(("upserts", "whole apply"), zip(*figures, strict=True), strict=True):
        print(f"{name}: slowest graph / fastest graph = {max(values) / min(values):.2f} (target 1.5)")


if __name__ == "__main__":
    main()

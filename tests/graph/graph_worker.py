"""A phase-1 night's writer as a separate process, to be killed: brings the graph to what a night's listing says.

usage: graph_worker.py HOME NIGHT MODE. Prints `opening`, `open` and `done`. With mode `differences` only the first
night resolves everything.
"""

import random
import sys
from pathlib import Path

from graph_samples import Change, key, result

from ec1.documents.ledger import Status
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.resolution.overrides import NO_OVERRIDES

NIGHTS = 3
DOCUMENTS = 40
NAMES = [f"{given} {surname}" for given in ("Ann", "Bo", "Carl") for surname in ("Ek", "Falk", "Dahl", "Lund", "Moe")]
FORMS = ("{}", "{}.", "{} Jr", "Dr. {}")


def listing(night: int) -> list[Change]:
    """The documents that exist at the end of a night, in the version that they then have."""
    found = []
    for number in range(DOCUMENTS):
        rng = random.Random(number)
        births, edits, deaths = rng.randrange(NIGHTS), rng.randrange(NIGHTS), rng.randrange(NIGHTS + 3)
        if births <= night < deaths or deaths < births <= night:
            version = 2 if night == edits else 1
            inner = random.Random(f"{number} {version}")
            names = [(inner.choice(FORMS).format(inner.choice(NAMES)), "Person") for _ in range(6)]
            status = "deferred" if inner.random() < 0.1 else "complete"
            found.append(
                (key(f"{number}.md"), f"mk-{number}-{version}", result(f"{number} {version}", *names, status=status))
            )
    random.Random(night).shuffle(found)
    return found


def run(home: Path, night: int, mode: str) -> None:
    """Apply what the ledger lacks, take back what vanished, publish half-way, resolve, publish at the end, export."""
    live, published, date = home / "live", home / "published", f"2026-06-0{night + 1}"
    print("opening", flush=True)
    with LadybugStore.open(live, buffer_pool_mib=64, wait_seconds=20, published=published) as store:
        print("open", flush=True)
        ledger, documents = store.ledger(), listing(night)
        there = {document for document, _, _ in documents}
        for document in sorted(set(ledger) - there):
            store.retract_many([document], date)
        todo = [
            change
            for change in documents
            if (entry := ledger.get(change[0])) is None
            or entry.content_sha256 != change[2].content_sha256
            or entry.status not in (Status.APPLIED, Status.QUARANTINED)
        ]
        half = len(todo) // 2
        for change in todo[:half]:
            store.apply(*change, date)
        store.publish(published)
        store.apply_many(todo[half:], date)
        if mode == "differences":
            store.update_resolution(NO_OVERRIDES, whole_below=0, drift=100)
        else:
            store.update_resolution(NO_OVERRIDES)
        store.publish(published)
        store.export(home / "export" / date)
        assert store.digest() == store.recounted_digest()
        (home / f"{date}.digest").write_text(store.digest_with_resolution())
    print("done", flush=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

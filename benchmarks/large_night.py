"""A night past one machine: a thousand trainings on 64 cards, by rates that are measured here (docs/scale.md).

    python -m benchmarks.large_night [--trainings 1000] [--cards 64] [--hours 0.75] [--usd 0.8]

Measures the markers (calls to the store for each training, from the claim to the end) and the book of costs, then
simulates the night: which card takes which training when, how many calls the store gets, and what it costs. A store's
prices and delays are arguments, by default those of a bucket in the same region.
"""

import argparse
import dataclasses
import datetime as dt
import heapq
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from ec1.launch.marker_formats import WorkMarker
from ec1.launch.markers import PendingMarkers
from ec1.launch.settings import WorkerSettings
from ec1.launch.worker_launcher import WorkerLauncherSettings
from ec1.night.card_book import CardBook
from ec1.storage.directory import DirectoryStore
from ec1.storage.store import ObjectInfo

NIGHT = "2026-06-01"
PAGE = 1000
"""Objects that one call of a listing brings, in S3 and in Google Cloud Storage."""


class CountedStore(DirectoryStore):
    """A directory that counts the calls that a bucket would have got."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls: Counter[str] = Counter()

    def put_bytes(self, key: str, data: bytes, **options: Any) -> None:
        self.calls["put"] += 1
        super().put_bytes(key, data, **options)

    def get_bytes(self, key: str) -> bytes:
        self.calls["get"] += 1
        return super().get_bytes(key)

    def delete(self, key: str) -> None:
        self.calls["delete"] += 1
        super().delete(key)

    def rename(self, source: str, destination: str) -> None:
        # In a bucket: read, write, delete.
        self.calls.update(("get", "put", "delete"))
        super().rename(source, destination)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        found = list(super().list(prefix))
        self.calls["list"] += max(1, -(-len(found) // PAGE))
        yield from found


@dataclasses.dataclass(frozen=True)
class Rates:
    """Of one training: calls to the store by kind, and seconds of this machine."""

    calls: dict[str, float]
    seconds: float


def markers(trainings: int, cards: int) -> Rates:
    """Ask for so many trainings, and have as many workers as cards claim and complete them in turn."""
    with tempfile.TemporaryDirectory() as folder:
        store = CountedStore(Path(folder))
        asks = PendingMarkers(store)
        for number in range(trainings):
            marker = WorkMarker(
                adapter=f"role-{number}",
                tenant="acme",
                role=f"role-{number}",
                triggered_at=dt.datetime.now(dt.UTC),
                what="the training",
                device="cuda",
                work=f"{number:064x}",
            )
            asks.ask(marker, NIGHT)
        store.calls.clear()
        began, done, workers = time.monotonic(), 0, [PendingMarkers(store) for _ in range(cards)]
        while done < trainings:
            for worker in workers:
                if (claim := worker.claim("worker")) is not None:
                    worker.check(claim)
                    worker.complete(claim)
                    done += 1
        seconds = (time.monotonic() - began) / trainings
        return Rates({kind: count / trainings for kind, count in sorted(store.calls.items())}, seconds)


def book(trainings: int) -> float:
    """Seconds of one use in the book of costs, at the end of such a night."""
    with tempfile.TemporaryDirectory() as folder:
        costs = CardBook(Path(folder), 1.0, ZoneInfo("UTC"), daily_cost=10.0**6)
        began = time.monotonic()
        for _ in range(trainings):
            with costs.use("the training", NIGHT, 1, needs=60, at_most=3600) as using:
                using.card_seconds = 60
        return (time.monotonic() - began) / trainings


def night(seconds: list[float], cards: int) -> float:
    """When the last of the trainings ends, if each card takes the next one as soon as it is free."""
    free = [0.0] * cards
    for each in seconds:
        heapq.heappush(free, heapq.heappop(free) + each)
    return max(free)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trainings", type=int, default=1000)
    parser.add_argument("--cards", type=int, default=64)
    parser.add_argument("--hours", type=float, default=0.75, help="median of a training with its evaluation")
    parser.add_argument("--spread", type=float, default=0.6, help="of the logarithm of those hours")
    parser.add_argument("--usd", type=float, default=0.8, help="price of a card and hour")
    parser.add_argument("--call-seconds", type=float, default=0.05, help="of a call to the store")
    parser.add_argument("--usd-per-million", type=float, default=5.0, help="price of a million writes or listings")
    arguments = parser.parse_args()
    cards, rng, write = arguments.cards, random.Random(7), sys.stdout.write

    write("trainings  calls to the store for each, from claim to end            seconds here\n")
    rates = Rates({}, 0.0)
    for trainings in sorted({arguments.trainings // 10, arguments.trainings // 3, arguments.trainings}):
        rates = markers(trainings, cards)
        calls = ", ".join(f"{kind} {count:.1f}" for kind, count in rates.calls.items())
        write(f"{trainings:9}  {calls:60} {rates.seconds:.3f}\n")
    write(f"the book of costs: {1000 * book(2 * arguments.trainings):.1f} ms a use, of {2 * arguments.trainings}\n")

    seconds = [3600 * arguments.hours * rng.lognormvariate(0, arguments.spread) for _ in range(arguments.trainings)]
    bound = max(sum(seconds) / cards, max(seconds))
    ends = {"as they come": night(seconds, cards), "the longest first": night(sorted(seconds, reverse=True), cards)}
    for order, end in ends.items():
        write(f"{order}: {end / 3600:.1f} h on {cards} cards, {end / bound:.2f} of the least\n")
    write(f"cost: {sum(seconds) / 3600 * arguments.usd:.0f} USD for {sum(seconds) / 3600:.0f} card-hours\n")

    rules, follow = WorkerSettings(), WorkerLauncherSettings().follow_seconds
    work, end = sum(seconds), ends["as they come"]
    # A heartbeat: two listings and a write, and two files of progress. A look of who waits: two listings, two reads.
    beats, looks = 5 * work / rules.beat_seconds, 4 * work / follow
    waiting = 4 * (arguments.trainings - cards) * end / 2 / follow
    claims = sum(rates.calls.values()) * arguments.trainings
    for what, count in (
        ("claims and ends", claims),
        ("heartbeats", beats),
        ("looks of the steps whose training runs", looks),
        ("looks of steps that wait for a card, if all are asked for at once", waiting),
    ):
        rate, price = count / end, count / 1e6 * arguments.usd_per_million
        write(f"{what}: {count / 1e6:.2f} million calls, {rate:.0f} a second, {price:.1f} USD\n")
    claim = sum(rates.calls.values()) * arguments.call_seconds
    write(f"a claim and its end take {claim:.1f} s of a store that answers in {arguments.call_seconds * 1000:.0f} ms\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

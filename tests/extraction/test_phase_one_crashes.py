"""SIGKILL at random moments of extraction, applying and publishing: the nights end as if none had come.

A kill costs at most the questions that were in flight.
"""

import json
import math
import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from fake_openai import FakeServer, fake_server
from patience import until
from phase_one import MAX_IN_FLIGHT, PhaseOne

from ec1.graph.ladybug_store import LadybugStore, rebuilding_folder
from ec1.graph.reader import published_ledger
from ec1.home import Home

NIGHTS = 5
DELAY = 0.02
"""Seconds that each answer takes, unless a kill waits for a question in flight."""
DOCUMENTS = 24
KILLS = {"extracting": 6, "applying": 3, "publishing": 1}
"""In each night: fifty in all."""


def work(phase: PhaseOne, date: str, told: Connection) -> None:
    """One night in a separate process."""
    phase.night(date, told.send)


class Nights:
    """Nights on one home, each in processes that were forked from a clean one."""

    def __init__(self, folder: Path, url: str, model: Path) -> None:
        self.phase = PhaseOne(Home(folder), url, model)
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["phase_one", "ladybug", "tokenizers", "pyarrow.parquet"])

    def start(self, date: str) -> tuple[BaseProcess, Connection]:
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=work, args=(self.phase, date, theirs))
        process.start()
        theirs.close()
        return process, ours

    def run(self, date: str) -> dict[str, float]:
        """A whole night; how long each of its phases took, in seconds."""
        process, told = self.start(date)
        began = dict(said(told))
        process.join()
        assert process.exitcode == 0 and list(began) == ["listing", "extracting", "applying", "publishing", "done"]
        moments = list(began.values())
        return {phase: moments[at + 1] - moments[at] for at, phase in enumerate(list(began)[:-1])}

    def kill(self, date: str, phase: str, wait: Callable[[], None]) -> bool:
        """Kill a night when `wait`, called at the beginning of a phase, returns; False if it was done by then."""
        process, told = self.start(date)
        for heard, _ in said(told):
            if heard == phase:
                break
        wait()
        process.kill()
        process.join()
        rest = [heard for heard, _ in said(told)]
        return process.exitcode == -signal.SIGKILL and "done" not in rest

    def stored(self) -> int:
        """Answers that are safe: those in results, and those about documents that are not done."""
        count = 0
        for path in self.phase.home.outbox.rglob("*.json"):
            count += len(json.loads(path.read_text())["answers"])
        for path in self.phase.home.outbox.rglob("*.answers.jsonl"):
            if not path.with_name(path.name.replace(".answers.jsonl", ".json")).exists():
                count += path.read_bytes().count(b'"answer"')
        return count


def said(told: Connection) -> Iterator[tuple[str, float]]:
    try:
        while True:
            yield told.recv(), time.monotonic()
    except EOFError:
        return


def write_documents(phase: PhaseOne, night: int) -> None:
    """The documents as they are in a night: some are new, some edited, some gone."""
    for number in range(DOCUMENTS):
        rng = random.Random(number)
        birth, edit, death = rng.randrange(NIGHTS), rng.randrange(1, NIGHTS), rng.randrange(2, 3 * NIGHTS)
        path = f"{number % 3}/{number}.md"
        if night == birth or (night == edit and birth < night < death):
            inner = random.Random(f"{number} {night}")
            parts = [
                f"{inner.choice(NAMES)} {inner.choice(NAMES)} came to the meeting and said that the work on hall "
                f"{part} of {number} goes on as it was agreed upon in the night {night}, and that nobody has to wait."
                for part in range(inner.randrange(2, 6))
            ]
            phase.write(path, "\n\n".join(parts), f"2026-06-0{night + 1}")
        elif night == death:
            (phase.home.documents / "service-minutebook/assets" / path).unlink(missing_ok=True)


NAMES = ("Alma", "Boris", "Chidi", "Dora", "Egon", "Freya", "Reyes", "Tanaka", "Winter", "Falk", "Lund", "Obi")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with fake_server() as state:
        state.delay = DELAY
        yield state


@pytest.fixture
def homes(server: FakeServer, words: Path, tmp_path: Path) -> tuple[Nights, Nights]:
    """One for nights that nothing disturbs, and one for the same nights with kills."""
    return Nights(tmp_path / "calm", server.url, words), Nights(tmp_path / "stormy", server.url, words)


def _until_asked(server: FakeServer) -> None:
    """Return when the server has been asked and is far from its answer."""
    server.delay = 30
    calls = server.calls
    until(lambda: server.calls > calls)


def assert_equal_exports(calm: Nights, stormy: Nights) -> None:
    exports = [each.phase.home.root / "export" for each in (calm, stormy)]
    for name in ("documents", "entities", "mentions"):
        assert (exports[0] / f"{name}.parquet").read_bytes() == (exports[1] / f"{name}.parquet").read_bytes()


@pytest.mark.system
@pytest.mark.parametrize("share", [0.3, pytest.param(1.0, marks=pytest.mark.soak)])
def test_kills_change_nothing_and_cost_only_what_was_in_flight(
    server: FakeServer, homes: tuple[Nights, Nights], share: float
) -> None:
    """Of the fifty a third is enough for every day."""
    rng = random.Random(20260601)
    calm, stormy = homes
    kills, lost_by_kill, asked_by_storm, chunks = 0, [], 0, 0
    for night in range(NIGHTS):
        date = f"2026-06-0{night + 1}"
        write_documents(calm.phase, night)
        write_documents(stormy.phase, night)
        calls = server.calls
        span = calm.run(date)
        chunks += server.calls - calls
        for phase, count in KILLS.items():
            for kill in range(math.ceil(share * count)):
                calls, stored = server.calls, stormy.stored()
                if phase == "extracting" and kill == 0:
                    assert stormy.kill(date, phase, lambda: _until_asked(server))
                else:
                    # Each kill leaves less to do. The first moments of a phase are always there.
                    while not stormy.kill(date, phase, partial(time.sleep, rng.uniform(0, span[phase] / (kill + 1)))):
                        span[phase] /= 2
                server.delay = DELAY
                kills += 1
                lost = (server.calls - calls) - (stormy.stored() - stored)
                assert 0 <= lost <= MAX_IN_FLIGHT, (date, phase, kill)
                lost_by_kill.append(lost)
                asked_by_storm += server.calls - calls
        calls = server.calls
        stormy.run(date)
        asked_by_storm += server.calls - calls
        assert_equal_exports(calm, stormy)
    assert kills == NIGHTS * sum(math.ceil(share * count) for count in KILLS.values())
    assert asked_by_storm <= chunks + sum(lost_by_kill)
    assert sum(lost > 0 for lost in lost_by_kill) >= NIGHTS, "each night one kill came when something was in flight"
    print(f"{kills} kills, {chunks} chunks, {asked_by_storm} calls, {sum(lost_by_kill)} of them in flight at a kill")
    files = [
        {path.relative_to(each.phase.home.outbox): path.read_bytes() for path in each.phase.home.outbox.rglob("*.*")}
        for each in (calm, stormy)
    ]
    odd = sorted(str(path) for path in files[0].keys() | files[1].keys() if files[0].get(path) != files[1].get(path))
    assert odd == []
    assert len(files[0]) >= DOCUMENTS


@pytest.mark.system
def test_kills_while_a_changed_extractors_graph_takes_the_old_ones_place(homes: tuple[Nights, Nights]) -> None:
    rng = random.Random(4)
    calm, stormy = homes
    first, second = f"2026-06-0{NIGHTS}", f"2026-06-0{NIGHTS + 1}"
    for nights in (calm, stormy):
        for night in range(NIGHTS):
            write_documents(nights.phase, night)
        nights.run(first)
        nights.phase.settings = {"fingerprint_policy": "full", "min_confidence": 0.01}
    seen = []
    span = calm.run(second)["applying"]
    for kill in range(10):
        # Evenly over what takes the time, so that some come before the swap and some after it.
        after = span * (kill + rng.random()) / 10
        while not stormy.kill(second, "applying", partial(time.sleep, after)):
            after /= 2
        # One extractor's graph or the other's, and never a mixture.
        with LadybugStore.open(
            stormy.phase.home.graph, buffer_pool_mib=64, wait_seconds=20, published=stormy.phase.home.published_graph
        ) as store:
            fingerprints = {entry.fingerprint for entry in store.ledger().values()}
        assert len(fingerprints) == 1
        seen.append(fingerprints.pop())
    changed = stormy.phase.extractor().fingerprint("meeting")
    swap = seen.index(changed) if changed in seen else len(seen)
    print(f"{swap} kills before the swap, {len(seen) - swap} after it")
    assert swap >= 1 and set(seen[swap:]) <= {changed}, "the swap is not undone by a kill"
    stormy.run(second)
    assert_equal_exports(calm, stormy)
    assert {entry.fingerprint for entry in published_ledger(stormy.phase.home.published_graph).values()} == {changed}
    left = rebuilding_folder(stormy.phase.home.published_graph)
    assert not left.exists(), "a kill may not leave a second graph"

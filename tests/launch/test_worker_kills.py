"""Workers that are killed at random points, and workers that want the same marker."""

import datetime as dt
import json
import multiprocessing
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from worker_parts import HERE, launcher_of, light_work, markers_of

from ec1.launch import blobs
from ec1.launch.marker_formats import Marker
from ec1.launch.markers import PREFIX
from ec1.launch.orders import order_of
from ec1.storage.directory import DirectoryStore

pytestmark = pytest.mark.soak
KILLS = 30
EXPIRE, POLL = 2.0, 0.2


def start(store: Path, folder: Path, name: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, HERE / "worker_parts.py", store, folder, name, str(EXPIRE), str(POLL)]
    with (folder.parent / f"{name}.log").open("ab") as log:
        return subprocess.Popen([str(each) for each in command], stdout=log, stderr=log)


def test_thirty_kills_and_each_marker_is_trained_once(tmp_path: Path) -> None:
    """One worker is killed again and again; its successor has the same folder, as on the same machine."""
    rng = random.Random(7)
    root, store = tmp_path / "store", DirectoryStore(tmp_path / "store")
    (tmp_path / "workers").mkdir()
    folder = tmp_path / "workers" / "files"
    markers, launcher = markers_of(store), launcher_of(store)
    works = [light_work(tmp_path / f"night-{number}", steps=40, seconds=0.05, number=number) for number in range(10)]
    for work in works:
        order = order_of(work)
        for path, tree in zip(work.inputs, order.inputs, strict=True):
            blobs.send(store, path, tree)
        launcher._ask(work, order)
    kills, survived = 0, 0
    began = time.monotonic()
    while kills < KILLS:
        worker = start(root, folder, f"worker-{kills}")
        time.sleep(rng.uniform(0.5, 8))
        survived += worker.poll() is None
        worker.kill()
        worker.wait()
        kills += 1
        if not markers.pending() and not markers.claimed():
            works.append(light_work(tmp_path / f"night-{len(works)}", steps=40, seconds=0.05, number=len(works)))
            order = order_of(works[-1])
            blobs.send(store, works[-1].inputs[0], order.inputs[0])
            launcher._ask(works[-1], order)
    assert survived == KILLS, "no worker ended by itself"
    last = start(root, folder, "last")
    deadline = time.monotonic() + 300
    while (markers.pending() or markers.claimed()) and time.monotonic() < deadline:
        time.sleep(0.2)
    last.kill()
    last.wait()
    files = [item.key for item in store.list(PREFIX) if "/." not in item.key]
    assert len(files) == len(works) and all(file.endswith(".completed") for file in files)
    for work in works:
        launcher.run(work, {}, tmp_path / "log.txt")
        assert (
            json.loads((work.output / "summary.json").read_text())["n"]
            == json.loads(work.specification.read_text())["number"]
        )
        steps = (work.output / "steps.txt").read_text().split()
        assert steps == [str(step) for step in range(40)], "each step once, in order"
    log = "".join(path.read_text() for path in (tmp_path / "workers").glob("*.log"))
    completed = [line.split()[0] for line in log.splitlines() if line.endswith(" completed")]
    assert len(completed) == len(set(completed))
    print(f"{kills} kills over {len(works)} markers in {time.monotonic() - began:.0f} s: each completed once")


def _contend(root: str, name: str, rounds: int, barrier: Any, results: Any) -> None:
    markers = markers_of(DirectoryStore(Path(root)))
    won = []
    for _ in range(rounds):
        barrier.wait()
        claim = markers.claim(name)
        won.append(claim.file if claim else "")
        barrier.wait()
    results.put(won)


def test_two_workers_want_one_marker_two_hundred_times(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    rounds, store = 200, DirectoryStore(tmp_path)
    barrier, results = context.Barrier(3), context.Queue()
    processes = [
        context.Process(target=_contend, args=(str(tmp_path), f"worker-{each}", rounds, barrier, results))
        for each in range(2)
    ]
    for process in processes:
        process.start()
    for number in range(rounds):
        marker = Marker(
            adapter=f"clerk-{number}",
            tenant="acme",
            role="clerk",
            corpus_path="training-corpus/clerk",
            method="sft",
            tuple_count=60,
            triggered_at=dt.datetime(2026, 6, 9, tzinfo=dt.UTC) + dt.timedelta(seconds=number),
        )
        assert markers_of(store).write(marker, "2026-06-09")
        barrier.wait()
        barrier.wait()
    won = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    winners = [[each[number] for each in won if each[number]] for number in range(rounds)]
    assert all(files == [f"clerk-{number}-2026-06-09.json"] for number, files in enumerate(winners))
    share = sum(bool(file) for file in won[0])
    print(f"{rounds} markers, one winner each: {share} to one worker, {rounds - share} to the other")

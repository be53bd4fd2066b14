"""SIGKILL at random moments, from opening over resolving to recovering: the night ends as if none had come."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import graph_worker
import pytest

from ec1.graph.ladybug_store import LadybugStore


def start(home: Path, night: int, mode: str) -> "subprocess.Popen[str]":
    worker = Path(graph_worker.__file__)
    return subprocess.Popen(
        [sys.executable, str(worker), str(home), str(night), mode],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def kill_in(phase: str, after: float, worker: "subprocess.Popen[str]") -> bool:
    """Kill a worker `after` seconds from the line that begins a phase; False if it had finished by then."""
    assert worker.stdout is not None
    while worker.stdout.readline().strip() not in (phase, ""):
        pass
    time.sleep(after)
    worker.send_signal(signal.SIGKILL)
    rest = worker.stdout.read()
    worker.wait()
    return "done" not in rest


def tear_the_log(home: Path, rng: random.Random) -> bool:
    """What a power cut may do on top of a kill: the last bytes of the log are missing."""
    log = home / "live.wal"
    if not log.exists() or log.stat().st_size < 100:
        return False
    with log.open("r+b") as stream:
        stream.truncate(log.stat().st_size - rng.randrange(1, 60))
    return True


@pytest.mark.parametrize(
    ("mode", "kills_per_night"),
    [pytest.param("whole", 6, marks=pytest.mark.slow), pytest.param("differences", 17, marks=pytest.mark.soak)],
)
def test_kills_at_random_moments_change_nothing(tmp_path: Path, mode: str, kills_per_night: int) -> None:
    rng = random.Random(20260601)
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    kills = {"opening": 0, "open": 0}
    torn = 0
    for night in range(graph_worker.NIGHTS):
        calm.mkdir(exist_ok=True)
        stormy.mkdir(exist_ok=True)
        undisturbed = start(calm, night, mode)
        assert undisturbed.stdout is not None
        lines, began = [], {}
        for line in undisturbed.stdout:
            lines.append(line.strip())
            began[line.strip()] = time.monotonic()
        assert undisturbed.wait() == 0 and lines == ["opening", "open", "done"]
        span = {"opening": began["open"] - began["opening"], "open": began["done"] - began["open"]}
        for kill in range(kills_per_night):
            # Every third kill falls into opening, where recovery happens; the others into the work.
            phase = "opening" if kill % 3 == 2 else "open"
            while not kill_in(phase, rng.uniform(0, span[phase]), start(stormy, night, mode)):
                span[phase] /= 2  # It was done before the kill: less is left to do than in the calm night.
            kills[phase] += 1
            torn += kill % 2 == 0 and tear_the_log(stormy, rng)
        assert start(stormy, night, mode).wait() == 0
    assert sum(kills.values()) == kills_per_night * graph_worker.NIGHTS
    print(f"kills: {kills}, logs torn afterwards: {torn}")
    date = f"2026-06-0{graph_worker.NIGHTS}"
    assert (stormy / f"{date}.digest").read_text() == (calm / f"{date}.digest").read_text()
    for name in ("documents", "entities", "mentions", "clusters", "links"):
        path = Path("export") / date / f"{name}.parquet"
        assert (stormy / path).read_bytes() == (calm / path).read_bytes()
    with LadybugStore.open(stormy / "live", buffer_pool_mib=64, wait_seconds=0) as store:
        assert store.recovered is None and store.stats().mentions > 100

"""Two nights at once, and nights killed at random moments: never an engine and a trainer alive together.

`python tests/e2e/test_exclusive_use.py PAIRS`, after `make night`, runs more of it and prints what was seen.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
from light import LightCommandLine, light_project, wipe

from ec1.extraction.reading.progress import ExtractionRecord
from ec1.gpu.lease import MARK, marked_processes
from ec1.night.records import OutcomeRecord, Records

pytestmark = pytest.mark.system
NIGHT = "2026-06-05"


@dataclass
class Watcher:
    """Looks at all processes again and again, from outside: who of this home is an engine, who a trainer."""

    lock: Path
    samples: int = 0
    overlaps: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    _stop: threading.Event = field(default_factory=threading.Event)

    def kinds(self) -> dict[str, set[int]]:
        """The families on the card, by kind: an engine's worker counts as the engine, by its mark.

        A trainer's child that is about to become another program still has the trainer's command line: it is not a
        second one.
        """
        found: dict[str, set[int]] = {"engine": set(), "trainer": set()}
        parents: dict[int, int] = {}
        for process in psutil.process_iter(["cmdline"]):
            words = " ".join(process.info["cmdline"] or [])
            kind = "engine" if "vllm.entrypoints" in words else "trainer" if "-m ec1.training" in words else None
            kind = "trainer" if "-m ec1.adapters.evaluation" in words else kind
            if kind is None or "warden.py" in words:
                continue
            try:
                if process.environ().get(MARK) == str(self.lock) and process.status() != psutil.STATUS_ZOMBIE:
                    parents[process.pid] = process.ppid()
                    found[kind].add(process.pid)
            except psutil.Error:
                continue
        found["trainer"] = {pid for pid in found["trainer"] if parents[pid] not in found["trainer"]}
        return found

    def run(self) -> None:
        while not self._stop.wait(0.03):
            kinds = self.kinds()
            self.samples += 1
            self.seen.update(kind for kind, pids in kinds.items() if pids)
            if (kinds["engine"] and kinds["trainer"]) or len(kinds["trainer"]) > 1:
                # Processes end while one looks at the others: what counts is who is still alive on a second look.
                again = self.kinds()
                engine, trainer = kinds["engine"] & again["engine"], kinds["trainer"] & again["trainer"]
                if (engine and trainer) or len(trainer) > 1:
                    self.overlaps.append(f"engines {sorted(engine)}, trainers {sorted(trainer)}")

    def __enter__(self) -> "Watcher":
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def wait_all(nights: "list[subprocess.Popen[str]]") -> list[int]:
    return [night.communicate(timeout=900) and night.returncode for night in nights]


def two_at_once(ec1: LightCommandLine, rng: random.Random, watcher: Watcher) -> list[int]:
    """Start two nights of one home with a random delay, wait for both; returns their exit statuses."""
    first = ec1.start("night", "--date", NIGHT)
    time.sleep(rng.random() * 15)
    second = ec1.start("night", "--date", NIGHT)
    return wait_all([first, second])


def victims(ec1: LightCommandLine, who: str) -> list[psutil.Process]:
    lock = ec1.home.gpu_lock.resolve()
    if who in ("engine", "trainer"):
        pids = Watcher(lock).kinds()[who]
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        try:
            ours = process.environ().get("EC1_HOME") == str(ec1.home.root)
        except psutil.Error:
            continue
        if ours and ("jobs.run_night" in words or any("multiprocessing.forkserver" in word for word in words)):
            found.append(process)
    return found


def kill_at_random(ec1: LightCommandLine, who: str, rng: random.Random) -> bool:
    """Start a night, `kill -9` the engine, the trainer or the whole run at a random moment of its life."""
    with ec1.start("night", "--date", NIGHT) as night:
        deadline = time.monotonic() + 240
        while not (found := victims(ec1, who)) and time.monotonic() < deadline and night.poll() is None:
            time.sleep(0.05)
        time.sleep(rng.random() * (2 if who == "engine" else 8))
        found = victims(ec1, who) or found
        for process in found:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        night.communicate(timeout=900)
    return bool(found)


def settled(ec1: LightCommandLine) -> bool:
    record = Records(ec1.home.run("fernhollow", "engineering", NIGHT)).find(OutcomeRecord)
    return record is not None


def test_two_nights_at_once_never_overlap(tmp_path: Path, project: Path, tiny_model: Path) -> None:
    ec1 = light_project(tmp_path, project, tiny_model)
    with Watcher(ec1.home.gpu_lock.resolve()) as watcher:
        statuses = two_at_once(ec1, random.Random(3), watcher)
    assert statuses == [0, 0]
    assert watcher.seen["engine"] and watcher.seen["trainer"], "the watcher saw nothing, so it proves nothing"
    assert watcher.overlaps == []
    assert settled(ec1)


@pytest.mark.soak
@pytest.mark.parametrize("who", ["engine", "trainer", "run"])
def test_after_kill_9_the_next_night_runs_without_help(
    tmp_path: Path, project: Path, tiny_model: Path, who: str
) -> None:
    ec1 = light_project(tmp_path, project, tiny_model)
    with Watcher(ec1.home.gpu_lock.resolve()) as watcher:
        assert kill_at_random(ec1, who, random.Random(who))
        if extracted := Records(ec1.home.night(NIGHT)).find(ExtractionRecord):
            assert extracted.seconds < 60, "an engine that is gone is not waited for"
        again = ec1.run("night", "--date", NIGHT)
    assert again.returncode == 0, again.stdout
    assert watcher.overlaps == []
    assert marked_processes(ec1.home.gpu_lock.resolve()) == []
    assert settled(ec1)


def test_ctrl_c_ends_everything_and_the_next_night_goes_on(tmp_path: Path, project: Path, tiny_model: Path) -> None:
    ec1 = light_project(tmp_path, project, tiny_model)
    with ec1.start("night", "--date", NIGHT, own_group=True) as night:
        while not victims(ec1, "trainer"):
            assert night.poll() is None, night.communicate()[0]
            time.sleep(0.1)
        os.killpg(night.pid, signal.SIGINT)
        output, _ = night.communicate(timeout=120)
    assert night.returncode == 128 + signal.SIGINT
    assert output.splitlines()[-1].startswith("interrupted: finished work is kept")
    assert marked_processes(ec1.home.gpu_lock.resolve()) == []
    assert ec1.run("night", "--date", NIGHT).returncode == 0
    assert settled(ec1)


def main(pairs: int) -> None:
    """Many pairs and kills on one home; prints a line for each and the sum."""
    checkout = Path(__file__).resolve().parents[2]
    sys.path.append(str(checkout / "tests"))
    from tiny_model import make_tiny_model

    small = checkout / ".ec1" / "models" / "HuggingFaceTB--SmolLM2-135M-Instruct" / "main"
    rng = random.Random(11)
    with tempfile.TemporaryDirectory() as folder:
        model = make_tiny_model(small, Path(folder) / "tiny")
        ec1 = light_project(Path(folder) / "project", checkout, model)
        with Watcher(ec1.home.gpu_lock.resolve()) as watcher:
            for number in range(pairs):
                began = time.monotonic()
                statuses = two_at_once(ec1, rng, watcher)
                print(f"pair {number + 1}: exit {statuses}, settled {settled(ec1)}, {time.monotonic() - began:.0f} s")
                wipe(ec1)
                who = ("engine", "trainer", "run")[number % 3]
                killed = kill_at_random(ec1, who, rng)
                after = ec1.run("night", "--date", NIGHT)
                print(f"  kill -9 of the {who}: {killed}; next night exit {after.returncode}, settled {settled(ec1)}")
                wipe(ec1)
                sys.stdout.flush()
        print(
            f"{watcher.samples} looks, engine seen {watcher.seen['engine']}, trainer seen {watcher.seen['trainer']} "
            f"times, overlaps: {len(watcher.overlaps)} {watcher.overlaps[:3]}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""What the dead worker of a run leaves behind."""

import os
import subprocess
import time
from collections.abc import Iterator

import psutil
import pytest

from jobs.mark import LIVING_RUN
from jobs.workers import end_leftovers

RUN = "0f9e8d7c"
STARTS_OTHERS = "for i in $(seq 2000); do sleep 300 & sleep 0.002; done"


def of_run(run: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(LIVING_RUN) == run:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def other() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(["sleep", "300"], env={**os.environ, LIVING_RUN: "another"}) as process:
        yield process
        process.kill()


def test_what_a_step_starts_while_one_looks_is_ended_too(
    other: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = psutil.process_iter

    def on_a_busy_machine() -> Iterator[psutil.Process]:
        found = list(listed())
        time.sleep(0.05)
        yield from found

    with subprocess.Popen(["bash", "-c", STARTS_OTHERS], env={**os.environ, LIVING_RUN: RUN}) as step:
        while len(of_run(RUN)) < 20:
            pass
        monkeypatch.setattr(psutil, "process_iter", on_a_busy_machine)
        ended = end_leftovers(RUN)
        step.wait()
    assert len(ended) >= 20 and of_run(RUN) == []
    assert other.poll() is None, "it is another run's"
    assert end_leftovers(RUN) == []

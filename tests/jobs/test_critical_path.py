"""The picture of a night: which step waited for which, what it did, and whose CPU seconds count."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.critical_path import CpuSampler, Stage, Step, _at, _stages, as_svg, critical_path
from ec1.launch.warm import ForkedProcess, environment_for, is_there

SERVE = (
    "import sys; from pathlib import Path; from ec1.launch.warm import serve; "
    "serve(Path(sys.argv[1]), int(sys.argv[2]), [], ['timeit'])"
)


def step(key: str, began: float, ended: float, *needs: str) -> Step:
    return Step(key, began, ended, set(needs), stages=[Stage("work", key, began, ended)])


def test_a_step_waited_for_what_it_needs_or_for_the_card() -> None:
    reading, handover = step("reading", 0, 50), step("handover", 51, 52, "reading")
    early = step("dataset", 0, 10)
    first = step("first__adapter_candidate", 53, 90, "handover", "dataset")
    second = step("second__adapter_candidate", 91, 120, "handover", "dataset")
    line = critical_path([reading, early, handover, first, second])
    # The second one was ready with the first: it waited until that gave the card back.
    assert [each.key for each in line] == [each.key for each in (reading, handover, first, second)]
    picture = as_svg([reading, early, handover, first, second], line, 120)
    assert picture.count('stroke="#b3261e"') == len(line) + 1, "each of the line, and the legend"


def test_what_a_step_told_divides_its_time() -> None:
    told = [(2.0, "[pipes] external process successfully opened dagster pipes."), (8.0, "loading a/b"), (9.0, "step 1")]
    told += [(11.0, "loaded in 3 s; 4 steps")]
    found = [(each.name, each.ended - each.began) for each in _stages(Step("x__adapter_candidate", 1, 20, set()), told)]
    assert found == [
        ("before", 1),
        ("libraries are imported", 6),
        ("model and rows are loaded", 3),
        ("training", 9),
    ]
    judged = _stages(Step("x__evaluation", 1, 20, set()), [told[0], (4.0, "loaded main and 1 adapters in 2.0 s")])
    assert [each.name for each in judged] == ["libraries are imported", "model is loaded", "scoring"]


def test_cpu_seconds_between_two_samples() -> None:
    samples = [(10.0, 1.0), (12.0, 3.0)]
    assert [_at(samples, at) for at in (9.0, 10.0, 11.0, 12.0, 99.0)] == [0, 1, 2, 3, 3]


@pytest.mark.slow
def test_what_is_forked_of_a_server_counts(tmp_path: Path) -> None:
    server = tmp_path / "s"
    # Its parent is gone at once, as that of a night's server.
    start = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SERVE!r}, *sys.argv[1:]])"
    env = environment_for(dict(os.environ))
    subprocess.run([sys.executable, "-c", start, str(server), str(os.getpid())], env=env, check=True)
    while not is_there(server):
        time.sleep(0.05)
    with (tmp_path / "log").open("wb") as log, CpuSampler(os.getpid(), server) as cpu:
        began = time.time()
        arguments = ["-n", "40000000", "-r", "3", "pass"]
        process = ForkedProcess(str(server), "timeit", arguments, 5, dict(os.environ), log.fileno())
        assert process.wait(120) == 0
        time.sleep(0.6)
    alone = cpu.of(process.pid, began, time.time(), forks=False)
    assert cpu.of(os.getpid(), began, time.time(), forks=True) > 0.3
    assert process.pid in cpu.forked and alone > 0.3, "its command is the warden's child"

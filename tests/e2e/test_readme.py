"""Every command of the README is run, on a home in which the README's first command was run."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import RealNight, wait_for_ui

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[2]
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
# These would run this very suite, or the benchmarks, inside it: what they would do is looked at instead.
DRY = {"make test", "make bench"}


def commands() -> list[str]:
    blocks = CONSOLE.findall((PROJECT / "README.md").read_text())
    lines = [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    return [line.split("  #")[0].split(" #")[0].strip() for line in lines]


def test_the_readme_has_commands() -> None:
    assert {"make night", "make ui", "make test"} <= set(commands())


@pytest.mark.parametrize("command", [each for each in commands() if each != "make ui"])
def test_command(command: str, real_night: RealNight) -> None:
    words = shlex.split(command)
    if words[0] == ".venv/bin/ec1":
        words = [sys.executable, "-m", "ec1.cli", *words[1:]]
    elif command in DRY:
        words.insert(1, "--dry-run")
    done = subprocess.run(
        words, cwd=PROJECT, env=real_night.ec1.environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_make_ui(real_night: RealNight) -> None:
    with subprocess.Popen(
        ["make", "ui"], cwd=PROJECT, env=real_night.ec1.environment, stdout=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            wait_for_ui(process, 3000)
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)

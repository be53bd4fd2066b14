"""Every command of the README is run, on a home in which the README's first command was run."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from commandline import RealNight, wait_for_ui
from page_commands import commands_of

pytestmark = pytest.mark.system
PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "README.md"
# These would run this very suite, the benchmarks, or the checks that `.ci/run` makes before it, inside it: what they
# would do is looked at instead.
DRY = {"make test", "make system", "make bench", "make lint"}
UNTIL_CTRL_C = {"make ui", ".venv/bin/ec1 serve"}


def test_the_readme_has_commands() -> None:
    assert {"make night", "make test", *UNTIL_CTRL_C} <= set(commands_of(PAGE))


@pytest.mark.parametrize("command", [each for each in commands_of(PAGE) if each not in UNTIL_CTRL_C])
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


@contextmanager
def until_ctrl_c(words: list[str], night: RealNight, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A command that runs until Ctrl-C; it must be gone a minute after that."""
    with (
        log.open("wb") as output,
        subprocess.Popen(
            words, cwd=PROJECT, env=night.ec1.environment, stdout=output, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise


def test_make_ui(real_night: RealNight, tmp_path: Path) -> None:
    with until_ctrl_c(["make", "ui"], real_night, tmp_path / "log") as process:
        wait_for_ui(process, 3000, tmp_path / "log")


def test_ec1_serve(real_night: RealNight, tmp_path: Path) -> None:
    with until_ctrl_c([*real_night.ec1.command, "serve"], real_night, tmp_path / "log") as process:
        deadline = time.monotonic() + 600
        while "\nserving\n" not in (tmp_path / "log").read_text():
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.5)
        question = {
            "model": "fernhollow/engineering",
            "messages": [{"role": "user", "content": "Good morning"}],
            "max_tokens": 8,
        }
        answer = httpx.post("http://127.0.0.1:8080/v1/chat/completions", json=question, timeout=120)
        assert answer.status_code == 200, answer.text
        assert answer.json()["model"] == "fernhollow/engineering@v1"

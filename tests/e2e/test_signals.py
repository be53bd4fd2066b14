"""What stops the command line when no terminal does."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from commandline import CommandLine, wait_for_ui

from ec1.home import Home


def started_from(home: Home) -> list[psutil.Process]:
    """Processes with that home in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("EC1_HOME") == str(home.root):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.slow
def test_a_termination_ends_the_ui_of_a_background_job(project: Path, tmp_path: Path) -> None:
    """A script's `make ui &` ignores interrupts, and so would all that it starts, terminations included."""
    ec1 = CommandLine(project, Home(tmp_path / "home"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, "-m", "ec1.cli", "ui", "--port", str(port)],
        cwd=project,
        env=ec1.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    ) as process:
        try:
            wait_for_ui(process, port)
            process.terminate()
            process.wait(60)
            psutil.wait_procs(started_from(ec1.home), timeout=30)
            assert started_from(ec1.home) == []
        finally:
            for left in started_from(ec1.home):
                left.kill()

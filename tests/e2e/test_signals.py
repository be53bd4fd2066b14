"""What stops the command line when no terminal does."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from commandline import CommandLine, wait_for_ui
from loopback_server import free_port

from ec1.home import Home


@pytest.mark.slow
def test_a_termination_ends_the_ui_of_a_background_job(project: Path, tmp_path: Path) -> None:
    """A script's `make ui &` ignores interrupts, and so would all that it starts, terminations included."""
    ec1 = CommandLine(project, Home(tmp_path / "home"))
    port = free_port()
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
            psutil.wait_procs(ec1.processes(), timeout=30)
            assert ec1.processes() == []
        finally:
            for left in ec1.processes():
                left.kill()

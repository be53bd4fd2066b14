"""`ec1` as a user runs it, and a home in which a real night was run."""

import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil

from ec1.home import Home


def wait_for_ui(process: "subprocess.Popen[bytes]", port: int, log: Path | None = None) -> None:
    """Wait until the Dagster UI that `process` starts answers; it must not end before."""
    deadline = time.monotonic() + 180
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=2) as answer:
                assert b"dagster_version" in answer.read()
            return
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text() if log else "no UI"
            time.sleep(0.5)


@dataclass(frozen=True)
class CommandLine:
    """`ec1` as a user runs it, on one home."""

    project: Path
    home: Home
    deployment: str = "embedded"

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "EC1_HOME": str(self.home.root), "EC1_DEPLOYMENT": self.deployment}

    def processes(self) -> list[psutil.Process]:
        """All that was started on this home, by anybody, and still runs."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("EC1_HOME") == str(self.home.root):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "ec1.cli"]

    def start(self, *arguments: str, own_group: bool = False, folder: Path | None = None) -> "subprocess.Popen[str]":
        """Start a command in a folder, by default the project's; with `own_group` a signal can be sent to all of it, as
        a terminal's Ctrl-C is."""
        return subprocess.Popen(
            [*self.command, *arguments],
            cwd=folder or self.project,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=own_group,
        )

    def run(self, *arguments: str, timeout: float = 2400) -> "subprocess.CompletedProcess[str]":
        with self.start(*arguments) as process:
            output, _ = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(arguments, process.returncode, output, "")


@dataclass(frozen=True)
class RealNight:
    """The command line on a home in which one real night was run, and what it printed."""

    ec1: CommandLine
    status: int
    output: str
    seconds: float
    night: str
    """Its date."""

    @property
    def home(self) -> Home:
        return self.ec1.home

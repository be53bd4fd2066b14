"""A child process that never outlives this one and leaves no processes behind (see `warden`)."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from ec1.launch import warden
from ec1.memory import GIB, ended_for_memory, usable_memory

# Weights are on disk before a child starts; nothing in it may ask a hub or report usage.
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TOKENIZERS_PARALLELISM": "false"}


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """What a child may inherit of an environment: all but what belongs to Dagster or chooses a deployment."""
    return {key: value for key, value in environment.items() if not key.startswith(("DAGSTER_", "EC1_"))}


def tail_of(log: Path, lines: int = 15) -> str:
    """The last lines of a log, for an error message; empty if there is none."""
    return last_lines(log.read_text(encoding="utf-8", errors="replace") if log.is_file() else "", lines)


def last_lines(text: str, lines: int = 15) -> str:
    """The end of what was printed."""
    return "\n".join(text.splitlines()[-lines:])


def ending_signal(status: int) -> int | None:
    """The signal that ended a command with this status, or its warden; None if it ended by itself."""
    return -status if status < 0 else status - 128 if status > 128 else None


def how_it_ended(status: int) -> str:
    """What became of a command with this status, in words: one that is killed leaves none of its own."""
    number = ending_signal(status)
    if number is None:
        return f"ended with status {status}"
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    if number != signal.SIGKILL:
        return f"was ended by {name}"
    return f"was killed ({name}; by the system, probably for memory: see `dmesg -T` and `free -h`)"


class SupervisedProcess:
    """A command under a warden, with its output in a log file.

    As a context manager it is stopped on the way out. If this process dies in any way, the command is stopped too.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        grace_seconds: float,
        cwd: Path | None = None,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._ended_before = ended_for_memory()
        self._grace_seconds = grace_seconds
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, warden.__file__, str(grace_seconds), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The warden's process id, which is also the id of the session."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, or None while it runs; 128 + n after signal n."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        return self._process.wait(timeout)

    def stop(self) -> int:
        """Interrupt, wait for the grace period, kill the process tree. Returns the exit status; idempotent."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            # The warden needs the grace period, and then only the time that the kernel takes to kill.
            return self._process.wait(self._grace_seconds + 30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def how_it_ended(self, when: str = "") -> str:
        """What became of it, in words. It may have ended because a process of its own was killed: so what the kernel
        did meanwhile is said, too."""
        told = how_it_ended(self.wait()) + when
        if ended_for_memory() == self._ended_before:
            return told
        allowed = usable_memory().total / GIB
        return f"{told}, and the kernel ended a process for lack of memory meanwhile ({allowed:.1f} GiB may be used)"

    def log_tail(self) -> str:
        """The last lines of the log, for an error message."""
        return tail_of(self.log)

    def __enter__(self) -> "SupervisedProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

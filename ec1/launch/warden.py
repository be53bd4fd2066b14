"""Runs one command, kills its process tree if its parent exits, and removes its temporary files.

`python warden.py GRACE_SECONDS COMMAND [ARG ...]`

A separate process between us and the command, because only another process survives our `kill -9`. It watches its
standard input, a pipe whose other end we hold: when that closes, because we asked or because we died, the command is
interrupted, given the grace period, and killed with everything that it started. Its exit status is the command's.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _kill_descendants() -> None:
    """Kill until none is left: a process may be born while its parent is being killed."""
    while family := psutil.Process().children(recursive=True):
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        # Orphans are ours to collect. The command itself has been, or its status would be lost here.
        psutil.wait_procs(family, timeout=1)


def main(grace_seconds: float, command: list[str]) -> int:
    """The command's exit status, 128 + n after signal n."""
    # What is killed removes nothing: a training would leave its rows, an engine its sockets.
    with tempfile.TemporaryDirectory(prefix="ec1-", ignore_cleanup_errors=True) as temporary:
        os.putenv("TMPDIR", temporary)
        return _supervise(grace_seconds, command)


def _supervise(grace_seconds: float, command: list[str]) -> int:
    # Orphaned grandchildren (an engine's workers) become ours instead of init's, so that they can be found.
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    stopping_reader, stopping_writer = os.pipe()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.write(stopping_writer, b"x"))
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=lambda: _prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    exited = os.pidfd_open(child.pid)
    try:
        ready, _, _ = select.select([exited, sys.stdin.fileno(), stopping_reader], [], [])
        if exited not in ready:
            os.killpg(child.pid, signal.SIGINT)
            ready, _, _ = select.select([exited], [], [], grace_seconds)
        if not ready:
            child.kill()
        status = child.wait()
    finally:
        _kill_descendants()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))

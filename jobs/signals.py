"""Which signal, or who, ended this process's run.

Belongs here: listening beside whatever handlers others install: Dagster exchanges them during a run, and all of its own
look alike. Does not: what follows from a signal.
"""

import os
import signal

_asked: list[str] = []
_pipe: list[int] = []


def listen() -> None:
    """Note signals from now on. Call it once, from the main thread; children do not inherit it."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    _pipe[:] = [reading, writing]
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)


def asked_by(whom: str) -> None:
    """Note that somebody asked for the end otherwise than by a signal."""
    _asked.append(whom)


def stopped_by() -> str | None:
    """Who or what ended the run: the first of `asked_by`, or the first signal's name. None if nothing did."""
    if not _pipe:
        return _asked[0] if _asked else None
    try:
        numbers = os.read(_pipe[0], 64)
    except BlockingIOError:
        numbers = b""
    _asked.extend(signal.Signals(each).name for each in numbers if each in (signal.SIGINT, signal.SIGTERM))
    return _asked[0] if _asked else None

"""What a training that a person started is doing, on standard error, for as long as it runs.

Belongs here: reading its log as it grows, and who has the card meanwhile. Does not: starting it.
"""

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ec1.commands.shell import printable

_LOOK_SECONDS = 0.5
_QUIET_SECONDS = 30.0
"""Between two lines where standard error is a file."""


@contextlib.contextmanager
def following(logs: Sequence[Path], held_by: Callable[[], str | None]) -> Iterator[None]:
    """Show the newest line of progress that comes to one of these logs, and until there is one who has the card.

    `held_by`: who holds the lease, in words, or None. On a terminal one line is written over and over.
    """
    ended = threading.Event()
    places = {log: log.stat().st_size if log.is_file() else 0 for log in logs}
    thread = threading.Thread(target=_follow, args=(places, held_by, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _follow(places: dict[Path, int], held_by: Callable[[], str | None], ended: threading.Event) -> None:
    terminal, said_at, begun, last = sys.stderr.isatty(), 0.0, False, ""
    while not ended.wait(_LOOK_SECONDS):
        line = ""
        for log, place in places.items():
            found, places[log] = _progress(log, place)
            line = found or line
        begun = begun or bool(line)
        if not begun and (holder := held_by()) is not None and f"process {os.getpid()}," not in holder:
            line = f"waits for the lease of {holder}"
        if not line or line == last or (not terminal and time.monotonic() - said_at < _QUIET_SECONDS and said_at):
            continue
        said_at, last = time.monotonic(), line
        shown = printable(line)
        sys.stderr.write(f"\r\x1b[K  {shown[: os.get_terminal_size(2).columns - 3]}" if terminal else f"  {shown}\n")
        sys.stderr.flush()
    if terminal and last:
        sys.stderr.write("\n")


def _progress(log: Path, place: int) -> tuple[str, int]:
    """The newest progress that a log holds after a place, and the place after its last whole line."""
    try:
        with log.open("rb") as stream:
            stream.seek(place)
            whole = stream.read().rpartition(b"\n")[0]
    except OSError:
        return "", place
    newest = ""
    for line in whole.splitlines():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            newest = str(json.loads(line).get("progress") or newest)
    return newest, place + (len(whole) + 1 if whole else 0)

"""One writer at a time for the live graph, by a lock that the kernel frees when its holder dies.

The database's own lock is not enough: it is dropped as soon as the process closes any descriptor of the file.
`flock` on a file beside it belongs to one open description, so it also keeps a second store in the same process out.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from ec1.errors import BusyError

_POLL_SECONDS = 0.05


@contextlib.contextmanager
def writer_lock(path: Path, wait_seconds: float) -> Iterator[None]:
    """Hold `path` exclusively, waiting up to `wait_seconds`. Raises BusyError that names the holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(descriptor, path, wait_seconds)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": round(time.time())}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, path: Path, wait_seconds: float) -> None:
    give_up = time.monotonic() + wait_seconds
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up:
                raise BusyError(
                    f"the graph's writer lock {path} is held by {_holder(descriptor)} and was not freed within "
                    f"{wait_seconds:g} s: wait for that night, or end that process"
                ) from None
        time.sleep(_POLL_SECONDS)


def _holder(descriptor: int) -> str:
    try:
        record = json.loads(os.pread(descriptor, 200, 0))
        return f"process {record['pid']} since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(record['since']))}"
    except (json.JSONDecodeError, KeyError, TypeError):
        return "another process"

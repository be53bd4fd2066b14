"""Reading a file that may change meanwhile: its hashes, or why it has none.

Belongs here: one file's bytes, and what may happen to them meanwhile. Does not: which files are read, and what follows
from the outcome (`scan.py`).
"""

import hashlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from ec1.documents.text import looks_binary

_PIECE = 2**20
_READ_ATTEMPTS = 3


class Unreadable(Exception):
    """A file cannot be a document; the message is the reason."""


class Unsteady(Exception):
    """A file cannot be read right now; the message is the reason."""


@dataclass(frozen=True)
class Content:
    """What a file held. `stat` was taken with the file open; `read_ns` is when reading began."""

    stat: os.stat_result
    sha256: str
    sha1: str
    binary: bool
    read_ns: int


def read_steadily(path: Path, found: os.stat_result, max_bytes: int) -> Content:
    """Hash a file that does not change meanwhile; `found` is its stat.

    Raises Unreadable, Unsteady, FileNotFoundError.
    """
    for _ in range(_READ_ATTEMPTS):
        if found.st_size > max_bytes:
            raise Unreadable(f"{found.st_size:,} bytes are more than documents.max_bytes ({max_bytes:,})")
        try:
            content = _hash_file(path, max_bytes)
            found = path.lstat()
        except FileNotFoundError:
            raise
        except PermissionError as error:
            raise Unreadable(f"unreadable: {error.strerror}") from None
        except OSError as error:
            # EIO, ESTALE and the like come from a disk or a mount in trouble: no verdict on the document.
            raise Unsteady(f"unreadable now: {error.strerror}") from None
        if content and _signature(content.stat) == _signature(found):
            return content
    raise Unsteady(f"changed while it was read, {_READ_ATTEMPTS} times")


def _signature(found: os.stat_result) -> tuple[int, int, int]:
    return (found.st_size, found.st_mtime_ns, found.st_ino)


def _hash_file(path: Path, max_bytes: int) -> Content | None:
    """Hash one regular file in pieces; None if it is longer or shorter than its size says."""
    read_ns = time.time_ns()
    sha256, sha1 = hashlib.sha256(), hashlib.sha1(usedforsecurity=False)
    # Not through a link that was put there meanwhile, and not waiting for the writer of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        found = os.fstat(descriptor)
        count, binary = 0, False
        while piece := stream.read(_PIECE):
            binary = binary or (not count and looks_binary(piece))
            sha256.update(piece)
            sha1.update(piece)
            count += len(piece)
            if count > max_bytes:
                return None
    if count != found.st_size:
        return None
    return Content(found, sha256.hexdigest(), sha1.hexdigest(), binary, read_ns)

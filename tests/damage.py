"""Damage to a file as a disk does it."""

import os
from pathlib import Path


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path, at: int | None = None) -> None:
    """Change one bit of a file, in its middle or in the byte `at`; its time stays, as nobody has written to it."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

"""What the machine refuses: rights, memory, and a disk that is full, read-only or failing. Told apart from damage,
which is what a disk changed.

Belongs here: the errors of the operating system and the words of libraries that mean them, the advice for each, and a
probe that writes. Does not: what follows from damage (`seals.py`, `graph/`).

A library's text is not enough: SQLite says "disk I/O error" on a full disk, and LadybugDB "Cannot write to file" with
whatever error number came last. So whoever has such an error asks the disk itself (`refusal_of`).
"""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

DISK = {
    errno.ENOSPC: "the disk is full: free some space (`ec1 doctor` says how much is needed), then run the night again",
    errno.EDQUOT: "the disk quota is used up: free some space, then run the night again",
    errno.EROFS: "the file system is read-only: mount it writable, or choose another home with EC1_HOME",
    errno.EIO: "the disk fails: look at `dmesg`, copy what lies on it to another one, then run the night again",
}
"""What to do, by error number. None of it touches what is on the disk."""
ADVICE = {
    **DISK,
    errno.EACCES: "EC1 may not write or read there: give the home to the user that runs the night",
    errno.EPERM: "EC1 may not write or read there: give the home to the user that runs the night",
    errno.ENAMETOOLONG: "that path is too long for this file system: choose a home with a shorter path (EC1_HOME)",
    errno.ESTALE: "the share went away: mount it again, then run the night again",
    errno.ENOTCONN: "the share went away: mount it again, then run the night again",
    errno.EMFILE: "too many files are open: raise `ulimit -n`",
    errno.ENOMEM: "the machine has no memory left: stop what else runs on it, or make the batch smaller",
    errno.EEXIST: "a file is in the way of a folder: move it, or choose another home with EC1_HOME",
    errno.ENOTDIR: "a file is in the way of a folder: move it, or choose another home with EC1_HOME",
}
"""The same with what is not the disk's."""
PROBE_BYTES = 64 * 2**10
LITTLE_BYTES = 2**20
_PATTERNS = (
    (re.compile(r"database or disk is full|No space left on device", re.IGNORECASE), errno.ENOSPC),
    (re.compile(r"Disk quota exceeded", re.IGNORECASE), errno.EDQUOT),
    (re.compile(r"attempt to write a readonly database|Read-only file system", re.IGNORECASE), errno.EROFS),
    (re.compile(r"disk I/O error|Input/output error", re.IGNORECASE), errno.EIO),
)
_UNNUMBERED = re.compile(r"IO exception: (?:Cannot write|Cannot flush|Cannot truncate|Failed to)", re.IGNORECASE)
"""LadybugDB's words for a write that did not succeed; the error number behind them is often another one's."""


def meant_by(text: str) -> int | None:
    """The number of the disk's error that a message names, or None if it is about something else."""
    if found := re.search(r"\[Errno (\d+)\]", text):
        return int(found[1]) if int(found[1]) in DISK else None
    return next((code for seen, code in _PATTERNS if seen.search(text)), None)


def refuses(text: str, folder: Path) -> str | None:
    """Why the disk under `folder` refused what a library's message is about, with what to do; None if the message is
    about something else."""
    code = meant_by(text)
    if code is None and not _UNNUMBERED.search(text):
        return None
    if (asked := refusal_of(folder)) is not None:
        # It knows better than the text.
        return f"{folder}: {advice_of(asked)}"
    if code == errno.EIO and free_bytes(folder) < LITTLE_BYTES:
        # A full disk, on which the room for what was not written is free again.
        code = errno.ENOSPC
    return f"{folder}: {DISK[code]}" if code else f"{folder}: the disk did not take what was written; run it again"


def advice_of(error: OSError) -> str:
    """One of the disk's errors in words, with what to do."""
    return ADVICE.get(error.errno or 0, error.strerror or str(error))


def advice_for(error: OSError) -> str:
    """An error of the operating system as one line: what, where, what to do."""
    what = f"{os.strerror(error.errno)}" if error.errno else str(error)
    where = f": {str(error.filename)[:200]}" if error.filename else ""
    advice = ADVICE.get(error.errno or 0)
    return f"{what}{where}; {advice}" if advice else f"{what}{where}"


def refusal_of(folder: Path) -> OSError | None:
    """The error with which the disk under a folder refuses a small file now, or None. Leaves nothing."""
    existing = _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=existing, buffering=0) as stream:
            stream.write(bytes(PROBE_BYTES))
            os.fsync(stream.fileno())
    except OSError as error:
        error.filename = str(existing)
        return error
    return None


def is_shown_to_others(folder: Path) -> bool:
    """Whether others may read what this process makes for itself alone there: a file system without permissions, as
    shares often are, gives each file the rights that it was mounted with. Leaves nothing."""
    with tempfile.TemporaryFile(dir=_existing(folder)) as stream:
        seen = os.fstat(stream.fileno())
    return bool(seen.st_mode & 0o077) and seen.st_uid == os.getuid()


def disks_of(folders: Iterable[Path]) -> list[Path]:
    """One folder of each file system that the folders are on, of those that exist."""
    found: dict[int, Path] = {}
    for folder in folders:
        if folder.exists():
            found.setdefault(folder.stat().st_dev, folder)
    return list(found.values())


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written below a folder, which need not exist yet."""
    return shutil.disk_usage(_existing(folder)).free


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists; a path that is too long does not."""
    return next(path for path in (folder, *folder.parents) if os.path.exists(path))  # noqa: PTH110  Path.exists raises

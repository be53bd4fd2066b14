"""What a database file held when it was closed last, so that a bit that a disk has changed since is noticed.

Belongs here: the note `<file>.seal` and its comparison. Does not: what follows from damage (`database.py`).

The note holds size, time of the last change and XXH3, and of a published copy the state that it is of. Of a file that
was written since, by a crash or by somebody else, it says nothing. A disk means no harm: a fast checksum of 128 bits,
of a file that every night reads twice, notices what SHA-256 notices.
"""

import hashlib
from pathlib import Path

import xxhash

from ec1.errors import InputError
from ec1.files import read_json, write_json

SUFFIX = ".seal"
_CHECKSUM = "xxh3_128"


def seal(path: Path) -> None:
    """Note what a closed file holds; one that did not change since the last note is not read."""
    if not is_current(path):
        _write(path, _checksum(path))


def seal_copy(copy: Path, original: Path, state: str) -> None:
    """Note what a closed file holds, and that a copy of it, of this state, holds the same: a copy that does not is
    noticed as damaged."""
    seal(original)
    note = _read(original)
    _write(copy, str(note and note[_CHECKSUM]), state)


def _write(path: Path, checksum: str, state: str | None = None) -> None:
    status = path.stat()
    note = {"bytes": status.st_size, "changed_ns": status.st_mtime_ns, _CHECKSUM: checksum}
    write_json(_note(path), note | ({"state": state} if state is not None else {}))


def state_of(path: Path) -> str | None:
    """The state that was noted of a file; None if none was, or the file was written since."""
    note = _read(path) if is_current(path) else None
    state = None if note is None else note.get("state")
    return state if isinstance(state, str) else None


def is_current(path: Path) -> bool:
    """Whether the note is of the file as it was written last."""
    note = _read(path)
    return (
        note is not None and _CHECKSUM in note and path.exists() and path.stat().st_mtime_ns == note.get("changed_ns")
    )


def is_damaged(path: Path) -> bool:
    """Whether a file is not as it was written. False where nothing is known. It must not be open in this process."""
    note = _read(path)
    if note is None or not is_current(path):
        return False
    return path.stat().st_size != note.get("bytes") or _checksum(path) != note[_CHECKSUM]


def _checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, xxhash.xxh3_128).hexdigest()


def _note(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _read(path: Path) -> dict[str, object] | None:
    try:
        note = read_json(_note(path))
    except (FileNotFoundError, InputError):
        # A damaged note is as good as none.
        return None
    return note if isinstance(note, dict) else None

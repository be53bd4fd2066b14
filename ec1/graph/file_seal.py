"""What a database file held when it was closed last, so that a bit that a disk has changed since is noticed.

Belongs here: the note `<file>.seal` and its comparison. Does not: what follows from damage (`database.py`).

The note holds size, time of the last change and SHA-256, and of a published copy the state that it is of. Of a file
that was written since, by a crash or by somebody else, it says nothing.
"""

from pathlib import Path

from ec1.errors import InputError
from ec1.files import read_json, sha256_file, write_json

SUFFIX = ".seal"


def seal(path: Path) -> None:
    """Note what a closed file holds; one that did not change since the last note is not read."""
    if not is_current(path):
        _write(path, sha256_file(path))


def seal_copy(copy: Path, original: Path, state: str) -> None:
    """Note what a closed file holds, and that a copy of it, of this state, holds the same: a copy that does not is
    noticed as damaged."""
    seal(original)
    note = _read(original)
    _write(copy, str(note and note["sha256"]), state)


def _write(path: Path, sha256: str, state: str | None = None) -> None:
    status = path.stat()
    note = {"bytes": status.st_size, "changed_ns": status.st_mtime_ns, "sha256": sha256}
    write_json(_note(path), note | ({"state": state} if state is not None else {}))


def state_of(path: Path) -> str | None:
    """The state that was noted of a file; None if none was, or the file was written since."""
    note = _read(path) if is_current(path) else None
    state = None if note is None else note.get("state")
    return state if isinstance(state, str) else None


def is_current(path: Path) -> bool:
    """Whether the note is of the file as it was written last."""
    note = _read(path)
    return note is not None and path.exists() and path.stat().st_mtime_ns == note.get("changed_ns")


def is_damaged(path: Path) -> bool:
    """Whether a file is not as it was written. False where nothing is known. It must not be open in this process."""
    note = _read(path)
    if note is None or not is_current(path):
        return False
    return path.stat().st_size != note.get("bytes") or sha256_file(path) != note.get("sha256")


def _note(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _read(path: Path) -> dict[str, object] | None:
    try:
        note = read_json(_note(path))
    except (FileNotFoundError, InputError):
        # A damaged note is as good as none.
        return None
    return note if isinstance(note, dict) else None

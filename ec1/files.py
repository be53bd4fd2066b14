"""Files that are never seen half-written, and names from outside that never become paths unchecked."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ec1.errors import InputError

_NAME = re.compile(r"[a-z0-9-]{1,64}")


def checked_name(value: str, what: str) -> str:
    """Return `value` if it may become a path part (`[a-z0-9-]{1,64}`).

    Raises InputError otherwise.
    """
    if not _NAME.fullmatch(value):
        raise InputError(f"{what} {value!r} is not a valid name: use 1 to 64 of a-z, 0-9 and '-'")
    return value


def inside(root: Path, relative: str) -> Path:
    """Join `relative` below `root`, after symbolic links are resolved. Raises InputError if it leads outside."""
    path = (root / relative).resolve()
    if not path.is_relative_to(root.resolve()):
        raise InputError(f"{relative!r} leads outside {root}")
    return path


def canonical_json(value: Any) -> bytes:
    """Encode `value` so that equal values give equal bytes: sorted keys, no spaces, UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fsync_dir(path: Path) -> None:
    """Make a rename inside `path` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a file in one step: temporary name, fsync, rename. A reader sees the old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data.encode() if isinstance(data, str) else data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    fsync_dir(path.parent)


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of indented, key-sorted JSON."""
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises InputError that names the file if it does not parse."""
    try:
        return json.loads(path.read_bytes())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not valid JSON: {error}") from None


@contextlib.contextmanager
def staged_directory(final: Path) -> Iterator[Path]:
    """Yield an empty directory beside `final`; on success it is flushed and renamed to `final`, else it is removed.

    If `final` appeared meanwhile (somebody else built the same thing) theirs is kept: callers use names that are
    derived from the content, so both hold the same.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{final.name}."))
    try:
        yield staging
        for path in staging.rglob("*"):
            if path.is_file():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
        staging.chmod(0o755)
        with contextlib.suppress(OSError):
            staging.rename(final)
        if not final.is_dir():
            raise NotADirectoryError(f"{final} is in the way of a directory")
        fsync_dir(final.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)

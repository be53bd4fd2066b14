"""Files that are never seen half-written, and names from outside that never become paths unchecked."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ec1.errors import InputError

_NAME = re.compile(r"[a-z0-9-]{1,64}")
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EMLINK}
"""How a file system without hard links refuses one: shares of other systems, buckets that are mounted, exFAT."""
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


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


def encodes(text: str) -> bool:
    """Whether a text can be written as UTF-8: it cannot with half of a surrogate pair in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def canonical_json(value: Any) -> bytes:
    """Encode `value` so that equal values give equal bytes: sorted keys, no spaces, UTF-8."""
    return _CANONICAL.encode(value).encode()


def digest_of(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def sha256_file(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes, read in pieces."""
    with naming(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Have errors of reading name the file, which only those of opening do."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def fsync_dir(path: Path) -> None:
    """Make a rename inside `path` survive a power cut, on a file system that can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # How shared folders of virtual machines, and others, say that they flush no folders.
        if error.errno not in {errno.EINVAL, errno.EBADF, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def atomic_file(
    path: Path, *, exclusive: bool = False, keep_equal: bool = False, prefix: str | None = None
) -> Iterator[Path]:
    """Yield an empty file beside `path`; on success its bytes are flushed and it becomes `path` in one step.

    A reader sees the old content or the new; if the block raises, the file is removed and `path` stays as it was.
    Permissions follow the umask. The temporary name is hidden and starts with `prefix`, by default `.<name>.`. With
    `exclusive`, raises FileExistsError if `path` exists by then; with `keep_equal`, a file that holds the same bytes
    already stays as it is, its time stamp included.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f"{prefix or f'.{path.name}.'}{secrets.token_hex(4)}"
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    try:
        yield temporary
        with temporary.open("rb") as stream:
            os.fsync(stream.fileno())
        if keep_equal and path.is_file() and sha256_file(path) == sha256_file(temporary):
            return
        if exclusive:
            _appear(temporary, path)
        else:
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync_dir(path.parent)


def _appear(temporary: Path, path: Path) -> None:
    """Give a file its name. Raises FileExistsError if the name is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # All who name a file here come this way: one after the other, none overwrites another's.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
            temporary.replace(path)
        finally:
            os.close(folder)


def link_or_copy(source: Path, target: Path) -> None:
    """Have a file, which nobody changes, under a second name. Raises OSError."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        # A file system without hard links, or another one: the copy costs time and room, nothing else.
        shutil.copyfile(source, target)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Write a whole file in one step, see `atomic_file`."""
    with atomic_file(path) as temporary:
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)


def write_unflushed(path: Path, data: bytes) -> None:
    """Write a whole file of a cache in one step, without waiting for the disk. After a power cut it may hold less than
    that, or zeros: whoever reads it must be able to tell."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        try:
            temporary.write_bytes(data)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """`write_atomic` of indented, key-sorted JSON."""
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Read a JSON file. Raises InputError that names the file if it does not parse, OSError that does if it cannot be
    read."""
    try:
        with naming(path):
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
    staging = final.parent / f".{final.name}.{secrets.token_hex(4)}"
    staging.mkdir()
    try:
        yield staging
        for path in staging.rglob("*"):
            if path.is_file():
                with path.open("rb") as stream:
                    os.fsync(stream.fileno())
        with contextlib.suppress(OSError):
            staging.rename(final)
        if not final.is_dir():
            raise NotADirectoryError(f"{final} is in the way of a directory")
        fsync_dir(final.parent)
    finally:
        shutil.rmtree(staging, ignore_errors=True)

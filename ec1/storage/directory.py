"""An object store in a directory: a key is a path, and what can be seen is always complete.

Files are written under a temporary name beside their place, flushed, and renamed or linked. Symbolic links are
neither followed nor listed. One limit that a bucket does not have: `a` and `a/b` cannot both be objects.
"""

import contextlib
import datetime as dt
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from ec1.errors import DiskError, InputError, ServiceError
from ec1.files import atomic_file, fsync_dir, inside, sha256_file
from ec1.refused import DISK
from ec1.storage.store import TEMPORARY, AlreadyExists, NotFound, ObjectInfo, checked_key

_PIECE = 1 << 20
_LEFTOVER_SECONDS = 24 * 3600


class DirectoryStore:
    """`ObjectStore` below `root`, which is made when first written to."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> None:
        with path.open("rb") as source:
            self._put(key, source, if_absent)

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        self._put(key, data, if_absent)

    def put_folder(self, prefix: str, files: Mapping[str, Path], *, seal: str, claim: str) -> None:
        if seal not in files:
            raise ValueError(f"the seal {seal!r} is not among the files")
        final = self._path(prefix)
        with _errors(prefix):
            final.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(final.parent)
            staging = Path(tempfile.mkdtemp(dir=final.parent, prefix=TEMPORARY))
            try:
                for name, path in files.items():
                    target = staging / checked_key(name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with path.open("rb") as source, target.open("xb") as copy:
                        digest = _copy(source, copy)
                    if sha256_file(target) != digest:
                        raise ServiceError(f"{target} does not hold what was written to it: check the disk")
                for folder in (staging, *(path for path in staging.rglob("*") if path.is_dir())):
                    fsync_dir(folder)
                staging.chmod(0o755)
                try:
                    # The rename decides a race: a directory that holds something is never replaced.
                    staging.rename(final)
                except OSError as error:
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        raise AlreadyExists(f"{prefix} is already in {self.root}") from None
                    raise
                fsync_dir(final.parent)
            finally:
                shutil.rmtree(staging, ignore_errors=True)

    def get_bytes(self, key: str) -> bytes:
        with _errors(key):
            return self._file(key).read_bytes()

    def get_file(self, key: str, path: Path) -> None:
        with _errors(key), self._file(key).open("rb") as source:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, source, if_absent=False)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        if prefix:
            checked_key(prefix.removesuffix("/"))
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self.root
        for path, status in _walk(start):
            key = path.relative_to(start).as_posix()
            key = f"{folder}/{key}" if folder else key
            if key.startswith(prefix):
                yield ObjectInfo(key, status.st_size, dt.datetime.fromtimestamp(status.st_mtime, dt.UTC))

    def exists(self, key: str) -> bool:
        path = self._path(key)
        return path.is_file() and not path.is_symlink()

    def delete(self, key: str) -> None:
        path = self._path(key)
        if not path.is_dir():
            path.unlink(missing_ok=True)

    def rename(self, source: str, destination: str) -> None:
        # A plain rename, which outside workers use too: the source vanishes once, so only one caller can win.
        # (A hard link would not do: renaming one link of a file to another link of it succeeds and does nothing.)
        old, new = self._path(source), self._path(destination)
        with _errors(source):
            if not self.exists(source):
                raise FileNotFoundError(source)
            if new.exists():
                raise AlreadyExists(f"{destination} is already in {self.root}")
            new.parent.mkdir(parents=True, exist_ok=True)
            old.rename(new)
            fsync_dir(new.parent)

    def _put(self, key: str, source: BinaryIO | bytes, if_absent: bool) -> None:
        path = self._path(key)
        with _errors(key):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, source, if_absent)

    def _path(self, key: str) -> Path:
        """Where a key lies. The parent is resolved and must be below the root; the file itself may not be a link."""
        parent, _, name = checked_key(key).rpartition("/")
        return inside(self.root, parent) / name

    def _file(self, key: str) -> Path:
        path = self._path(key)
        if path.is_symlink() or path.is_dir():
            raise FileNotFoundError(key)
        return path


@contextlib.contextmanager
def _errors(key: str) -> Iterator[None]:
    """Turn the operating system's errors into the store's."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"nothing is stored as {key}") from None
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"{key} cannot be stored: {error.filename} is in the way") from None
    except OSError as error:
        kind = DiskError if error.errno in DISK else ServiceError
        raise kind(f"{key}: {error.strerror} ({error.filename})") from None


def _write(path: Path, source: BinaryIO | bytes, if_absent: bool) -> None:
    try:
        with atomic_file(path, exclusive=if_absent, prefix=TEMPORARY) as temporary, temporary.open("wb") as target:
            if isinstance(source, bytes):
                target.write(source)
            else:
                _copy(source, target)
    except FileExistsError as error:
        if not if_absent or not path.is_file():
            raise
        raise AlreadyExists(f"{path} already exists") from error


def _copy(source: BinaryIO, target: BinaryIO) -> str:
    """Copy and flush to the disk; return the SHA-256 of what was read."""
    digest = hashlib.sha256()
    while piece := source.read(_PIECE):
        digest.update(piece)
        target.write(piece)
    _flush(target)
    return digest.hexdigest()


def _flush(target: BinaryIO) -> None:
    target.flush()
    os.fsync(target.fileno())


def _walk(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """All files below, in the byte order of their keys; a directory sorts as its name with a slash."""
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not entry.name.startswith(TEMPORARY) and not entry.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in sorted(found, key=lambda item: os.fsencode(item.name + ("/" if item.is_dir() else ""))):
        if entry.is_dir():
            yield from _walk(Path(entry.path))
        elif entry.is_file():
            # A file may be deleted between the listing and the look at it: then it is not there.
            with contextlib.suppress(FileNotFoundError):
                yield Path(entry.path), entry.stat(follow_symlinks=False)


def _remove_leftovers(folder: Path) -> None:
    """Remove what writers that died left here long ago."""
    for path in folder.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_mtime < time.time() - _LEFTOVER_SECONDS:
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

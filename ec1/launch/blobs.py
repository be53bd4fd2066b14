"""Files that travel through a store under the SHA-256 of their bytes, `work/blobs/<aa>/<sha256>`.

So a file that is there is not sent again (incremental), what was cut off goes on with the next file (resumable), and
whoever receives one checks it. Belongs here: listing, sending and receiving. Does not: what the files are for.
"""

import os
import shutil
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from ec1.errors import InputError, ServiceError
from ec1.files import atomic_file, inside, link_or_copy, sha256_file
from ec1.settings import Settings
from ec1.storage.store import NotFound, ObjectStore, checked_key

PREFIX = "work/blobs/"
_AT_ONCE = 4


class Blob(Settings):
    """One file's bytes."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=0)

    def key(self, prefix: str = PREFIX) -> str:
        """Where it lies among others."""
        return f"{prefix}{self.sha256[:2]}/{self.sha256}"


def _checked(path: str) -> str:
    try:
        return checked_key(path)
    except InputError as error:
        raise ValueError(str(error)) from None


def _one_part(value: str) -> str:
    if "/" in value:
        raise ValueError(f"{value!r} is not one name")
    return _checked(value)


PathPart = Annotated[str, AfterValidator(_one_part)]
"""A name that may become one part of a path."""


class Tree(Settings):
    """A folder's files by their relative paths, or one file, whose path is empty. `name` is what it is called."""

    name: PathPart
    files: dict[str, Blob]

    @field_validator("files")
    @classmethod
    def _paths_stay_below(cls, value: dict[str, Blob]) -> dict[str, Blob]:
        if "" in value and len(value) > 1:
            raise ValueError("a file cannot be a folder too")
        for path in value:
            if path:
                _checked(path)
        return value


def tree_of(path: Path, leave: Collection[str] = ()) -> Tree:
    """What lies at `path` now, but for the names of `leave` at its top. Raises InputError if nothing is there."""
    if path.is_file():
        return Tree(name=path.name, files={"": _blob_of(path)})
    if not path.is_dir():
        raise InputError(f"{path} does not exist")
    found = sorted(each for each in path.rglob("*") if each.is_file())
    files = {each.relative_to(path).as_posix(): each for each in found}
    return Tree(
        name=path.name, files={name: _blob_of(each) for name, each in files.items() if name.split("/")[0] not in leave}
    )


def _blob_of(path: Path) -> Blob:
    return Blob(sha256=sha256_file(path), size=path.stat().st_size)


def send(store: ObjectStore, path: Path, tree: Tree, prefix: str = PREFIX) -> int:
    """Put the files of a tree into the store. Returns how many bytes were not there yet."""

    def one(item: tuple[str, Blob]) -> int:
        name, blob = item
        if store.exists(blob.key(prefix)):
            return 0
        store.put_file(blob.key(prefix), path / name if name else path)
        return blob.size

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return sum(pool.map(one, tree.files.items()))


def receive(store: ObjectStore, tree: Tree, path: Path, cache: Path) -> None:
    """Make `path` hold the tree, by way of `cache`, where each file is checked and stays for the next time.

    Files are hard links to the cache and read-only, or copies; others that lie in `path` are removed. Raises
    ServiceError for a file that is gone from the store or damaged there.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda blob: _cached(store, blob, cache), tree.files.values()))
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True) if path.is_file() else None
    for name, blob in tree.files.items():
        target = inside(path, name) if name else path
        target.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(cache / blob.sha256, target)
    if "" not in tree.files:
        path.mkdir(parents=True, exist_ok=True)


def _cached(store: ObjectStore, blob: Blob, cache: Path) -> None:
    file = cache / blob.sha256
    if file.is_file() and file.stat().st_size == blob.size:
        # What is used is not removed by a clean-up.
        os.utime(file)
        return
    fetch(store, blob, file)
    file.chmod(0o444)


def fetch(store: ObjectStore, blob: Blob, path: Path, prefix: str = PREFIX) -> None:
    """Write a blob to `path` in one step. Raises ServiceError if it is gone or damaged; a damaged one is removed."""
    key = blob.key(prefix)
    try:
        with atomic_file(path) as temporary:
            store.get_file(key, temporary)
            if sha256_file(temporary) != blob.sha256:
                store.delete(key)
                raise ServiceError(f"{key} was damaged and is removed: ask again, and it is sent again")
    except NotFound:
        raise ServiceError(f"{key} is gone from the store: ask again, and it is sent again") from None


def fetch_all(store: ObjectStore, tree: Tree, path: Path, last: Collection[str], prefix: str) -> None:
    """Put the files of a tree into the folder `path` (or at `path`, for a file), those named `last` after all others.

    They are fetched and checked beside it first, so it is touched only when all are here.
    """
    staging = path.parent / f".{path.name}.received"
    shutil.rmtree(staging, ignore_errors=True)
    names = dict(enumerate(sorted(tree.files, key=lambda name: (name in last, name))))
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda each: fetch(store, tree.files[each[1]], staging / str(each[0]), prefix), names.items()))
    for number, name in names.items():
        target = inside(path, name) if name else path
        target.parent.mkdir(parents=True, exist_ok=True)
        (staging / str(number)).replace(target)
    shutil.rmtree(staging, ignore_errors=True)


def total(trees: Mapping[str, Tree] | Collection[Tree]) -> int:
    """Bytes of all files."""
    each = trees.values() if isinstance(trees, Mapping) else trees
    return sum(blob.size for tree in each for blob in tree.files.values())

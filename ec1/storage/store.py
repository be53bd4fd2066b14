"""The object store: named bytes, in a directory or in a bucket, behind one interface.

Belongs here: the interface, what its keys may look like, its errors, and the choice of a store by the deployment.
Does not: what is stored (that is `ec1/adapters/`) and how each store does it (`directory.py`, `gcs.py`, `s3.py`).
"""

import datetime as dt
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ec1.errors import EC1Error, InputError

TEMPORARY = ".ec1-tmp-"
"""Names that begin so are work in progress: never listed, refused as keys."""


class AlreadyExists(EC1Error):
    """Something else is already stored under that key, and it was to be written only if there was nothing."""


class NotFound(EC1Error):
    """Nothing is stored under that key."""


@dataclass(frozen=True)
class ObjectInfo:
    """One stored object: its key, its size in bytes, and when it was last written (aware, UTC).

    `version` is another one when the bytes are; "" where the store keeps none, and time and size stand for it.
    """

    key: str
    size: int
    updated: dt.datetime
    version: str = ""


class ObjectStore(Protocol):
    """Named bytes. An object is seen whole or not at all, and an object that was written is seen by every later call.

    Keys are relative paths with forward slashes (`checked_key`). Every call may raise ServiceError when the store
    cannot be reached, DiskError when its disk is full, read-only or failing, and InputError for a bad key.
    """

    def put_file(self, key: str, path: Path, *, if_absent: bool = False) -> None:
        """Store a file's bytes. Raises AlreadyExists if `if_absent` and there is such an object."""
        ...

    def put_bytes(self, key: str, data: bytes, *, if_absent: bool = False) -> None:
        """Store bytes. Raises AlreadyExists if `if_absent` and there is such an object."""
        ...

    def put_folder(self, prefix: str, files: Mapping[str, Path], *, seal: str, claim: str) -> None:
        """Make the folder `<prefix>/` appear at once with `files` (name -> local file), or not at all.

        The folder exists when its `seal`, the name of one of the files, exists; so that is what a reader looks for.
        `claim` identifies the content: a call that was cut off is completed by a later one with the same claim.
        Raises AlreadyExists if the folder exists, or is claimed for other content.
        """
        ...

    def get_bytes(self, key: str) -> bytes:
        """The bytes of an object. Raises NotFound."""
        ...

    def get_file(self, key: str, path: Path) -> None:
        """Write an object to a local file, in one step. Raises NotFound."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """All objects whose key begins with `prefix` (any string), in the byte order of their keys."""
        ...

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; does nothing if there is none."""
        ...

    def rename(self, source: str, destination: str) -> None:
        """Give an object another key. Of several callers that rename one source to one destination, one succeeds.

        Raises NotFound if the source is not (or no longer) there, AlreadyExists if the destination is taken. In a
        bucket a caller that dies on the way may leave both; the destination counts.
        """
        ...


def checked_key(key: str) -> str:
    """Return `key` if it may be stored: relative, forward slashes, no `..`, no control character.

    Raises InputError otherwise.
    """
    if not key or len(key.encode("utf-8", "surrogatepass")) > 1024:
        raise InputError(f"{key[:80]!r} is not a key: use 1 to 1024 bytes")
    if "\\" in key or any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in key):
        raise InputError(f"{key!r} is not a key: backslashes, control characters and lone surrogates are refused")
    for part in key.split("/"):
        if part in ("", ".", "..") or part.startswith(TEMPORARY) or len(part.encode()) > 200:
            raise InputError(f"{key!r} is not a key: the part {part[:80]!r} is refused; use a relative path of names")
    return key

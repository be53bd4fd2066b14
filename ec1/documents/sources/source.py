"""What is not a folder of files and has documents in it: a list of them with their versions, and the bytes of each.

Belongs here: the seam, and how a name from outside becomes a path. Does not: the sources themselves (their own files),
keeping copies of what they hold (`copies.py`), and reading a folder of files, which is `ec1.documents.scan`'s: what a
source holds is copied to such a folder first.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ec1.streams import is_hidden

_PART_BYTES = 200
_PATH_BYTES = 2000
# What a file system or a terminal may take for something else, and the escape itself.
_ESCAPED = re.compile("[\x00-\x1f\x7f-\x9f%\\\\\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Item:
    """One document of a source. `name` is the source's own, with forward slashes, and is not to be trusted; `version`
    is another one when the bytes are. `size` in bytes where it is known without reading.

    `read` may raise RejectedError (this one cannot be read), FileNotFoundError (it is gone meanwhile), or what says
    that the whole source cannot be read now (DeferredError, ServiceError).
    """

    name: str
    version: str
    modified_ns: int
    read: Callable[[], bytes]
    size: int | None = None


class Source(Protocol):
    """Something that holds documents."""

    def items(self) -> Iterator[Item]:
        """All of them. Raises DeferredError or ServiceError unless the list is complete: what it does not show counts
        as deleted."""
        ...


def places(items: Iterable[Item]) -> dict[str, Item]:
    """Each item by the relative path that its copy has: no path leads out of a folder, none is two items', and none
    is a file for one item and a folder for another."""
    found: dict[str, Item] = {}
    for item in sorted(items, key=lambda each: (each.name, each.version)):
        path, again = place(item.name), 1
        while path in found:
            again += 1
            path = _distinct(place(item.name), f"{item.name}\0{again}")
        found[path] = item
    return {_beside_files(path, found): item for path, item in found.items()}


def place(name: str) -> str:
    """A name from outside as a relative path: `../a//b.pdf` is `%2E%2E/a/b.pdf`."""
    text = name.encode("utf-8", "backslashreplace").decode().replace("\\", "/")
    parts = [_part(part) for part in text.split("/") if part not in ("", ".")]
    path = "/".join(parts) or "%"
    return path if len(path.encode()) <= _PATH_BYTES else _distinct(_part(parts[-1]), name)


def has_hidden_part(name: str) -> bool:
    """Whether a part of a name is hidden, and so is not a document, as in a folder."""
    return any(is_hidden(part) and part.strip(".") for part in name.replace("\\", "/").split("/"))


def _part(part: str) -> str:
    part = _ESCAPED.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), part)
    if not part.strip("."):
        part = part.replace(".", "%2E")
    return part if len(part.encode()) <= _PART_BYTES else _distinct(part, part)


def _distinct(path: str, name: str) -> str:
    """A path like this one, and of this name alone: its end is kept, since the suffix says what a file is."""
    folder, slash, last = path.rpartition("/")
    stem, dot, suffix = last.rpartition(".")
    if not dot or len(suffix) > 10:
        stem, dot, suffix = last, "", ""
    short = stem.encode()[: _PART_BYTES - 40].decode(errors="ignore")
    mark = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    return f"{folder}{slash}{short}~{mark}{dot}{suffix}"


def _beside_files(path: str, files: dict[str, Item]) -> str:
    """The path, with `~` after each of its folders that is the path of a file: a file and a folder cannot share one."""
    parts = path.split("/")
    for end in range(1, len(parts)):
        if "/".join(parts[:end]) in files:
            parts[end - 1] += "~"
            return _beside_files("/".join(parts), files)
    return path

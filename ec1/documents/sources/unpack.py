"""What containers hold, as files that the scan finds: taken out once, and again when the container changed.

Belongs here: which containers are opened, and containers in containers. Does not: what is in one (`containers.py`), and
which files there are (`ec1.documents.scan`).
"""

import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from ec1.documents.records import is_list
from ec1.documents.sources.copies import Copies
from ec1.documents.sources.opened import Opener, TooSlowError
from ec1.documents.sources.settings import UnpackingSettings
from ec1.errors import DeferredError, RejectedError
from ec1.streams import CONTAINERS, LISTS, RECORD, WITH_ATTACHMENTS, Stream

_DEEPEST = 3
"""Containers in one another."""
_INSIDE = "~"
"""Ends the folder of a container that lies in another: beside the file, whose name the folder cannot have."""
_RACY_NS = 2 * 10**9


@dataclass(frozen=True)
class Seen:
    """A container that a scan met: its path in the stream's terms, where it is, its stat then, and the date of what it
    holds."""

    stream: Stream
    path: str
    file: Path
    stat: os.stat_result
    modified_ns: int


def may_hold_others(name: str) -> bool:
    """Whether a file of this name may hold documents."""
    return name.lower().endswith((*CONTAINERS, *WITH_ATTACHMENTS, *LISTS))


def is_container(file: Path, suffixes: Collection[str]) -> bool:
    """Whether a file holds documents and is none itself, for a stream that reads these. Raises OSError."""
    name = file.name.lower()
    return name.endswith(CONTAINERS) or (name.endswith(LISTS) and RECORD in suffixes and is_list(file))


def unpack(
    copies: Copies, seen: Iterable[Seen], limits: UnpackingSettings, max_bytes: int, opener: Opener, *, root: Path
) -> list[tuple[Seen, str]]:
    """Bring the copies up to date with the containers that a scan of `root` met; those of containers that are gone are
    removed. What cannot be read leaves a problem in `copies`.

    Returns the containers that could not be read now, and why: which documents they hold is unknown tonight.
    """
    for folder in copies.folders():
        file = copies.root / folder.removesuffix(_INSIDE) if folder.endswith(_INSIDE) else root / folder
        if not (file.is_file() and _may_be_container(file)):
            copies.remove(folder)
    known = copies.folders()
    unread = []
    for each in seen:
        found = each.stat
        signature = f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"
        if known.get(each.path) == (signature, each.stream.name):
            continue
        # Written so shortly ago that it may be written again with the same time: it is looked at again.
        racy = found.st_mtime_ns > time.time_ns() - _RACY_NS
        before = bool(copies.files(each.path))
        unpacking = _Unpacking(copies, each, limits, max_bytes, opener, signature, before)
        try:
            unpacking.run(each.path, each.file, "" if racy else signature, 1)
        except DeferredError as error:
            copies.open_again(each.path, each.stream.name)
            unread.append((each, str(error)))
    return unread


def _may_be_container(file: Path) -> bool:
    """False where a list of records has become something else; where that cannot be told now, it has not."""
    try:
        return file.suffix.lower() not in LISTS or is_list(file)
    except OSError:
        return True


@dataclass
class _Unpacking:
    """The unpacking of one container, with what is in it in turn, under one limit."""

    copies: Copies
    outermost: Seen
    limits: UnpackingSettings
    max_bytes: int
    opener: Opener
    version: str
    opened_before: bool

    def run(self, folder: str, file: Path, signature: str, depth: int) -> str:
        """Returns why nothing was taken out, or "". Raises DeferredError if it cannot be read now."""
        files, size = self._held() if depth > 1 else (0, 0)
        try:
            self.copies.bring(
                folder,
                self.opener.container(
                    file,
                    self.outermost.modified_ns,
                    max_files=self.limits.max_files - files,
                    max_bytes=self.limits.max_mb * 2**20 - size,
                    most=self.max_bytes,
                ),
                lambda name: name.lower().endswith(self.outermost.stream.suffixes),
                stream=self.outermost.stream.name,
                max_bytes=self.max_bytes,
                signature=signature,
            )
        except (RejectedError, TooSlowError) as error:
            # A hostile file is slow each night, and would take each night's time; one that was read once is none.
            if isinstance(error, TooSlowError) and self.opened_before:
                raise
            self.copies.remove(folder)
            if depth == 1:
                # By the file's own version, so that it is told once, however often it is opened.
                stream = self.outermost.stream.name
                self.copies.refuse(folder, "", str(error), version=self.version, stream=stream, signature=signature)
            return str(error)
        for path, version in self.copies.files(folder).items():
            suffixes = self.outermost.stream.suffixes
            if path.lower().endswith(WITH_ATTACHMENTS) or is_container(self.copies.root / folder / path, suffixes):
                self._inner(folder, path, version, depth)
        return ""

    def _inner(self, folder: str, path: str, version: str, depth: int) -> None:
        inner = f"{folder}/{path}{_INSIDE}"
        self.copies.remove(inner)
        if depth < _DEEPEST:
            problem = self.run(inner, self.copies.root / folder / path, "", depth + 1)
        else:
            problem = "" if path.lower().endswith(WITH_ATTACHMENTS) else f"a container in {_DEEPEST} others"
        if problem:
            self.copies.refuse(folder, path, problem, version=version, stream=self.outermost.stream.name)

    def _held(self) -> tuple[int, int]:
        """How many files were taken out so far, and their bytes."""
        sizes = [each.stat().st_size for each in (self.copies.root / self.outermost.path).rglob("*") if each.is_file()]
        return len(sizes), sum(sizes)

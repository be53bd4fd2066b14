"""Pieces: the files that a snapshot's lines lie in, each about a megabyte, named by its content, shared by snapshots.

Belongs here: writing pieces, finding lines in them, sharing them. Does not: which lines a snapshot has (snapshots).

A piece is `<stem>-<digest>.jsonl` with its index beside it, `<stem>-<digest>.npy`: per line its key and its place. A
line that goes costs the rewriting of its piece; every other piece is shared by hard links, so that the file system
counts who still needs it: a piece is gone when the last snapshot that names it is removed, and never before.
"""

import hashlib
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ec1.files import link_or_copy
from ec1.seals import Files

PIECE_BYTES = 2**20
_LINES, _INDEX = ".jsonl", ".npy"
_OPEN_FILES = 256
_PLACES = 2**12
_ENTRY = np.dtype([("high", "<u8"), ("low", "<u8"), ("offset", "<u4"), ("length", "<u4")])

Keys = NDArray[np.uint64]
"""Row keys, shape (n, 2): the high and the low half of each; sorted, if it is not said otherwise."""
Entries = NDArray[Any]
"""The index of a piece: one `_ENTRY` per line, in the order of the lines."""


def pieces_of(files: Files, stem: str) -> list[str]:
    """The names of a folder's pieces, without ending; `files` as in its manifest."""
    return sorted(name.removesuffix(_INDEX) for name in files if name.startswith(f"{stem}-") and name.endswith(_INDEX))


def files_of(pieces: Iterable[str]) -> list[str]:
    """The files of pieces."""
    return [f"{piece}{ending}" for piece in pieces for ending in (_LINES, _INDEX)]


def indexes_of(pieces: Iterable[str]) -> list[str]:
    """The files that say which lines the pieces have."""
    return [f"{piece}{_INDEX}" for piece in pieces]


def entries_of(folder: Path, piece: str) -> Entries:
    """Where the lines of a piece are."""
    entries: Entries = np.load(folder / f"{piece}{_INDEX}", allow_pickle=False)
    return entries


def keys_in(entries: Entries) -> Keys:
    """The keys of an index, in its order."""
    return np.stack([entries["high"], entries["low"]], axis=1).astype(np.uint64)


def keys_of(folder: Path, pieces: Iterable[str]) -> Keys:
    """The keys of all lines of pieces, sorted."""
    found = [keys_in(entries_of(folder, piece)) for piece in pieces]
    return sorted_keys(np.concatenate(found)) if found else np.empty((0, 2), np.uint64)


def lines_at(folder: Path, pieces: list[str], places: NDArray[np.uint32]) -> Iterator[bytes]:
    """The lines of pieces at these places, in their order."""
    with OpenFiles(folder) as files:
        for first in range(0, len(places), _PLACES):
            for piece, offset, length in places[first : first + _PLACES].tolist():
                yield files.read(f"{pieces[piece]}{_LINES}", offset, length)


def places_of(folder: Path, pieces: list[str]) -> NDArray[np.uint32]:
    """Number of piece, offset and length of each line, in the order of their keys; shape (lines, 3).

    Of a line these twelve bytes stay in memory: its keys are let go when the order is known.
    """
    counts = [len(np.load(folder / f"{piece}{_INDEX}", mmap_mode="r", allow_pickle=False)) for piece in pieces]
    keys = np.empty((sum(counts), 2), np.uint64)
    places = np.empty((sum(counts), 3), np.uint32)
    end = 0
    for number, (piece, count) in enumerate(zip(pieces, counts, strict=True)):
        entries, part = entries_of(folder, piece), slice(end, end := end + count)
        keys[part], places[part, 0] = keys_in(entries), number
        places[part, 1], places[part, 2] = entries["offset"], entries["length"]
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    del keys
    return np.asarray(places[order])


def lines_in(folder: Path, piece: str, entries: Entries) -> Iterator[bytes]:
    """Some lines of a piece: those of `entries`."""
    data = (folder / f"{piece}{_LINES}").read_bytes()
    for entry in entries:
        yield data[int(entry["offset"]) : int(entry["offset"] + entry["length"])]


def is_small(size: int) -> bool:
    """Whether a piece of so many bytes may be taken into another one."""
    return size < PIECE_BYTES // 2


def share(source: Path, target: Path, pieces: Iterable[str]) -> None:
    """Have the pieces of one folder in another one too."""
    for name in files_of(pieces):
        link_or_copy(source / name, target / name)


class PieceWriter:
    """Writes lines into pieces; use it as a context manager. Afterwards `files` describes what was written, by the
    bytes that were meant to be written and not by what a disk made of them."""

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self.files: dict[str, Mapping[str, Any]] = {}
        self.count = 0
        self._begin()

    def __enter__(self) -> "PieceWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _begin(self) -> None:
        self._lines: list[bytes] = []
        self._entries: list[tuple[int, int, int, int]] = []
        self._size = 0

    def add(self, high: int, low: int, line: bytes) -> None:
        """One line, with its line break, of the key that has these halves."""
        self._lines.append(line)
        self._entries.append((high, low, self._size, len(line)))
        self._size += len(line)
        self.count += 1
        if self._size >= PIECE_BYTES:
            self._end()

    def _end(self) -> None:
        if not self._lines:
            return
        lines = b"".join(self._lines)
        index = io.BytesIO()
        np.save(index, np.array(self._entries, dtype=_ENTRY), allow_pickle=False)
        name = f"{self._stem}-{hashlib.sha256(lines).hexdigest()[:16]}"
        for ending, data in ((_LINES, lines), (_INDEX, index.getvalue())):
            (self._folder / f"{name}{ending}").write_bytes(data)
            self.files[f"{name}{ending}"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self._begin()


class OpenFiles:
    """Reads parts of many files in any order, with a bounded number of them open. Raises FileNotFoundError."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: dict[str, BinaryIO] = {}

    def __enter__(self) -> "OpenFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._open.values():
            stream.close()

    def read(self, path: str, offset: int, length: int) -> bytes:
        stream = self._open.pop(path, None)
        if stream is None:
            if len(self._open) >= _OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            stream = (self._root / path).open("rb")
        self._open[path] = stream
        return os.pread(stream.fileno(), length, offset)


def sorted_keys(keys: Keys) -> Keys:
    return np.asarray(keys[np.lexsort((keys[:, 1], keys[:, 0]))])


def contained(keys: Keys, within: Keys) -> NDArray[np.bool_]:
    """For each of `keys`, in any order, whether it is one of `within`."""
    if not len(within):
        return np.zeros(len(keys), dtype=bool)
    if bool((within[1:, 0] == within[:-1, 0]).any()):
        # Two keys with one high half: only a set tells them apart, and that there are such is next to impossible.
        known = set(map(tuple, within.tolist()))
        return np.array([tuple(key) in known for key in keys.tolist()], dtype=bool)
    place = np.minimum(np.searchsorted(within[:, 0], keys[:, 0]), len(within) - 1)
    return np.asarray((within[place] == keys).all(axis=1))

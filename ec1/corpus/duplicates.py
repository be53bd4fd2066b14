"""Duplicates: which rows say the same, exactly or nearly. MinHash signatures (datasketch), banded and compared.

Belongs here: signatures, pairs, and which of a pair survives. Does not: what a row's text is (dataset), groups (split).

Signatures lie in one file (256 bytes per row) and are banded by sorting a number per row, one band after the other, so
that a million rows need some 10 MB of memory where an index of Python objects needs gigabytes.
https://ekzhu.com/datasketch/lsh.html
"""

import functools
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERMUTATIONS = 64
_SHINGLE_WORDS = 3
# Bounds on the work for rows that are all alike.
_FIRST, _BLOCK, _PAIRS = 32, 256, 4
_CHUNK = 2**13
_SORTED = 2**17
_COMPARED = 2**15
_BYTES = 4 * PERMUTATIONS
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
# Scripts without spaces have no words to find: each letter counts as one.
SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+|[^\w\s]")

Signatures = NDArray[np.uint32]
"""Shape (rows, PERMUTATIONS)."""


def signature(text: str) -> Signatures:
    """The MinHash signature of a text's shingles of three words, shape (PERMUTATIONS,); case does not matter."""
    return signature_of(_WORD.findall(text.lower()))


def signature_of(words: list[str]) -> Signatures:
    """The same for a text that is cut into words already."""
    minhash = _empty().copy()
    minhash.update_batch(_shingles(words))
    return np.asarray(minhash.hashvalues, dtype=np.uint32)


class StoredSignatures:
    """Signatures in a file: of what is asked for a copy is made, and nothing else is in memory.

    The file is read and not mapped: a mapped page that was touched counts as memory of the process.
    """

    def __init__(self, path: Path) -> None:
        """The file holds one signature after the other."""
        self._path = path
        self._count = path.stat().st_size // _BYTES

    def __len__(self) -> int:
        return self._count

    def parts(self) -> Iterator[Signatures]:
        """All of them, some thousands at a time."""
        with self._path.open("rb") as stream:
            while part := stream.read(_CHUNK * _BYTES):
                yield np.frombuffer(part, np.uint32).reshape(-1, PERMUTATIONS)

    def some(self, numbers: NDArray[np.int64]) -> Signatures:
        """Those of some rows, in the order of `numbers`."""
        with self._path.open("rb", buffering=0) as stream:
            place = stream.fileno()
            found = b"".join(os.pread(place, _BYTES, number * _BYTES) for number in numbers.tolist())
        return np.frombuffer(found, np.uint32).reshape(-1, PERMUTATIONS)


class SignaturesInMemory:
    """The same for signatures that are an array."""

    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures

    def __len__(self) -> int:
        return len(self._signatures)

    def parts(self) -> Iterator[Signatures]:
        yield self._signatures

    def some(self, numbers: NDArray[np.int64]) -> Signatures:
        return self._signatures[numbers]


def band(signatures: StoredSignatures | SignaturesInMemory, start: int, end: int) -> NDArray[np.uint64]:
    """A number for what each row has in a band: equal where the band is, else by chance (a comparison tells)."""
    numbers = np.zeros(len(signatures), np.uint64)
    first = 0
    for part_of_all in signatures.parts():
        part = numbers[first : first + len(part_of_all)]
        for column in part_of_all[:, start:end].T:
            part ^= column
            part *= _FACTOR
            part ^= part >> np.uint64(29)
        first += len(part_of_all)
    return numbers


def equal_rows(numbers: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
    """The rows that have the same number, as groups of one size: shape (groups, size), rows ascending."""
    # In parts by number, so that sorting needs little memory.
    parts = np.uint64(1 + len(numbers) // _SORTED)
    for part in range(int(parts)):
        places = np.flatnonzero(numbers % parts == part)
        places = places[np.argsort(numbers[places], kind="stable")]
        ordered = numbers[places]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        sizes = np.diff(starts, append=len(ordered))
        for size in np.unique(sizes[sizes > 1]):
            yield places[starts[sizes == size, np.newaxis] + np.arange(size)]


class NearDuplicates:
    """Finds the rows whose estimated Jaccard similarity reaches `similarity`, among all rows or among some.

    At a similarity of 1 there are none: rows that say exactly the same are found by their digest.
    """

    def __init__(self, signatures: StoredSignatures | SignaturesInMemory, similarity: float) -> None:
        self._signatures, self._similarity = signatures, similarity
        self._sharing: NDArray[np.bool_] | None = None

    def pairs(self, numbers: NDArray[np.int64] | None = None) -> Iterator[tuple[int, int]]:
        """Pairs of rows (left < right), each pair once.

        With `numbers` only these rows are compared, and a pair names their places in `numbers`. Of many rows that are
        all alike only some pairs come, enough to connect each of them to one of the first.
        """
        count = len(self._signatures) if numbers is None else len(numbers)
        if count < 2 or self._similarity >= 1:
            return
        # A row that shares no band with any other shares none with one of a few.
        places = None if self._sharing is None else np.flatnonzero(_taken(self._sharing, numbers))
        sharing = np.zeros(count, dtype=bool)
        seen = np.empty(0, np.int64)
        rows = _rows_per_band(self._similarity)
        for start in range(0, PERMUTATIONS, rows):
            numbered = _taken(_taken(band(self._signatures, start, start + rows), numbers), places)
            found = [np.empty(0, np.int64)]
            for members in equal_rows(numbered):
                members = members if places is None else places[members]
                sharing[members] = True
                found += [left * count + right for left, right in self._alike(members, numbers)]
            # As numbers: pairs as tuples in a set would need a hundred bytes each.
            fresh = np.setdiff1d(np.concatenate(found), seen)
            for code in fresh:
                yield divmod(int(code), count)
            seen = np.union1d(seen, fresh)
        if numbers is None:
            self._sharing = sharing

    def _alike(
        self, members: NDArray[np.int64], numbers: NDArray[np.int64] | None
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """The pairs among rows that share a band, as left and right places. `members`: shape (groups, size) of groups
        of one size. Each is compared with each; of large groups with the first ones and with its neighbours."""
        size = members.shape[1]
        if size <= _FIRST:
            right, left = np.tril_indices(size, -1)
            step = max(1, _COMPARED // len(left))
            for start in range(0, len(members), step):
                part = members[start : start + step]
                compared = self._of(part.ravel(), numbers).reshape(*part.shape, PERMUTATIONS)
                alike = self._are_alike(compared[:, left], compared[:, right])
                if size > _PAIRS + 1:
                    # The pairs of a right place follow each other.
                    counted = np.pad(np.cumsum(alike, axis=1), ((0, 0), (1, 0)))
                    alike &= counted[:, 1:] - counted[:, right * (right - 1) // 2] <= _PAIRS
                groups, pairs = np.nonzero(alike)
                yield part[groups, left[pairs]], part[groups, right[pairs]]
            return
        for group in members:
            first = group[:_FIRST]
            for start in range(0, size, _BLOCK):
                block = np.concatenate([first, group[max(start, _FIRST) : start + _BLOCK]])
                compared = self._of(block, numbers)
                for place, right_place in enumerate(block):
                    before = np.flatnonzero(self._are_alike(compared[:place], compared[place]))[:_PAIRS]
                    yield block[before], np.full(len(before), right_place)

    def _are_alike(self, some: Signatures, others: Signatures) -> NDArray[np.bool_]:
        # Eight of the comparisons at a time are added, each in a byte of its own.
        sums = (some == others).view(np.uint64).sum(axis=-1, dtype=np.uint64)
        counts = sums * np.uint64(0x0101010101010101) >> np.uint64(56)
        return np.asarray(counts / PERMUTATIONS >= self._similarity)

    def _of(self, places: NDArray[np.int64], numbers: NDArray[np.int64] | None) -> Signatures:
        return self._signatures.some(places if numbers is None else numbers[places])


def survivors(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Which rows fall to which: of a pair the later one, by its number, is dropped, unless the earlier one was.

    Returns dropped row -> row that stands for it.
    """
    twins: dict[int, list[int]] = {}
    for pair in pairs:
        twins.setdefault(max(pair), []).append(min(pair))
    dropped: dict[int, int] = {}
    for row in sorted(twins):
        kept = [twin for twin in twins[row] if twin not in dropped]
        if kept:
            dropped[row] = min(kept)
    return dropped


@functools.cache
def _empty() -> Any:
    from datasketch import MinHash

    return MinHash(num_perm=PERMUTATIONS, seed=1, scheme="affine32", hashfunc=zlib.crc32)


def _shingles(words: list[str]) -> list[bytes]:
    count = max(1, len(words) - _SHINGLE_WORDS + 1)
    return sorted(
        {" ".join(words[start : start + _SHINGLE_WORDS]).encode("utf-8", "replace") for start in range(count)}
    )


def _rows_per_band(similarity: float) -> int:
    """The longest band with which 98 of 100 pairs of that similarity have a band in common."""
    for rows in (16, 8, 4):
        if 1 - (1 - similarity**rows) ** (PERMUTATIONS // rows) >= 0.98:
            return rows
    return 2


def _taken(values: NDArray[Any], places: NDArray[np.int64] | None) -> NDArray[Any]:
    return values if places is None else values[places]

"""Duplicates: which rows say the same, exactly or nearly. MinHash signatures (datasketch), banded and compared.

Belongs here: signatures, pairs, and which of a pair survives. Does not: what a row's text is (dataset), groups (split).

Signatures lie in one file (256 bytes per row) and are banded by sorting a number per row, one band after the other, so
that a million rows need some 30 MB of memory where an index of Python objects needs gigabytes.
https://ekzhu.com/datasketch/lsh.html
"""

import functools
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERMUTATIONS = 64
_SHINGLE_WORDS = 3
# Bounds on the work for rows that are all alike.
_FIRST, _BLOCK, _PAIRS = 32, 256, 4
_CHUNK = 2**14
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_WORD = re.compile(r"\w+|[^\w\s]")

Signatures = NDArray[np.uint32]
"""Shape (rows, PERMUTATIONS)."""


def signature(text: str) -> Signatures:
    """The MinHash signature of a text's shingles of three words, shape (PERMUTATIONS,); case does not matter."""
    minhash = _empty().copy()
    minhash.update_batch(_shingles(text))
    return np.asarray(minhash.hashvalues, dtype=np.uint32)


class StoredSignatures:
    """Signatures in a file: of what is asked for a copy is made, and nothing else is in memory."""

    def __init__(self, path: Path) -> None:
        """The file holds one signature after the other."""
        self._path = path
        self._shape = path.stat().st_size // (4 * PERMUTATIONS), PERMUTATIONS

    def __len__(self) -> int:
        return self._shape[0]

    def __getitem__(self, what: Any) -> Signatures:
        # Mapped anew each time: what is mapped counts as memory of the process until it is let go.
        return np.array(np.memmap(self._path, np.uint32, "r", shape=self._shape)[what])


def near_duplicates(
    signatures: "Signatures | StoredSignatures", similarity: float, numbers: NDArray[np.int64] | None = None
) -> Iterator[tuple[int, int]]:
    """Pairs of rows (left < right) whose estimated Jaccard similarity reaches `similarity`, each pair once.

    With `numbers` only these signatures are compared, and a pair names their places in `numbers`. Of many rows that are
    all alike only some pairs come, enough to connect each of them to one of the first. At a similarity of 1 there are
    none: rows that say exactly the same are found by their digest.
    """
    chosen = np.arange(len(signatures)) if numbers is None else numbers
    if len(chosen) < 2 or similarity >= 1:
        return
    seen = np.empty(0, np.int64)
    rows = _rows_per_band(similarity)
    for start in range(0, PERMUTATIONS, rows):
        found = array("q")
        for members in _equal_rows(_band(signatures, chosen, start, start + rows)):
            for left, right in _alike(signatures, chosen, members, similarity):
                found.append(left * len(chosen) + right)
        # As numbers: pairs as tuples in a set would need a hundred bytes each.
        fresh = np.setdiff1d(np.frombuffer(found, np.int64), seen)
        for code in fresh:
            yield divmod(int(code), len(chosen))
        seen = np.union1d(seen, fresh)


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


def _shingles(text: str) -> list[bytes]:
    words = _WORD.findall(text.lower())
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


def _alike(
    signatures: "Signatures | StoredSignatures",
    chosen: NDArray[np.int64],
    members: NDArray[np.int64],
    similarity: float,
) -> Iterator[tuple[int, int]]:
    """The pairs among rows that share a band; of very many each is compared with the first and with its neighbours."""
    first = members[:_FIRST]
    for start in range(0, len(members), _BLOCK):
        block = np.concatenate([first, members[max(start, _FIRST) : start + _BLOCK]])
        compared = signatures[chosen[block]]
        for place, right in enumerate(block):
            shares = (compared[:place] == compared[place]).mean(axis=1)
            for left in np.flatnonzero(shares >= similarity)[:_PAIRS]:
                yield int(block[left]), int(right)


def _band(
    signatures: "Signatures | StoredSignatures", chosen: NDArray[np.int64], start: int, end: int
) -> NDArray[np.uint64]:
    """A number for what each row has in a band: equal where the band is, and else by chance, which `_alike` tells."""
    band = np.zeros(len(chosen), np.uint64)
    for first in range(0, len(chosen), _CHUNK):
        part = band[first : first + _CHUNK]
        for column in signatures[chosen[first : first + _CHUNK], start:end].T:
            part ^= column
            part *= _FACTOR
            part ^= part >> np.uint64(29)
    return band


def _equal_rows(band: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
    order = np.argsort(band, kind="stable")
    ordered = band[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ends = np.append(starts[1:], len(order))
    several = ends - starts > 1
    for start, end in zip(starts[several], ends[several], strict=True):
        yield order[start:end]

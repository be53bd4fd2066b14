"""Duplicates: which rows say the same, exactly or nearly. MinHash signatures (datasketch), banded and compared.

Belongs here: signatures, pairs, and which of a pair survives. Does not: what a row's text is (dataset), groups (split).

Signatures lie in one array (256 bytes per row) and are banded by sorting it, so that a hundred thousand rows need 25 MB
where an index of Python objects needs some hundreds. https://ekzhu.com/datasketch/lsh.html
"""

import functools
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

PERMUTATIONS = 64
_SHINGLE_WORDS = 3
# Bounds on the work for rows that are all alike.
_FIRST, _BLOCK, _PAIRS = 32, 256, 4
_WORD = re.compile(r"\w+|[^\w\s]")

Signatures = NDArray[np.uint32]
"""Shape (rows, PERMUTATIONS)."""


def signature(text: str) -> Signatures:
    """The MinHash signature of a text's shingles of three words, shape (PERMUTATIONS,); case does not matter."""
    minhash = _empty().copy()
    minhash.update_batch(_shingles(text))
    return np.asarray(minhash.hashvalues, dtype=np.uint32)


def near_duplicates(signatures: Signatures, similarity: float) -> Iterator[tuple[int, int]]:
    """Pairs of rows (left < right) whose estimated Jaccard similarity reaches `similarity`, each pair once.

    Of many rows that are all alike only some pairs come, enough to connect each of them to one of the first. At a
    similarity of 1 there are none: rows that say exactly the same are found by their digest.
    """
    if len(signatures) < 2 or similarity >= 1:
        return
    seen: set[tuple[int, int]] = set()
    rows = _rows_per_band(similarity)
    for start in range(0, PERMUTATIONS, rows):
        for members in _equal_rows(signatures[:, start : start + rows]):
            for pair in _alike(signatures, members, similarity):
                if pair not in seen:
                    seen.add(pair)
                    yield pair


def survivors(order: Sequence[int], pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Which rows fall to which: of a pair the one later in `order` is dropped, unless the earlier one was.

    Returns dropped row -> row that stands for it.
    """
    rank = {row: place for place, row in enumerate(order)}
    twins: dict[int, list[int]] = {}
    for left, right in pairs:
        first, later = sorted((left, right), key=rank.__getitem__)
        twins.setdefault(later, []).append(first)
    dropped: dict[int, int] = {}
    for row in sorted(twins, key=rank.__getitem__):
        kept = [twin for twin in twins[row] if twin not in dropped]
        if kept:
            dropped[row] = min(kept, key=rank.__getitem__)
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


def _alike(signatures: Signatures, members: list[int], similarity: float) -> Iterator[tuple[int, int]]:
    """The pairs among rows that share a band; of very many each is compared with the first and with its neighbours."""
    first = members[:_FIRST]
    for start in range(0, len(members), _BLOCK):
        block = [*first, *members[max(start, _FIRST) : start + _BLOCK]]
        chosen = signatures[block]
        for place, right in enumerate(block):
            shares = (chosen[:place] == chosen[place]).mean(axis=1)
            for left in np.flatnonzero(shares >= similarity)[:_PAIRS]:
                yield int(block[left]), int(right)


def _equal_rows(band: Signatures) -> Iterator[list[int]]:
    packed = np.ascontiguousarray(band).view(np.dtype((np.void, band.dtype.itemsize * band.shape[1]))).reshape(-1)
    order = np.argsort(packed, kind="stable")
    ordered = packed[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        if end - start > 1:
            yield sorted(order[start:end].tolist())

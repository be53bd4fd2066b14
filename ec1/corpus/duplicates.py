"""Duplicates: which rows say the same, exactly or nearly. MinHash signatures (datasketch), banded and compared.

Belongs here: signatures, pairs, and which of a pair survives. Does not: what a row's text is (dataset), groups (split).

Signatures lie in one array (256 bytes a row) and are banded by sorting it, so that a hundred thousand rows need 25 MB
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
_WORD = re.compile(r"\w+|[^\w\s]")

Signatures = NDArray[np.uint32]
"""Shape (rows, PERMUTATIONS)."""


def signature(text: str) -> Signatures:
    """The MinHash signature of a text's shingles of three words, shape (PERMUTATIONS,); case does not matter."""
    minhash = _empty().copy()
    minhash.update_batch(_shingles(text))
    return np.asarray(minhash.hashvalues, dtype=np.uint32)


def near_duplicates(signatures: Signatures, similarity: float) -> Iterator[tuple[int, int]]:
    """Pairs of rows (left < right) whose estimated Jaccard similarity reaches `similarity`, each pair once."""
    if len(signatures) < 2:
        return
    bands, rows = _banding(similarity)
    seen: set[tuple[int, int]] = set()
    for band in range(bands):
        for members in _equal_rows(signatures[:, band * rows : (band + 1) * rows]):
            # In a bucket of many alike rows each is compared with the first few: enough to find that it is a duplicate.
            for place, right in enumerate(members):
                for left in members[: min(place, 8)]:
                    pair = (int(left), int(right))
                    if pair in seen:
                        continue
                    seen.add(pair)
                    if float(np.mean(signatures[left] == signatures[right])) >= similarity:
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


@functools.cache
def _banding(similarity: float) -> tuple[int, int]:
    """Bands and rows a band for a similarity, chosen so that a missed pair is rarer than a vain comparison."""
    from datasketch import MinHashLSH

    index: Any = MinHashLSH(threshold=similarity, num_perm=PERMUTATIONS, weights=(0.1, 0.9))
    return int(index.b), int(index.r)


def _equal_rows(band: Signatures) -> Iterator[list[int]]:
    packed = np.ascontiguousarray(band).view(np.dtype((np.void, band.dtype.itemsize * band.shape[1]))).reshape(-1)
    order = np.argsort(packed, kind="stable")
    ordered = packed[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        if end - start > 1:
            yield sorted(order[start:end].tolist())

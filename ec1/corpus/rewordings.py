"""Answers that say much the same in other words: they belong on one side of the split, and none is dropped for it.

Belongs here: the signature of an answer, and pairs of answers that are alike. Does not: duplicates, which are dropped
(duplicates), and what becomes of a pair (split, dataset).

With one word of eight replaced, two texts still share half of their runs of three words; with 4 % of the letters
replaced in a script without spaces, four fifths. Texts that share a subject share almost none. What many rows have in
common is a template: it joins nothing.
"""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ec1.corpus.duplicates import (
    PERMUTATIONS,
    SPACELESS,
    Signatures,
    SignaturesInMemory,
    StoredSignatures,
    band,
    equal_rows,
    signature_of,
)
from ec1.corpus.rows import Numbers
from ec1.corpus.split import MANY
from ec1.corpus.tuples import Example

SIMILARITY = 0.3
"""Estimated Jaccard similarity of two answers' runs of three words, with a deviation of 0.06; unrelated texts have a
tenth of it."""
MIN_WORDS = 20
"""Shorter answers resemble each other by nature."""

_BAND = 3
_COMPARED = 2**15
# Without punctuation: it would make all answers in one format alike.
_WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")


def answer_signature(example: Example, row: str) -> Signatures:
    """The signature of what an example's (chosen) answer says, shape (PERMUTATIONS,). Of a diff the added lines count:
    the others stand in the question. A short answer gets numbers made from the row's digest, which resemble no other.
    """
    answer = "\n".join(message["content"] for message in example.get("completion") or example.get("chosen") or ())
    words = _WORD.findall(added(answer).lower())
    if len(words) < MIN_WORDS:
        seed = np.random.SeedSequence(list(row.encode()))
        return np.asarray(seed.generate_state(PERMUTATIONS, np.uint32))
    return signature_of(words)


def added(text: str) -> str:
    """The lines that a diff adds, or the whole text of anything else."""
    if not re.search(r"(?m)^@@ ", text):
        return text
    return "\n".join(line[1:] for line in text.splitlines() if line.startswith("+") and not line.startswith("+++"))


def rewordings(answers: StoredSignatures | SignaturesInMemory) -> NDArray[np.int64]:
    """Pairs of rows (left < right) whose answers are alike, shape (pairs, 2), in one order; none of a row that
    resembles more than MANY others. At most MANY numbers per row are in memory."""
    count = len(answers)
    codes, resembled = np.empty(0, np.int64), np.zeros(count, np.int64)
    for start in range(0, PERMUTATIONS - _BAND + 1, _BAND):
        found = [np.empty(0, np.int64)]
        for members in equal_rows(band(answers, start, start + _BAND)):
            if members.shape[1] <= MANY:
                found += [left * count + right for left, right in _alike(answers, members)]
        fresh = np.setdiff1d(np.concatenate(found), codes)
        fresh = fresh[(resembled[fresh // count] <= MANY) & (resembled[fresh % count] <= MANY)]
        for side in np.divmod(fresh, count):
            resembled += np.bincount(side, minlength=count)
        codes = np.union1d(codes, fresh)
    pairs: NDArray[np.int64] = np.column_stack(np.divmod(codes, max(1, count)))
    return pairs[(resembled[pairs] <= MANY).all(axis=1)]


def across(pairs: NDArray[np.int64], kept: Numbers, heldout: NDArray[np.bool_]) -> Numbers:
    """The training rows of pairs on two sides of the split, of rows that are kept. `heldout`: the side of each row."""
    within = pairs[np.isin(pairs, kept).all(axis=1)]
    apart = within[heldout[within].sum(axis=1) == 1].ravel()
    known: Numbers = np.unique(apart[~heldout[apart]])
    return known


def _alike(answers: StoredSignatures | SignaturesInMemory, members: NDArray[np.int64]) -> Iterator[tuple[Any, Any]]:
    """The pairs within groups of one size that are alike. `members`: shape (groups, size)."""
    size = members.shape[1]
    right, left = np.tril_indices(size, -1)
    step = max(1, _COMPARED // len(left))
    for start in range(0, len(members), step):
        part = members[start : start + step]
        compared = answers.some(part.ravel()).reshape(*part.shape, PERMUTATIONS)
        groups, pairs = np.nonzero((compared[:, left] == compared[:, right]).mean(axis=-1) >= SIMILARITY)
        yield part[groups, left[pairs]], part[groups, right[pairs]]

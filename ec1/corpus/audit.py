"""The audit of a finished dataset: does the held-out side stand in what is trained on?

Belongs here: a second look at the rows as they were written, by a separate rule. Does not: the split and its rules
(split, dataset), whose work this judges: nothing of theirs is used.

A held-out answer counts as known if a training answer is the same text, or if half of its runs of thirteen words stand
in training answers (the n-gram of https://arxiv.org/abs/2005.14165 appendix C). Of a diff the added lines count: what
surrounds them stands in the prompt anyway. Text that training only reads, and does not learn, is counted apart.
"""

import hashlib
import heapq
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ec1.corpus.duplicates import SPACELESS
from ec1.corpus.rewordings import added

WORDS = 13
KNOWN_SHARE = 0.5
VERBATIM_CHARACTERS = 40
"""Shorter answers are the same by nature: yes, no, a number."""
MAX_CHECKED = 20_000
"""Held-out rows that are looked at: the first ones, by digest."""

MAX_WORDS = 200_000
"""Words whose numbers are remembered at a time."""

_EXAMPLES = 5
_MESSAGES = ("prompt", "completion", "chosen", "rejected")
# As many letters of a script without spaces say more than thirteen: a run of them is found in fewer characters.
_WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")
_FACTORS = np.array([pow(0x9E3779B97F4A7C15, power, 2**64) | 1 for power in range(1, WORDS + 1)], dtype=np.uint64)

Grams = NDArray[np.uint64]


@dataclass(frozen=True)
class Audit:
    """`checked` held-out rows; of them `verbatim` stand whole among training answers and `contained` in pieces, `known`
    in either way; `read` stand in what training reads without learning it. `examples` are digests of known rows."""

    checked: int
    verbatim: int
    contained: int
    known: int
    read: int
    examples: tuple[str, ...]

    @property
    def known_share(self) -> float:
        return self.known / self.checked if self.checked else 0.0


def audit(folder: Path) -> Audit:
    """Look at `<folder>/train` and `<folder>/heldout`, single answers or pairs; of tasks there is no answer."""
    words = _WordNumbers()
    heldout = sorted(_heldout(folder / "heldout", words), key=lambda each: each.row)
    wanted = np.unique(np.concatenate([*(each.grams for each in heldout), np.empty(0, np.uint64)]))
    learnt = np.zeros(len(wanted), dtype=bool)
    read = np.zeros(len(wanted), dtype=bool)
    answers = {each.plain: False for each in heldout if each.plain is not None}
    for batch in _batches(folder / "train"):
        own, other = _said(batch)
        for text in own:
            if (plain := _plain(text)) in answers:
                answers[plain] = True
        _mark(learnt, wanted, _grams(own, words))
        _mark(read, wanted, _grams(other, words))
        words = words if len(words) < MAX_WORDS else _WordNumbers()
    verbatim = np.array([each.plain is not None and answers[each.plain] for each in heldout], dtype=bool)
    contained = np.array([_share(each.grams, wanted, learnt) >= KNOWN_SHARE for each in heldout], dtype=bool)
    given = np.array([_share(each.grams, wanted, learnt | read) >= KNOWN_SHARE for each in heldout], dtype=bool)
    known = verbatim | contained
    return Audit(
        checked=len(heldout),
        verbatim=int(verbatim.sum()),
        contained=int(contained.sum()),
        known=int(known.sum()),
        read=int((given & ~known).sum()),
        examples=tuple(heldout[place].row for place in np.flatnonzero(known)[:_EXAMPLES]),
    )


@dataclass(frozen=True, slots=True)
class _HeldOut:
    """What is kept of a held-out row: its digest, its answer's plain form if that says something, and its runs."""

    row: str
    plain: bytes | None
    grams: Grams


class _WordNumbers(dict[str, int]):
    """The number of each word, remembered once it was asked for."""

    def __missing__(self, word: str) -> int:
        raw = word.encode("utf-8", "replace")
        number = self[word] = zlib.crc32(raw) << 32 | zlib.adler32(raw)
        return number


def _heldout(folder: Path, words: _WordNumbers) -> Iterator[_HeldOut]:
    digests = (row for batch in _batches(folder, ["row"]) for row in batch["row"].to_pylist())
    checked = set(heapq.nsmallest(MAX_CHECKED, map(str, digests)))
    for batch in _batches(folder):
        for row in batch.to_pylist():
            if row["row"] in checked:
                text = "\n".join(message["content"] for message in row.get("completion") or row.get("chosen") or ())
                yield _HeldOut(row["row"], _plain(text), np.unique(_grams([added(text)], words)))


def _batches(folder: Path, columns: Sequence[str] = (*_MESSAGES, "row")) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(folder / "rows.parquet") as file:
        yield from file.iter_batches(500, columns=[name for name in file.schema_arrow.names if name in columns])


def _said(batch: Any) -> tuple[list[str], list[str]]:
    """What the assistant says in some rows, and what anybody else does."""
    own: list[str] = []
    other: list[str] = []
    for name in _MESSAGES:
        if name in batch.schema.names:
            # As columns: lists of objects cost five times as much.
            messages = batch.column(name).flatten()
            contents = messages.field("content").to_pylist()
            for role, content in zip(messages.field("role").to_pylist(), contents, strict=True):
                (own if role == "assistant" else other).append(content)
    return own, other


def _plain(text: str) -> bytes | None:
    """What stands for a text whose case and blanks do not matter; None of a short one."""
    plain = " ".join(text.lower().split())
    if len(plain) < VERBATIM_CHARACTERS:
        return None
    return hashlib.blake2b(plain.encode("utf-8", "replace"), digest_size=16).digest()


def _grams(texts: Sequence[str], words: _WordNumbers) -> Grams:
    """A number for each run of thirteen words in one of the texts; none in a shorter text."""
    found = [_WORD.findall(text.lower()) for text in texts]
    lengths = [len(each) for each in found]
    count = sum(lengths) - WORDS + 1
    if count < 1:
        return np.empty(0, np.uint64)
    numbers = np.fromiter(map(words.__getitem__, itertools.chain.from_iterable(found)), np.uint64, sum(lengths))
    runs = np.zeros(count, np.uint64)
    for place, factor in enumerate(_FACTORS):
        runs += numbers[place : place + count] * factor
    text = np.repeat(np.arange(len(lengths)), lengths)
    within: Grams = runs[text[:count] == text[WORDS - 1 :]]
    return within


def _mark(seen: NDArray[np.bool_], wanted: Grams, grams: Grams) -> None:
    if len(wanted) and len(grams):
        grams = np.unique(grams)
        places = np.minimum(np.searchsorted(wanted, grams), len(wanted) - 1)
        seen[places[wanted[places] == grams]] = True


def _share(grams: Grams, wanted: Grams, seen: NDArray[np.bool_]) -> float:
    return float(seen[np.searchsorted(wanted, grams)].mean()) if len(grams) else 0.0

"""The audit of a finished dataset: does the held-out side stand in what is trained on?

Belongs here: a second look at the rows as they were written, by a separate rule. Does not: the split and its rules
(split, dataset), whose work this judges: nothing of theirs is used.

A held-out answer counts as known if a training answer is the same text; if half of its runs of thirteen words stand in
training answers (the n-gram of https://arxiv.org/abs/2005.14165 appendix C); or if it has a fifth of all runs of five
words in common with one training answer, which says the same in other words. Runs that many answers have are a
template. Of a diff the added lines count: what surrounds them stands in the prompt anyway. Text that training only
reads, and does not learn, is counted apart.
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
FEW_WORDS = 5
REWORDED_SIMILARITY = 0.2
"""Jaccard similarity of two answers' runs of five words: 0.36 is left of it with one word of eight replaced."""
MIN_RUNS = 16
"""Answers with fewer runs of five words resemble each other by nature."""
MAX_RUNS = 128
"""Runs of five words that are kept of a held-out row: the smallest, so that each text has the same choice."""
TEMPLATE = 16
"""A run of five words that more answers have, on either side, says nothing."""
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
    """`checked` held-out rows; of them `verbatim` stand whole among training answers, `contained` in pieces, `reworded`
    in other words, and `known` in any of these ways; `read` stand in what training reads without learning it.
    `examples` are digests of known rows."""

    checked: int
    verbatim: int
    contained: int
    known: int
    read: int
    examples: tuple[str, ...]
    reworded: int = 0
    """0 in the record of an audit that did not look for them."""

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
    reworded = _Rewordings([each.few for each in heldout], [each.runs for each in heldout])
    for batch in _batches(folder / "train"):
        own, other = _said(batch)
        for text in own:
            if (plain := _plain(text)) in answers:
                answers[plain] = True
        spoken = _numbers(own, words)
        _mark(learnt, wanted, _runs(spoken, WORDS)[0])
        _mark(read, wanted, _runs(_numbers(other, words), WORDS)[0])
        reworded.look(*_runs(spoken, FEW_WORDS))
        words = words if len(words) < MAX_WORDS else _WordNumbers()
    verbatim = np.array([each.plain is not None and answers[each.plain] for each in heldout], dtype=bool)
    contained = np.array([_share(each.grams, wanted, learnt) >= KNOWN_SHARE for each in heldout], dtype=bool)
    given = np.array([_share(each.grams, wanted, learnt | read) >= KNOWN_SHARE for each in heldout], dtype=bool)
    alike = reworded.similarities() >= REWORDED_SIMILARITY
    known = verbatim | contained | alike
    return Audit(
        checked=len(heldout),
        verbatim=int(verbatim.sum()),
        contained=int(contained.sum()),
        known=int(known.sum()),
        reworded=int(alike.sum()),
        read=int((given & ~known).sum()),
        examples=tuple(heldout[place].row for place in np.flatnonzero(known)[:_EXAMPLES]),
    )


@dataclass(frozen=True, slots=True)
class _HeldOut:
    """What is kept of a held-out row: its digest, its answer's plain form if that says something, its runs of thirteen
    words, and of its `runs` of five words some."""

    row: str
    plain: bytes | None
    grams: Grams
    few: Grams
    runs: int


class _Rewordings:
    """How much each held-out answer resembles the training answer that it resembles most, by runs of five words."""

    def __init__(self, heldout: Sequence[Grams], lengths: Sequence[int]) -> None:
        self._count, self._lengths = len(heldout), np.array(lengths, np.int64)
        owners = np.repeat(np.arange(self._count), [len(each) for each in heldout])
        codes = np.concatenate([*heldout, np.empty(0, np.uint64)])
        self._codes, place, holders = np.unique(codes, return_inverse=True, return_counts=True)
        order = np.argsort(place, kind="stable")
        self._owners, self._ends = owners[order], np.cumsum(holders)
        self._said = np.zeros(len(self._codes), np.int64)
        self._texts = 0
        self._hits: list[NDArray[np.int64]] = []
        self._runs: list[NDArray[np.int64]] = []
        self._template = holders > TEMPLATE

    def look(self, runs: Grams, text: NDArray[np.int64]) -> None:
        """Note which of the wanted runs stand in which of some training answers."""
        places = np.minimum(np.searchsorted(self._codes, runs), max(0, len(self._codes) - 1))
        wanted = self._codes[places] == runs if len(self._codes) else np.zeros(len(runs), bool)
        if not wanted.any():
            return
        pairs = np.unique((text[wanted] + self._texts) * len(self._codes) + places[wanted])
        self._runs.append(np.bincount(text))
        self._texts += len(self._runs[-1])
        self._said += np.bincount(pairs % len(self._codes), minlength=len(self._codes))
        self._template |= self._said > TEMPLATE
        self._hits.append(pairs[~self._template[pairs % len(self._codes)]])

    def similarities(self) -> NDArray[np.float64]:
        """Estimated Jaccard similarity of each held-out answer, shape (rows,): 0 of one that has fewer than MIN_RUNS
        left when templates are away."""
        similarities = np.zeros(self._count)
        if not self._hits:
            return similarities
        texts, places = np.divmod(np.concatenate(self._hits), len(self._codes))
        texts, places = texts[~self._template[places]], places[~self._template[places]]
        holders = np.diff(self._ends, prepend=0)
        owned = np.repeat(~self._template, holders)
        lengths = np.bincount(self._owners[owned], minlength=self._count)
        repeats = holders[places]
        starts = np.repeat(self._ends[places] - np.cumsum(repeats), repeats)
        owners = self._owners[starts + np.arange(repeats.sum())]
        codes, shared = np.unique(np.repeat(texts, repeats) * self._count + owners, return_counts=True)
        texts, owners = np.divmod(codes, self._count)
        common = shared / lengths[owners] * self._lengths[owners]
        together = self._lengths[owners] + np.concatenate(self._runs)[texts] - common
        enough = lengths[owners] >= MIN_RUNS
        np.maximum.at(similarities, owners[enough], (common / together)[enough])
        return similarities


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
                numbers = _numbers([added(text)], words)
                few = np.unique(_runs(numbers, FEW_WORDS)[0])
                many = np.unique(_runs(numbers, WORDS)[0])
                yield _HeldOut(row["row"], _plain(text), many, few[:MAX_RUNS], len(few))


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


def _numbers(texts: Sequence[str], words: _WordNumbers) -> tuple[Grams, list[int]]:
    """The number of each word of some texts, one after the other, and how many words each text has."""
    found = [_WORD.findall(text.lower()) for text in texts]
    lengths = [len(each) for each in found]
    numbers = np.fromiter(map(words.__getitem__, itertools.chain.from_iterable(found)), np.uint64, sum(lengths))
    return numbers, lengths


def _runs(numbers: tuple[Grams, list[int]], length: int) -> tuple[Grams, NDArray[np.int64]]:
    """A number for each run of so many words in one of the texts, and the text's place; none in a shorter text."""
    values, lengths = numbers
    count = len(values) - length + 1
    if count < 1:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    runs = np.zeros(count, np.uint64)
    for place, factor in enumerate(_FACTORS[:length]):
        runs += values[place : place + count] * factor
    text = np.repeat(np.arange(len(lengths)), lengths)
    within = text[:count] == text[length - 1 :]
    return runs[within], text[:count][within]


def _mark(seen: NDArray[np.bool_], wanted: Grams, grams: Grams) -> None:
    if len(wanted) and len(grams):
        grams = np.unique(grams)
        places = np.minimum(np.searchsorted(wanted, grams), len(wanted) - 1)
        seen[places[wanted[places] == grams]] = True


def _share(grams: Grams, wanted: Grams, seen: NDArray[np.bool_]) -> float:
    return float(seen[np.searchsorted(wanted, grams)].mean()) if len(grams) else 0.0

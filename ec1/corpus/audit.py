"""The audit of a finished dataset: does the held-out side stand in what is trained on?

Belongs here: a second look at the rows as they were written, by a separate rule. Does not: the split and its rules
(split, dataset), whose work this judges: nothing of theirs is used.

A held-out answer counts as known if a training answer is the same text, or if half of its runs of thirteen words stand
in training answers (the n-gram of https://arxiv.org/abs/2005.14165 appendix C). Of a diff the added lines count: what
surrounds them stands in the prompt anyway. Text that training only reads, and does not learn, is counted apart.
"""

import heapq
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = 13
KNOWN_SHARE = 0.5
VERBATIM_CHARACTERS = 40
"""Shorter answers are the same by nature: yes, no, a number."""
MAX_CHECKED = 20_000
"""Held-out rows that are looked at: the first ones, by digest."""

MAX_WORDS = 200_000
"""Words whose numbers are remembered at a time."""

_EXAMPLES = 5
_WORD = re.compile(r"\w+")
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
    """Look at `<folder>/train` and `<folder>/heldout`, single answers or pairs."""
    answered = ((str(row["row"]), _text(_last_answer(row))) for row in _rows(folder / "heldout"))
    heldout = heapq.nsmallest(MAX_CHECKED, answered, key=lambda row: row[0])
    words: dict[str, int] = {}
    grams = [_grams(_added(text), words) for _, text in heldout]
    wanted = np.unique(np.concatenate([*grams, np.empty(0, np.uint64)]))
    learnt = np.zeros(len(wanted), dtype=bool)
    read = np.zeros(len(wanted), dtype=bool)
    answers = {_plain(text): False for _, text in heldout}
    for row in _rows(folder / "train"):
        for message in _messages(row):
            own = message["role"] == "assistant"
            if own and (plain := _plain(message["content"])) in answers:
                answers[plain] = True
            _mark(learnt if own else read, wanted, _grams(message["content"], words))
        words = words if len(words) < MAX_WORDS else {}
    verbatim = np.array(
        [len(plain) >= VERBATIM_CHARACTERS and answers[plain] for plain in (_plain(text) for _, text in heldout)],
        dtype=bool,
    )
    contained = np.array([_share(own, wanted, learnt) >= KNOWN_SHARE for own in grams], dtype=bool)
    given = np.array([_share(own, wanted, learnt | read) >= KNOWN_SHARE for own in grams], dtype=bool)
    known = verbatim | contained
    return Audit(
        checked=len(heldout),
        verbatim=int(verbatim.sum()),
        contained=int(contained.sum()),
        known=int(known.sum()),
        read=int((given & ~known).sum()),
        examples=tuple(heldout[place][0] for place in np.flatnonzero(known)[:_EXAMPLES]),
    )


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    wanted = {"prompt", "completion", "chosen", "rejected", "row"}
    with pq.ParquetFile(folder / "rows.parquet") as file:
        for batch in file.iter_batches(500, columns=[name for name in file.schema_arrow.names if name in wanted]):
            yield from batch.to_pylist()


def _last_answer(row: dict[str, Any]) -> list[dict[str, str]]:
    answer: list[dict[str, str]] = row.get("completion") or row["chosen"]
    return answer


def _messages(row: dict[str, Any]) -> Iterator[dict[str, str]]:
    for column in ("prompt", "completion", "chosen", "rejected"):
        yield from row.get(column) or ()


def _text(messages: list[dict[str, str]]) -> str:
    return "\n".join(message["content"] for message in messages)


def _added(text: str) -> str:
    if not re.search(r"(?m)^@@ ", text):
        return text
    return "\n".join(line[1:] for line in text.splitlines() if line.startswith("+") and not line.startswith("+++"))


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _grams(text: str, words: dict[str, int]) -> Grams:
    """A number for each run of thirteen words; none for a shorter text. `words` remembers the number of each word."""
    found = _WORD.findall(text.lower())
    if len(found) < WORDS:
        return np.empty(0, np.uint64)
    numbers = np.empty(len(found), np.uint64)
    for place, word in enumerate(found):
        number = words.get(word)
        if number is None:
            raw = word.encode("utf-8", "replace")
            number = words[word] = zlib.crc32(raw) << 32 | zlib.adler32(raw)
        numbers[place] = number
    runs = np.lib.stride_tricks.sliding_window_view(numbers, WORDS)
    return np.unique((runs * _FACTORS).sum(axis=1, dtype=np.uint64))


def _mark(seen: NDArray[np.bool_], wanted: Grams, grams: Grams) -> None:
    if len(wanted) and len(grams):
        places = np.minimum(np.searchsorted(wanted, grams), len(wanted) - 1)
        seen[places[wanted[places] == grams]] = True


def _share(grams: Grams, wanted: Grams, seen: NDArray[np.bool_]) -> float:
    return float(seen[np.searchsorted(wanted, grams)].mean()) if len(grams) else 0.0

"""What the training side knows of the held-out examples: equal answers, equal prompts, and n-grams.

The split keeps groups apart; this looks at what was really trained on, whatever became a group. A held-out example
that training knows is in no score: to answer it needs memory only. Words are compared in lower case and without marks,
so case, punctuation and what stands around a question hide nothing; a script without spaces is compared by characters.

n-grams of 8 words: GPT-3 looked for 13, Llama 2 for 10 tokens of which 80 % must fit (https://arxiv.org/abs/2307.09288,
appendix A.6). Belongs here: finding. Does not: what follows for the scores (`evaluation.py`).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ec1.adapters.likelihood import HeldOutExample
from ec1.adapters.scores import Overlap
from ec1.answers.success import words_of
from ec1.corpus.row_kinds import RowKind

N = 8
TRIVIAL_WORDS = 6
"""Shorter answers and prompts may be equal by chance: yes, a class, a greeting."""
_NEAR = 0.8

Words = tuple[str, ...]


def overlap_with(train: Path, examples: Sequence[HeldOutExample], kind: RowKind) -> tuple[Overlap, set[int]]:
    """What the rows in a folder of Parquet files know of the examples, and the places of those that they know.

    Reads the rows once; what is kept in memory is of the examples alone. Raises InputError as `rows_of`.
    """
    answers = [_plain(each.expected) for each in examples]
    prompts = [_plain(each.prompt_text) for each in examples]
    known_answers, known_prompts = _Grams(answers), _Grams(prompts)
    by_answer, by_prompt = _places(answers), _places(prompts)
    equal_answers, equal_prompts, near, seen = set[int](), set[int](), set[int](), set[Words]()
    rows = 0
    for prompt, sides in _rows(train, kind):
        rows += 1
        equal_prompts.update(by_prompt.get(prompt, ()))
        for answer in sides:
            equal_answers.update(by_answer.get(answer, ()))
            seen |= known_answers.shared(answer)
            near |= known_answers.near(answer) & known_prompts.near(prompt)
    known = equal_answers | equal_prompts | near
    return (
        Overlap(
            examples=len(examples),
            rows=rows,
            equal_answers=len(equal_answers),
            equal_prompts=len(equal_prompts),
            near=len(near),
            removed=len(known),
            ngrams=len(seen) / len(known_answers.where) if known_answers.where else 0.0,
            n=N,
        ),
        known,
    )


class _Grams:
    """The n-grams of some texts, to find the texts that another one nearly contains."""

    def __init__(self, texts: Sequence[Words]) -> None:
        self.own = [_grams(text) for text in texts]
        self.where: dict[Words, list[int]] = defaultdict(list)
        for place, grams in enumerate(self.own):
            for gram in grams:
                self.where[gram].append(place)

    def shared(self, text: Words) -> set[Words]:
        return {gram for gram in _grams(text) if gram in self.where}

    def near(self, text: Words) -> set[int]:
        found = Counter(place for gram in self.shared(text) for place in self.where[gram])
        return {place for place, count in found.items() if count >= _NEAR * len(self.own[place])}


def _plain(text: str) -> Words:
    return tuple(word for word in words_of(text) if word[0].isalnum() or word[0] == "_")


def _grams(words: Words) -> frozenset[Words]:
    return frozenset(words[at : at + N] for at in range(len(words) - N + 1))


def _places(texts: Sequence[Words]) -> dict[Words, list[int]]:
    found: dict[Words, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        if len(text) >= TRIVIAL_WORDS:
            found[text].append(place)
    return found


def _rows(train: Path, kind: RowKind) -> Iterator[tuple[Words, list[Words]]]:
    """The last question of each row and the answers to it. A few rows at a time are in memory."""
    import pyarrow.parquet as pq

    for file in sorted(train.glob("*.parquet")):
        for batch in pq.ParquetFile(file).iter_batches(batch_size=1024, columns=list(kind.columns)):
            for row in batch.to_pylist():
                yield _plain(_text(row["prompt"][-1:])), [_plain(_text(row[side])) for side in kind.sides]


def _text(messages: Sequence[dict[str, Any]]) -> str:
    return "\n".join(str(message["content"]) for message in messages)

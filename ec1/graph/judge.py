"""Whether two names are one: asked of the served model as a choice between two words, answered by log-probabilities.

Belongs here: the question and how its answer is read. Does not: which pairs are asked about (`ec1.night.judging`), the
wire (`ec1.extraction.openai`), what is kept of the answers (`judgements.py`).

A question is a constant beginning with examples, then both sides with their sentences. Each pair is asked about twice,
once with either side first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ec1.errors import InputError
from ec1.extraction.client import ChatClient
from ec1.extraction.decision import as_line, scores_in
from ec1.extraction.extractor import Extractor
from ec1.files import digest_of

# Raise this when the same pair would be asked about otherwise, or the same log-probabilities be read otherwise.
JUDGE_VERSION = 1
LABELS = (" same", " different")
"""The words of the answer."""
PAIRS_A_REQUEST = 16
_CONTEXT_CHARACTERS = 120
"""Of a sentence on either side of its name."""

_Example = tuple[str, tuple[str, str], tuple[str, str], str]
_EXAMPLES: tuple[_Example, ...] = (
    (
        "person",
        ("M. Alvarez", "M. Alvarez signed for Northwind Capital on Monday."),
        ("Maria Alvarez", "Maria Alvarez of Northwind Capital sent the contract."),
        LABELS[0],
    ),
    (
        "person",
        ("Petrov", "Petrov plays the cello in Leipzig."),
        ("Ivan Petrov", "Minister Ivan Petrov resigned after the vote."),
        LABELS[1],
    ),
    (
        "company",
        ("Tessera Labs", "Tessera Labs of Graz builds sensors."),
        ("Tessera Foods", "Tessera Foods sells cheese in Turin."),
        LABELS[1],
    ),
    (
        "company",
        ("UoL", "She studied at UoL and stayed in Lisbon."),
        ("University of Lisbon", "The University of Lisbon (UoL) is the oldest of the country."),
        LABELS[0],
    ),
    (
        "place",
        ("Vancouver, BC", "The flight to Vancouver, BC is late."),
        ("Vancouver", "Vancouver is the largest city of British Columbia."),
        LABELS[0],
    ),
    (
        "place",
        ("Harbour Street", "The shop in Harbour Street is closed."),
        ("Harbour Island", "A ferry goes to Harbour Island."),
        LABELS[1],
    ),
)


@dataclass(frozen=True)
class Side:
    """One of the two names, with sentences that name it."""

    name: str
    sentences: tuple[str, ...]

    @property
    def digests(self) -> tuple[str, ...]:
        return tuple(digest_of(each) for each in self.sentences)


@dataclass(frozen=True)
class Question:
    """Two names of one kind, such as `person`."""

    kind: str
    one: Side
    other: Side

    @property
    def sentences(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The digests of what is shown."""
        return self.one.digests, self.other.digests


@dataclass(frozen=True)
class Judge:
    """Who judges. `digest` is of all that decides an answer to the same question."""

    model: str
    digest: str
    labels: dict[int, str]
    """The first token of each label."""

    @classmethod
    def of(cls, extractor: Extractor) -> "Judge":
        """The model that an extractor is served with. Raises InputError without its tokenizer, or if it cannot tell the
        two words by their first tokens."""
        adapter = extractor.adapter
        name = f"{extractor.model_id}@{extractor.revision[:12]}{f' with {adapter.name}' if adapter else ''}"
        tokens = extractor.first_tokens(LABELS)
        if len(set(tokens)) < len(LABELS):
            raise InputError(f"{extractor.model_id} begins `same` and `different` alike: set graph.judge to off")
        decides = [extractor.model_id, extractor.revision, adapter.digest if adapter else None, JUDGE_VERSION]
        return cls(name, digest_of([*decides, _beginning()]), dict(zip(tokens, LABELS, strict=True)))


def excerpt(before: str, name: str, after: str) -> str:
    """A sentence around a name, as the model is shown it; empty without a name."""
    if not name.strip():
        return ""
    return as_line(f"{before[-_CONTEXT_CHARACTERS:]}{name}{after[:_CONTEXT_CHARACTERS]}")


def prompts(question: Question) -> tuple[str, str]:
    """The question with `one` first, and with `other` first."""
    one, other = ((side.name, *side.sentences) for side in (question.one, question.other))
    beginning = _beginning()
    return beginning + _asked(question.kind, one, other), beginning + _asked(question.kind, other, one)


async def ask(
    decider: ChatClient, judge: Judge, questions: Sequence[Question], *, deadline: float | None
) -> list[tuple[float, float]]:
    """The probability that both sides are the same, for each question in both orders, in one request.

    `deadline` is in `time.monotonic` seconds. Raises as `ChatClient.complete`.
    """
    asked = [prompt for question in questions for prompt in prompts(question)]
    completion = await decider.complete(
        [{"role": "user", "content": prompt} for prompt in asked],
        {"labels": judge.labels, "add_special_tokens": True},
        stream="graph",
        deadline=deadline,
    )
    rows = scores_in(completion.content, len(asked), len(LABELS))
    found = [_probability(row) for row in rows]
    return list(zip(found[::2], found[1::2], strict=True))


def _probability(scores: Sequence[float]) -> float:
    same, different = scores
    return 1 / (1 + math.exp(min(different - same, 700.0)))


def _beginning() -> str:
    parts = ["Say of each two names, after sentences about each, if they are the same or different.\n\n"]
    for kind, one, other, answer in _EXAMPLES:
        parts.append(f"{_asked(kind, one, other)}{answer}\n\n")
    return "".join(parts)


def _asked(kind: str, one: Sequence[str], other: Sequence[str]) -> str:
    """Each side is its name, and then its sentences."""
    sides = []
    for number, (name, *sentences) in enumerate((one, other), 1):
        sides.append(f"{kind.capitalize()} {number}: {as_line(name)}\n")
        sides += [f"- {sentence}\n" for sentence in sentences]
    return f"{''.join(sides)}{kind.capitalize()} 1 and {kind} 2 are:"

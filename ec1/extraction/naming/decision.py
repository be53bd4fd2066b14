"""Which class each proposed span has, or none: asked of the model one span at a time, answered by log-probabilities.

Belongs here: how a span is put to the model, and what its log-probabilities say. Does not: where spans come from
(`candidates`), the wire (`openai`), and how sure that makes us (`confidence`).

A question is a constant beginning with examples, the chunk's text, and the span; the answer is one word out of the
class labels and `none`. All questions about one chunk go in one request and differ only in their last words, so a
server with a prefix cache reads beginning and chunk once.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ec1.documents.chunks import Chunk
from ec1.errors import DeferredError
from ec1.extraction.folding import normalised
from ec1.extraction.naming.candidates import Candidate, Source
from ec1.extraction.prompt import escape, one_line, shows
from ec1.extraction.results import ENTITY_CLASSES, EntityClass
from ec1.vocabulary import CONTRACT, Kept, Vocabulary

# Raise this when the same text would be asked about otherwise, or the same log-probabilities be read otherwise.
DECISION_VERSION = 1

LABELS: dict[EntityClass | None, str] = {
    "Person": " person",
    "Company": " company",
    "Project": " project",
    "Account": " account",
    "Location": " place",
    None: " none",
}
"""The word that stands for each of the contract's classes in the model's answer, and the one for no class."""

_INTRODUCTION = "Say what each name in the text is: {classes}, or none (no name)."
_EXPLAINED = {"Company": "any organisation"}
_EXAMPLES: tuple[tuple[str, tuple[tuple[str, EntityClass | None], ...]], ...] = (
    (
        "Maria Alvarez: Northwind Capital signed for Project Heron. Ken, please fly to Vancouver.",
        (
            ("Northwind Capital", "Company"),
            ("Ken", "Person"),
            ("Vancouver", "Location"),
            ("Project Heron", "Project"),
        ),
    ),
    (
        "The Sable account is late, said Petrov of Orchard Foods Ltd.",
        (("Sable account", "Account"), ("Petrov", "Person"), ("Orchard Foods Ltd", "Company")),
    ),
    (
        "However, the Consumer Rights Act applies from Monday, and Section 4 does not.",
        (("Consumer Rights Act", None), ("However", None), ("Monday", None)),
    ),
    (
        "Samuel Green of the University of Lisbon told Science Weekly about his trip to Peru.",
        (("University of Lisbon", "Company"), ("Peru", "Location"), ("Samuel Green", "Person")),
    ),
    (
        "BLUE FINCH is behind, and the data is still in Leipzig. English is spoken there.",
        (("BLUE FINCH", "Project"), ("English", None), ("Leipzig", "Location")),
    ),
    (
        "name: Dr. Lena Fischer\nemployer: Tessera Labs GmbH\ncity: Graz, Austria",
        (("Lena Fischer", "Person"), ("Tessera Labs GmbH", "Company"), ("Austria", "Location")),
    ),
    (
        "Please book it on Falcon Reserve, the account that Ms. Dubois opened.",
        (("Falcon Reserve", "Account"), ("Dubois", "Person"), ("Please", None)),
    ),
    (
        "The Senate passed it. Great news, said IBM.",
        (("Senate", "Company"), ("Great", None), ("IBM", "Company")),
    ),
    (
        "Agenda: Budget, Tom Reyes on the Harbour Upgrade. Results: see Table 2.",
        (("Budget", None), ("Tom Reyes", "Person"), ("Harbour Upgrade", "Project"), ("Table 2", None)),
    ),
)
# What the examples call none, by their number, in the words of the filters that would drop it.
_UNNAMED: dict[int, frozenset[Kept]] = {2: frozenset({"laws", "dates"})}


@dataclass(frozen=True)
class Decided:
    """What the model said of the characters `[start, end)` of a text: a log-probability for each of `classes`, and then
    for none."""

    start: int
    end: int
    source: Source
    scores: tuple[float, ...]
    classes: tuple[EntityClass, ...] = ENTITY_CLASSES

    def of(self, entity_class: EntityClass | None) -> float:
        """The log-probability of a class, or of none."""
        return self.scores[-1 if entity_class is None else self.classes.index(entity_class)]

    @property
    def best(self) -> EntityClass:
        """The class that is likeliest, if it is a name."""
        return max(self.classes, key=self.of)


def labels(vocabulary: Vocabulary = CONTRACT) -> Mapping[EntityClass | None, str]:
    """The word for each class of a deployment, and at last the one for none."""
    own = {name: f" {each.spoken}" for name, each in vocabulary.by_name.items()}
    return {name: own[name] if name in own else LABELS[name] for name in (*vocabulary.classes, None)}


def questions(chunk: Chunk, names: Iterable[str], vocabulary: Vocabulary = CONTRACT) -> list[str]:
    """The prompts about these names of a chunk; all begin with the same bytes."""
    beginning = f"{_beginning(vocabulary)}{_asked(chunk.text)}"
    return [f"{beginning}{as_line(name)} =" for name in names]


def spans_of(chunk: Chunk, candidates: Sequence[Candidate]) -> list[Candidate]:
    """One candidate for each name of a chunk: where it stands first. Candidates that cross its border are left out."""
    found: dict[str, Candidate] = {}
    for each in candidates:
        if chunk.start <= each.start and each.end <= chunk.end:
            found.setdefault(normalised(chunk.text[each.start - chunk.start : each.end - chunk.start]), each)
    found.pop("", None)
    return list(found.values())


def encode(answer: str, spans: Sequence[Candidate], scores: Sequence[Sequence[float]]) -> str:
    """The model's own answer (or nothing) and its decisions, as one content for the answer log."""
    decided = [
        {"start": span.start, "end": span.end, "source": span.source, "scores": [round(each, 4) for each in row]}
        for span, row in zip(spans, scores, strict=True)
    ]
    return json.dumps({"answer": answer, "decided": decided})


def decode(content: str, vocabulary: Vocabulary = CONTRACT) -> tuple[str, list[Decided]]:
    """What `encode` made. Raises DeferredError for what is none."""
    try:
        value = json.loads(content)
        decided = [
            Decided(row["start"], row["end"], row["source"], tuple(row["scores"]), vocabulary.classes)
            for row in value["decided"]
        ]
        return value["answer"], decided
    except (ValueError, KeyError, TypeError) as error:
        raise DeferredError(f"the logged decisions cannot be read: {error}") from None


def scores_in(content: str, asked: int, labelled: int = len(LABELS)) -> list[list[float]]:
    """The log-probabilities in a decider's answer, a row a question, as many in each as there are labels. Raises
    DeferredError if some are missing."""
    try:
        rows = json.loads(content)
        scores = [[float(each) for each in row] for row in rows]
    except (ValueError, TypeError) as error:
        raise DeferredError(f"the decisions cannot be read: {error}") from None
    if len(scores) != asked or any(
        len(row) != labelled or not all(math.isfinite(each) for each in row) for row in scores
    ):
        raise DeferredError(f"{asked} questions, and decisions for {len(scores)}")
    return scores


def _asked(text: str) -> str:
    return f"Text: {as_line(text)}\n"


def as_line(text: str) -> str:
    """A text of a document as a part of a question."""
    return escape(" ".join(text.split()))


@lru_cache(maxsize=16)
def _beginning(vocabulary: Vocabulary) -> str:
    words = labels(vocabulary)
    explained = _EXPLAINED | {own.name: one_line(own.description) for own in vocabulary.own}
    classes = [
        words[each].strip() + (f" ({explained[each]})" if each in explained else "") for each in vocabulary.classes
    ]
    parts = [_INTRODUCTION.format(classes=", ".join(classes)), "\n\n"]
    for text, names in _shown(vocabulary):
        parts.append(_asked(text))
        parts += [f"{name} ={words[entity_class]}\n" for name, entity_class in names]
        parts.append("\n")
    return "".join(parts)


def _shown(vocabulary: Vocabulary) -> Iterator[tuple[str, Sequence[tuple[str, EntityClass | None]]]]:
    for number, (text, names) in enumerate(_EXAMPLES):
        if shows(names, _UNNAMED.get(number, frozenset()), vocabulary):
            yield text, names
    for own in vocabulary.own:
        for example in own.parsed:
            yield example.text, [(as_line(name), entity_class) for name, entity_class in example.names]

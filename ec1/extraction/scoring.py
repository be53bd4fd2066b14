"""Precision and recall of extraction against a gold file, per class.

A gold file has one JSON object a line: `{"stream": …, "path": …, "entities": [{"name": …, "class": …}, …]}`, with the
path relative to the document root. An entity of a document counts once, however often it is mentioned; names are equal
if they are after normalisation (case, accents, blanks, punctuation at the ends).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status, extractor_fingerprint
from ec1.errors import InputError
from ec1.extraction.folding import normalised
from ec1.extraction.results import ENTITY_CLASSES, Mention

if TYPE_CHECKING:
    from ec1.extraction.outbox import Outbox

Entities = Mapping[DocumentKey, frozenset[tuple[str, str]]]
"""Of each document: (normalised name, class) of its entities."""


@dataclass(frozen=True)
class Score:
    """How many entities were found, how many should have been, and how many of the found were right."""

    label: str
    found: int
    gold: int
    right: int

    @property
    def precision(self) -> float:
        """Share of the found that is right; 1 if nothing was found."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """Share of the gold that was found; 1 if there is none."""
        return self.right / self.gold if self.gold else 1.0

    @property
    def f1(self) -> float:
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True)
class ScoreTable:
    """One row for each class, one for all with the class right, one for all whatever the class."""

    documents: int
    rows: tuple[Score, ...]

    def __getitem__(self, label: str) -> Score:
        return next(row for row in self.rows if row.label == label)

    def record(self) -> dict[str, dict[str, float]]:
        """All figures as JSON types."""
        return {
            row.label: {
                "found": row.found,
                "gold": row.gold,
                "right": row.right,
                "precision": round(row.precision, 3),
                "recall": round(row.recall, 3),
                "f1": round(row.f1, 3),
            }
            for row in self.rows
        }

    def __str__(self) -> str:
        lines = [f"{'':<12}{'gold':>6}{'found':>7}{'right':>7}{'precision':>11}{'recall':>8}{'F1':>7}"]
        lines += [
            f"{row.label:<12}{row.gold:>6}{row.found:>7}{row.right:>7}{row.precision:>11.2f}{row.recall:>8.2f}"
            f"{row.f1:>7.2f}"
            for row in self.rows
        ]
        return "\n".join(lines)


def read_gold(path: Path) -> Entities:
    """Read a gold file. Raises InputError with the line that is wrong, or if there is no such file."""
    if not path.is_file():
        raise InputError(f"there is no gold file {path}: name one that is there (extraction.gold, or --gold)")
    gold: dict[DocumentKey, frozenset[tuple[str, str]]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            key = DocumentKey(value["stream"], value["path"])
            gold[key] = frozenset((normalised(each["name"]), each["class"]) for each in value["entities"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number}: no gold record: {type(error).__name__} {error}") from None
    return gold


def entities_of(mentions: Iterable[Mention]) -> frozenset[tuple[str, str]]:
    """The entities that a document's mentions amount to."""
    return frozenset((normalised(each.name), each.entity_class) for each in mentions)


def score_ledger(ledger: Mapping[DocumentKey, LedgerEntry], outbox: "Outbox", gold: Entities) -> ScoreTable:
    """Score what counts of the documents that `gold` knows: those that the ledger says are applied."""
    predicted = {}
    for key in gold:
        entry = ledger.get(key)
        if entry is not None and entry.status == Status.APPLIED:
            result = outbox.get(extractor_fingerprint(entry.fingerprint), entry.content_sha256)
            if result is not None:
                predicted[key] = entities_of(result.mentions)
    return score(predicted, gold)


def score(predicted: Entities, gold: Entities) -> ScoreTable:
    """Compare over the documents that `gold` knows; one without a prediction found nothing."""
    rows = []
    for label in (*ENTITY_CLASSES, "all", "any class"):
        found = right = wanted = 0
        for key, expected in gold.items():
            ours, theirs = _of_label(predicted.get(key, frozenset()), label), _of_label(expected, label)
            found += len(ours)
            wanted += len(theirs)
            right += len(ours & theirs)
        rows.append(Score(label, found, wanted, right))
    return ScoreTable(len(gold), tuple(rows))


def _of_label(entities: frozenset[tuple[str, str]], label: str) -> frozenset[tuple[str, str]]:
    if label == "all":
        return entities
    if label == "any class":
        return frozenset((name, "") for name, _ in entities)
    return frozenset(each for each in entities if each[1] == label)

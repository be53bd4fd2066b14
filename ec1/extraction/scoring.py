"""Precision and recall of extraction against a gold file, per class.

A gold file has one JSON object a line: `{"stream": …, "path": …, "entities": [{"name": …, "class": …}, …]}`, with the
path relative to the document root. An entity of a document counts once, however often it is mentioned; names are equal
if they are after normalisation (case, accents, blanks, punctuation at the ends).

Every figure has an interval beside it: the middle 95 % of what resampling the documents with replacement gives (Efron's
bootstrap, by document, because names of one document depend on each other).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status, extractor_fingerprint
from ec1.documents.parse import parse_document
from ec1.errors import InputError, RejectedError
from ec1.extraction import baseline
from ec1.extraction.folding import normalised
from ec1.extraction.results import ENTITY_CLASSES, Mention
from ec1.vocabulary import CONTRACT, Vocabulary

if TYPE_CHECKING:
    from ec1.extraction.outbox import Outbox

_RESAMPLES = 1000

Entities = Mapping[DocumentKey, frozenset[tuple[str, str]]]
"""Of each document: (normalised name, class) of its entities."""


@dataclass(frozen=True)
class Score:
    """How many entities were found, how many should have been, and how many of the found were right."""

    label: str
    found: int
    gold: int
    right: int
    interval: tuple[float, float] = (0.0, 1.0)
    """Of the F1: the 2.5th and the 97.5th percentile over resampled documents."""

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
    """One row for each class, one for all with the class right, one for all whatever the class.

    `baseline` is the same of what capital letters and six rules find in the same texts (`baseline`).
    """

    documents: int
    rows: tuple[Score, ...]
    baseline: "ScoreTable | None" = None

    def __getitem__(self, label: str) -> Score:
        return next(row for row in self.rows if row.label == label)

    def record(self) -> dict[str, dict[str, Any]]:
        """All figures as JSON types."""
        return {
            row.label: {
                "found": row.found,
                "gold": row.gold,
                "right": row.right,
                "precision": round(row.precision, 3),
                "recall": round(row.recall, 3),
                "f1": round(row.f1, 3),
                "f1_low": round(row.interval[0], 3),
                "f1_high": round(row.interval[1], 3),
                **(
                    {
                        "baseline_precision": round(self.baseline[row.label].precision, 3),
                        "baseline_recall": round(self.baseline[row.label].recall, 3),
                        "baseline_f1": round(self.baseline[row.label].f1, 3),
                    }
                    if self.baseline is not None
                    else {}
                ),
            }
            for row in self.rows
        }

    def __str__(self) -> str:
        beside = "   base line: precision recall    F1" if self.baseline is not None else ""
        lines = [f"{'':<12}{'gold':>6}{'found':>7}{'right':>7}{'precision':>11}{'recall':>8}{'F1':>7}  (95 %){beside}"]
        for row in self.rows:
            line = (
                f"{row.label:<12}{row.gold:>6}{row.found:>7}{row.right:>7}{row.precision:>11.2f}{row.recall:>8.2f}"
                f"{row.f1:>7.2f} {row.interval[0]:.2f}-{row.interval[1]:.2f}"
            )
            if self.baseline is not None:
                other = self.baseline[row.label]
                line += f"{other.precision:>20.2f}{other.recall:>7.2f}{other.f1:>6.2f}"
            lines.append(line)
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


def score_ledger(
    ledger: Mapping[DocumentKey, LedgerEntry],
    outbox: "Outbox",
    gold: Entities,
    documents: Path | None = None,
    max_bytes: int = 50 * 2**20,
    vocabulary: Vocabulary = CONTRACT,
) -> ScoreTable:
    """Score what counts of the documents that `gold` knows: those that the ledger says are applied.

    With the document root, the base line stands beside it, over those documents that still hold the version scored.
    """
    predicted, texts = {}, {}
    for key in gold:
        entry = ledger.get(key)
        if entry is not None and entry.status == Status.APPLIED:
            result = outbox.get(extractor_fingerprint(entry.fingerprint), entry.content_sha256)
            if result is not None:
                predicted[key] = entities_of(result.mentions)
            if documents is not None and (text := _text(documents, entry, max_bytes)) is not None:
                texts[key] = baseline.names_of(text, vocabulary)
    table = score(predicted, gold, vocabulary.classes)
    return table if documents is None else replace(table, baseline=score(texts, gold, vocabulary.classes))


def _text(documents: Path, entry: LedgerEntry, max_bytes: int) -> str | None:
    path = documents / entry.key.path
    if not path.is_file() or path.stat().st_size > max_bytes:
        return None
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != entry.content_sha256:
        return None
    try:
        return parse_document(entry.key, data).text
    except RejectedError:
        return None


def score(predicted: Entities, gold: Entities, classes: Sequence[str] = ENTITY_CLASSES) -> ScoreTable:
    """Compare over the documents that `gold` knows; one without a prediction found nothing."""
    rows = []
    for label in (*classes, "all", "any class"):
        counts = []
        for key, expected in gold.items():
            ours, theirs = _of_label(predicted.get(key, frozenset()), label), _of_label(expected, label)
            counts.append((len(ours), len(theirs), len(ours & theirs)))
        found, wanted, right = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0)
        rows.append(Score(label, found, wanted, right, _interval(counts)))
    return ScoreTable(len(gold), tuple(rows))


def _interval(counts: Sequence[tuple[int, int, int]]) -> tuple[float, float]:
    """The middle 95 % of F1 over resampled documents, each given as (found, gold, right)."""
    import numpy as np

    if not counts:
        return 0.0, 1.0
    table = np.array(counts)
    # The same documents in every row and in every call: intervals of one run compare.
    drawn = np.random.default_rng(0).integers(0, len(table), (_RESAMPLES, len(table)))
    found, gold, right = table[drawn].sum(axis=1).T
    f1 = np.where(found + gold > 0, 2 * right / np.maximum(found + gold, 1), 1.0)
    low, high = np.quantile(f1, [0.025, 0.975])
    return float(low), float(high)


def _of_label(entities: frozenset[tuple[str, str]], label: str) -> frozenset[tuple[str, str]]:
    if label == "all":
        return entities
    if label == "any class":
        return frozenset((name, "") for name, _ in entities)
    return frozenset(each for each in entities if each[1] == label)

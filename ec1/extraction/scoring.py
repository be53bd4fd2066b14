"""Precision and recall of extraction against a gold file, per class.

A gold file has one JSON object a line: `{"stream": …, "path": …, "entities": [{"name": …, "class": …}, …]}`, with the
path relative to the document root. An entity of a document counts once, however often it is mentioned; names are equal
if they are after normalisation (case, accents, blanks, punctuation at the ends).

Every figure has an interval beside it: the middle 95 % of what resampling the documents with replacement gives (Efron's
bootstrap, by document, because names of one document depend on each other). Where a class has neither gold nor
anything found there is no figure.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status, extractor_fingerprint
from ec1.documents.reader import DocumentReader
from ec1.errors import DeferredError, InputError, RejectedError
from ec1.extraction.folding import normalised
from ec1.extraction.naming import baseline
from ec1.extraction.results import ENTITY_CLASSES, Mention
from ec1.vocabulary import CONTRACT, Vocabulary

if TYPE_CHECKING:
    from ec1.extraction.reading.outbox import Outbox

_RESAMPLES = 1000

Entities = Mapping[DocumentKey, frozenset[tuple[str, str]]]
"""Of each document: (normalised name, class) of its entities."""


Interval = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """How many entities were found, how many should have been, and how many of the found were right."""

    label: str
    found: int
    gold: int
    right: int
    interval: Interval = (0.0, 1.0)
    """Of the F1: the 2.5th and the 97.5th percentile over resampled documents."""
    precision_interval: Interval = (0.0, 1.0)
    recall_interval: Interval = (0.0, 1.0)

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
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many documents of the gold were not compared, by the reason."""

    def __getitem__(self, label: str) -> Score:
        return next(row for row in self.rows if row.label == label)

    def record(self) -> dict[str, dict[str, float | None]]:
        """All figures as JSON types; None where there is none."""
        return {
            row.label: {
                "found": row.found,
                "gold": row.gold,
                "right": row.right,
                **_figures(row),
                **(_figures(self.baseline[row.label], "baseline_") if self.baseline is not None else {}),
            }
            for row in self.rows
        }

    def __str__(self) -> str:
        columns = f"{'precision':>15}{'recall':>15}{'F1':>15}"
        beside = f"   base line:{'precision':>9}{'recall':>7}{'F1':>15}" if self.baseline is not None else ""
        lines = [f"{'':<11}{'gold':>5}{'found':>6}{'right':>6}{columns}{beside}"]
        for row in self.rows:
            ours = "".join(f"{shown_figure(*each):>15}" for each in figures_of(row))
            line = f"{row.label:<11}{row.gold:>5}{row.found:>6}{row.right:>6}{ours}"
            if self.baseline is not None:
                precision, recall, f1 = figures_of(self.baseline[row.label])
                line += f"{shown_figure(precision[0]):>22}{shown_figure(recall[0]):>7}{shown_figure(*f1):>15}"
            lines.append(line)
        return "\n".join(lines)


Figure = tuple[float | None, Interval]


def figures_of(row: Score) -> tuple[Figure, Figure, Figure]:
    """Precision, recall and F1, each with its interval; None where nothing was found, or there is no gold."""
    return (
        (row.precision if row.found else None, row.precision_interval),
        (row.recall if row.gold else None, row.recall_interval),
        (row.f1 if row.found or row.gold else None, row.interval),
    )


def shown_figure(figure: float | None, interval: Interval | None = None) -> str:
    """A figure for people, with its interval; a hyphen for none."""
    if figure is None:
        return "-"
    return f"{figure:.2f}" + (f" {interval[0]:.2f}-{interval[1]:.2f}" if interval is not None else "")


def _figures(row: Score, prefix: str = "") -> dict[str, float | None]:
    named = zip(("precision", "recall", "f1"), figures_of(row), strict=True)
    found: dict[str, float | None] = {}
    for name, (figure, (low, high)) in named:
        there = figure is not None
        found[prefix + name] = round(figure, 6) if figure is not None else None
        found[f"{prefix}{name}_low"] = round(low, 6) if there else None
        found[f"{prefix}{name}_high"] = round(high, 6) if there else None
    return found


def read_gold(path: Path, classes: Sequence[str] = ENTITY_CLASSES) -> Entities:
    """Read a gold file of entities of these classes.

    Raises InputError with the line that is wrong, or if there is no such file or nothing in it.
    """
    if not path.is_file():
        raise InputError(f"there is no gold file {path}: name one that is there (extraction.gold, or --gold)")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: no text in UTF-8 (byte {error.start}): a gold file is JSON lines") from None
    gold: dict[DocumentKey, frozenset[tuple[str, str]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            key = DocumentKey(value["stream"], value["path"])
            gold[key] = frozenset((normalised(each["name"]), each["class"]) for each in value["entities"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number}: no gold record: {type(error).__name__} {error}") from None
        if strange := sorted({str(entity_class) for _, entity_class in gold[key]} - set(classes)):
            raise InputError(f"{path}:{number}: no class {', '.join(strange)}: the classes are {', '.join(classes)}")
    if not gold:
        raise InputError(f"{path} holds no gold: write one document a line")
    return gold


def entities_of(mentions: Iterable[Mention]) -> frozenset[tuple[str, str]]:
    """The entities that a document's mentions amount to."""
    return frozenset((normalised(each.name), each.entity_class) for each in mentions)


def score_ledger(
    ledger: Mapping[DocumentKey, LedgerEntry],
    outbox: "Outbox",
    gold: Entities,
    reader: DocumentReader,
    vocabulary: Vocabulary = CONTRACT,
) -> ScoreTable:
    """Score what counts of the documents that `gold` knows, with the base line over the same documents beside it.

    Those that count in part count with that part, those that were rejected with nothing. Left out is what was
    not read yet, or was changed since: there the gold is of another text. Raises InputError if that is all.
    """
    predicted, texts = {}, {}
    left_out = {"not read": 0, "changed since": 0}
    for key in gold:
        entry = ledger.get(key)
        if entry is None or entry.status == Status.DELETED:
            left_out["not read"] += 1
        elif (text := _text(reader, entry)) is None:
            left_out["changed since"] += 1
        else:
            result = outbox.get(extractor_fingerprint(entry.fingerprint), entry.content_sha256)
            predicted[key] = entities_of(result.mentions if result is not None else ())
            texts[key] = baseline.names_of(text, vocabulary)
    if not predicted:
        why = ", ".join(f"{number} {reason}" for reason, number in left_out.items() if number)
        raise InputError(f"none of the {len(gold)} documents of the gold file can be scored ({why}): run a night")
    compared = {key: gold[key] for key in predicted}
    return replace(
        score(predicted, compared, vocabulary.classes),
        baseline=score(texts, compared, vocabulary.classes),
        left_out={reason: number for reason, number in left_out.items() if number},
    )


def _text(reader: DocumentReader, entry: LedgerEntry) -> str | None:
    """The text of the version that was read, "" of one that was rejected; None if the file changed."""
    try:
        return reader.read(entry.key, entry.content_sha256).text
    except RejectedError:
        return ""
    except DeferredError:
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
        rows.append(Score(label, found, wanted, right, *_intervals(counts)))
    return ScoreTable(len(gold), tuple(rows))


def _intervals(counts: Sequence[tuple[int, int, int]]) -> tuple[Interval, Interval, Interval]:
    """The middle 95 % of F1, precision and recall over resampled documents, each given as (found, gold, right)."""
    import numpy as np

    if not counts:
        return (0.0, 1.0), (0.0, 1.0), (0.0, 1.0)
    table = np.array(counts)
    # The same documents in every row and in every call: intervals of one run compare.
    drawn = np.random.default_rng(0).integers(0, len(table), (_RESAMPLES, len(table)))
    found, gold, right = table[drawn].sum(axis=1).T

    def middle(part: "np.ndarray", all_of: "np.ndarray") -> Interval:
        share = np.where(all_of > 0, part / np.maximum(all_of, 1), 1.0)
        low, high = np.quantile(share, [0.025, 0.975])
        return float(low), float(high)

    return middle(2 * right, found + gold), middle(right, found), middle(right, gold)


def _of_label(entities: frozenset[tuple[str, str]], label: str) -> frozenset[tuple[str, str]]:
    if label == "all":
        return entities
    if label == "any class":
        return frozenset((name, "") for name, _ in entities)
    return frozenset(each for each in entities if each[1] == label)

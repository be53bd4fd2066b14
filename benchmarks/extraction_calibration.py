"""Fit a curve of confidence for the embedded model, with or without the shipped adapter, and say how far off it is.

Without an adapter: on GUM's `seen` documents, from what the model said there (`--record` of `extraction_quality`), into
`ec1/extraction/naming/curves.json`. With `--trained`: the shipped adapter learnt all of `seen` and of the documents of
invented organisations, and is surer there than anywhere else. So two adapters are trained as it was, each without half
of both, and read that half; the shipped one reads the bundled sample, which no training saw; and its curve is fitted on
all of these. It is measured on what is `unseen` of GUM and of the organisations: beside what was there before, and
beside the simplest thing that could work, the same confidence for every name. The curve lies beside the adapter
(`calibration.json`). What an adapter's own documents would give is measured, too: on GUM's `unseen`, each document by a
curve that was fitted on the others, of which nothing is kept.

Names whose class GUM does not annotate (Project, Account) say nothing in GUM and are left out there.
"""

import argparse
import asyncio
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gum, organisations, sample
from benchmarks._engine import embedded, model_of, serving
from benchmarks._recorded import Recorded
from benchmarks.extraction_quality import MODES, Mode, extract, extractor_of, shipped
from benchmarks.gum import Text
from ec1.adapters.extractor import extractor_adapter
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.errors import DeferredError
from ec1.extraction.folding import normalised
from ec1.extraction.naming import confidence, decision
from ec1.extraction.naming.calibration import (
    Calibration,
    JudgedName,
    best_threshold,
    calibration_error,
    crossed,
    knots_of,
)
from ec1.extraction.naming.confidence import Curve
from ec1.extraction.naming.trained import SHIPPED
from ec1.extraction.reading.asking import Asking, first_place
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.extraction.reading.unit import Unit, load
from ec1.extraction.results import ENTITY_CLASSES
from ec1.gpu.engine import ServedAdapter
from ec1.home import CHECKOUT
from examples.extractor import make

CURVES = CHECKOUT / "ec1" / "extraction" / "naming" / "curves.json"
STREAM = "research"
_RARER = 2.0
_ANNOTATED = frozenset(gum.CLASSES.values())
_DRAWN = 2000
HALVES = (0, 1)


@dataclass(frozen=True)
class Span:
    """One decided span of one document; `answered` is the class that the model's own list gave it."""

    document: str
    decided: decision.Decided
    text: str
    answered: str | None
    annotated: frozenset[str]
    """The classes that the document's gold has."""


@dataclass(frozen=True)
class Reading:
    """Texts, what reads them, what it was told there, and the classes that their gold has."""

    texts: Sequence[Text]
    extractor: Extractor
    recorded: Recorded
    annotated: frozenset[str] = _ANNOTATED


def spans_of(reading: Reading) -> list[Span]:
    """What the model decided on these texts, asked by the very code of phase 1."""
    extractor, recorded = reading.extractor, reading.recorded

    async def ask(scratch: Path) -> list[Span]:
        asking = Asking(extractor, recorded, None, ExtractionRecord(), lambda: None)
        found: list[Span] = []
        async with AsyncExitStack() as stack:
            await asking.enter(stack)
            for text in reading.texts:
                item = _item(text)
                loaded = load(item, extractor)
                unit = Unit(item, Outbox(scratch).answers("0" * 64, item.content_sha256))
                unit.text, unit.proposed = loaded.text, loaded.proposed
                for chunk in loaded.chunks:
                    completion = await asking.answer(unit, chunk)
                    content, decided = decision.decode(completion.content)
                    given: dict[tuple[int, int] | None, str] = {}
                    try:
                        for each in extractor.read(content, completion.finish_reason)[0].entities if content else ():
                            given.setdefault(first_place(each.name, chunk), each.entity_class)
                    except DeferredError:
                        pass
                    for span in decided:
                        answered = given.get((span.start, span.end)) if span.source == "answer" else None
                        found.append(Span(text.name, span, text.text, answered, reading.annotated))
        return found

    with tempfile.TemporaryDirectory() as scratch:
        return asyncio.run(ask(Path(scratch)))


def _item(text: Text) -> WorkItem:
    document = Document(DocumentKey(STREAM, text.name), text.name, text.text)
    return WorkItem(STREAM, hashlib.sha256(text.text.encode()).hexdigest(), partial(_same, document))


def _same(document: Document) -> Document:
    return document


def bias_of(spans: Sequence[Span]) -> dict[str, float]:
    """How likely each label is on the whole: what the model says before it has read anything. Classes that the gold
    does not have are rarer than the others by `_RARER` nats, or they would take what is none of theirs."""
    means = np.array([span.decided.scores for span in spans]).mean(axis=0)
    common = {None, *_ANNOTATED}
    return {
        each or "none": round(float(mean) + (0.0 if each in common else _RARER), 4)
        for each, mean in zip(decision.LABELS, means, strict=True)
    }


def weights_of(
    spans: Sequence[Span], gold: dict[str, frozenset[tuple[str, str]]], bias: dict[str, float], *, trained: bool
) -> list[float]:
    """A logistic regression: is the span, with its class, an entity of the document?"""
    from sklearn.linear_model import LogisticRegression

    unseen = confidence.UNSEEN_FEATURES - ({"answer"} if trained else set())
    fitted = [number for number, name in enumerate(confidence.FEATURES) if name not in unseen][1:]
    rows, right = [], []
    for span in spans:
        best, features = confidence.weighed(span.decided, span.text, bias, span.answered, trained=trained)
        if best in span.annotated:
            name = normalised(span.text[span.decided.start : span.decided.end])
            rows.append([features[number] for number in fitted])
            right.append((name, best) in gold[span.document])
    model = LogisticRegression(C=0.3, max_iter=3000).fit(np.array(rows), np.array(right))
    weights = list(confidence.UNFITTED.weights)
    weights[0] = model.intercept_[0]
    for number, weight in zip(fitted, model.coef_[0], strict=True):
        weights[number] = weight
    return [round(float(each), 4) for each in weights]


def judged_on(
    texts: Sequence[Text], extractor: Extractor, client: Any, curve: Curve | None, classes: frozenset[str] = _ANNOTATED
) -> list[JudgedName]:
    """Entities of these classes through phase 1 with this curve, and whether each is right."""
    extractor.fitted = curve
    run = extract(texts, extractor, client)
    gold = {text.name: text.gold for text in run.texts}
    found = []
    for name, result in run.results.items():
        best: dict[tuple[str, str], float] = {}
        for mention in result.mentions:
            entity = (normalised(mention.name), str(mention.entity_class))
            best[entity] = max(best.get(entity, 0.0), mention.confidence)
        found += [JudgedName(sure, entity in gold[name], name) for entity, sure in best.items() if entity[1] in classes]
    return found


def fit(readings: Sequence[Reading], folds: int = 5) -> tuple[Curve, list[JudgedName]]:
    """The curve of the readings' one model, and the names it was fitted on with raw confidences by weights of other
    documents."""
    trained = readings[0].extractor.adapter is not None
    spans = [span for reading in readings for span in spans_of(reading)]
    texts = [text for reading in readings for text in reading.texts]
    gold = {text.name: text.gold for text in texts}
    bias = {} if trained else bias_of(spans)
    raw: list[JudgedName] = []
    for fold in range(folds):
        held = {text.name for text in texts[fold::folds]}
        weights = weights_of([span for span in spans if span.document not in held], gold, bias, trained=trained)
        for reading in readings:
            mine = [text for text in reading.texts if text.name in held]
            curve = Curve(bias, tuple(weights), ())
            raw += judged_on(mine, reading.extractor, reading.recorded, curve, reading.annotated)
    knots = knots_of(raw)
    curve = Curve(bias, tuple(weights_of(spans, gold, bias, trained=trained)), knots)
    wanted = sum(len(text.gold) for text in texts)
    least, f1 = best_threshold([replace(each, confidence=curve.calibrated(each.confidence)) for each in raw], wanted)
    print(f"{len(spans)} spans, {len(raw)} entities of {len(texts)} documents")
    for name, weight in zip(confidence.FEATURES, curve.weights, strict=True):
        print(f"  {name:<22}{weight:>8.2f}")
    print(f"  bias {bias}\n  knots {knots}")
    print(f"calibration error, cross-validated: {calibration_error(crossed(raw)):.3f}")
    print(f"best F1 {f1:.3f} at min_confidence {least}")
    return replace(curve, least=least), raw


def report(title: str, judged: Sequence[JudgedName], share: float) -> dict[str, float]:
    """Print how far off these confidences are, with what chance alone would make of perfect ones."""
    random = np.random.default_rng(1)
    groups = sorted({each.group for each in judged})
    by_group = {name: [each for each in judged if each.group == name] for name in groups}
    drawn = sorted(
        calibration_error([each for name in random.choice(groups, len(groups)) for each in by_group[name]])
        for _ in range(_DRAWN)
    )
    perfect = [
        calibration_error([replace(each, right=bool(random.random() < each.confidence)) for each in judged])
        for _ in range(200)
    ]
    sure = np.array([each.confidence for each in judged])
    right = np.array([each.right for each in judged])
    figures = {
        "entities": float(len(judged)),
        "error": calibration_error(judged),
        "low": drawn[int(0.025 * _DRAWN)],
        "high": drawn[int(0.975 * _DRAWN)],
        "by chance": float(np.mean(perfect)),
        "constant": abs(float(right.mean()) - share),
        "brier": float(((sure - right) ** 2).mean()),
        "brier of the constant": float(((share - right) ** 2).mean()),
    }
    print(
        f"{title}: {len(judged)} entities of {len(groups)} documents, {right.mean():.3f} right, mean confidence "
        f"{sure.mean():.3f}; calibration error (10 bins) {figures['error']:.3f} [{figures['low']:.3f}, "
        f"{figures['high']:.3f}], of perfect confidences {figures['by chance']:.3f}, of a constant "
        f"{figures['constant']:.3f}; Brier {figures['brier']:.3f}, of a constant "
        f"{figures['brier of the constant']:.3f}",
        flush=True,
    )
    return figures


def untrained(record: Path, mode: Mode) -> None:
    """Fit the model as it is, and write its curve."""
    deployment, settings = embedded()
    with tempfile.TemporaryDirectory() as scratch:
        extractor = extractor_of(mode, model_of(deployment, Path(scratch)), min_confidence=0.0)
        curve, _ = fit([_read(Reading(gum.seen(), extractor, Recorded(record / f"GUM seen.{mode}", None)))])
    kept = json.loads(CURVES.read_text(encoding="utf-8"))
    kept[f"{settings.model} {mode}"] = {
        "bias": curve.bias,
        "weights": curve.weights,
        "knots": curve.knots,
        "least": curve.least,
    }
    CURVES.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def trained(record: Path, mode: Mode, *, replay: bool, only: int = 0) -> dict[str, Any]:
    """Fit the shipped adapter, write its curve, and measure it on the first `only` (0: all) of GUM's unseen
    documents."""
    deployment, _ = embedded()
    record.mkdir(parents=True, exist_ok=True)
    adapter = shipped()
    with tempfile.TemporaryDirectory() as scratch:
        model = model_of(deployment, Path(scratch))
        everything = frozenset(ENTITY_CLASSES)
        classes = {"sample": everything, "GUM unseen": _ANNOTATED, "organisations unseen": everything}
        sets = {
            "sample": sample.read(),
            "GUM unseen": gum.unseen()[: only or None],
            "organisations unseen": organisations.unseen()[: only or None],
        }
        own = _readings(sets, adapter, model, record, mode, replay)
        readings = [replace(own["sample"], annotated=everything)]
        for half in HALVES:
            parts = {"GUM seen": (gum.seen(), _ANNOTATED), "organisations learnt": (organisations.learnt(), everything)}
            halves = {
                f"{title}, half {half}": [text for text in texts if half_of(text.name) == half]
                for title, (texts, _) in parts.items()
            }
            halves = {title: texts for title, texts in halves.items() if texts}
            for title, reading in _readings(halves, _without(half, record), model, record, mode, replay).items():
                readings.append(replace(reading, annotated=parts[title.rpartition(",")[0]][1]))
        curve, raw = fit(readings)
        found = Calibration(
            adapter=adapter.digest,
            mode=mode,
            bias=dict(curve.bias),
            weights=curve.weights,
            knots=curve.knots,
            least=curve.least,
            judged=len(raw),
            groups=sum(len(reading.texts) for reading in readings),
            error=round(calibration_error(crossed(raw)), 4),
        )
        found.save(SHIPPED)
        share = sum(each.right for each in raw) / len(raw)
        known = crossed(raw)
        figures = {"cross-validated": report("cross-validated", known, share)}
        groups = {"sample": sets["sample"], "GUM": gum.seen(), "organisations": organisations.learnt()}
        for title, texts in groups.items():
            names = {text.name for text in texts}
            title = f"of that, {title}"
            figures[title] = report(title, [each for each in known if each.group in names], share)
        for title, reading in own.items():
            for how, fitted, least in (("all", curve, 0.0), ("now", curve, curve.least), ("before", None, 0.0)):
                extractor = extractor_of(mode, model, adapter=adapter, min_confidence=least)
                run = extract(reading.texts, _with(extractor, fitted), reading.recorded)
                judged = judged_on(reading.texts, extractor, reading.recorded, fitted, classes[title])
                figures[f"{title}, {how}"] = report(f"\n{title}, {how}, min_confidence {least}", judged, share)
                print(f"strict F1 {run.table['all'].f1:.3f}, any class {run.table['any class'].f1:.3f}", flush=True)
        reading = own["GUM unseen"]
        if reading.texts:
            judged = judged_on(reading.texts, reading.extractor, reading.recorded, curve.raw)
            title = "GUM unseen, by a curve of its own, cross-validated"
            figures[title] = report(f"\n{title}", crossed(judged), share)
    return figures


def half_of(document: str) -> int:
    """Which half a document that the shipped adapter learnt is in, by its name alone."""
    return int(hashlib.sha1(document.encode(), usedforsecurity=False).hexdigest(), 16) // 3 % len(HALVES)


def _without(half: int, record: Path) -> ServedAdapter:
    """An adapter that is trained as the shipped one, but on nothing of that half; kept with what it says."""
    _, settings = embedded()
    folder = record / f"without-{half}"
    if not (folder / "adapter").is_dir():
        folder.mkdir(exist_ok=True)
        tuples = folder / make.TUPLES.name
        lines = make.TUPLES.read_text(encoding="utf-8").splitlines(keepends=True)
        documents = [json.loads(line)["document_id"] for line in lines]
        kept = [
            line
            for line, document in zip(lines, documents, strict=True)
            if "generated/" in document or half_of(document.rpartition("/")[2]) != half
        ]
        tuples.write_text("".join(kept), encoding="utf-8")
        make.main(folder / "adapter", tuples)
    return extractor_adapter(folder / "adapter", settings.model)


def _readings(
    sets: Mapping[str, Sequence[Text]], adapter: ServedAdapter, model: Path, record: Path, mode: Mode, replay: bool
) -> dict[str, Reading]:
    """The sets as that adapter reads them: asks the engine for whatever the record does not hold yet."""
    deployment, settings = embedded()
    # Asks about every name, whatever the weights.
    extractor = _with(extractor_of(mode, model, adapter=adapter, min_confidence=0.0), confidence.UNFITTED)
    if not replay:
        with serving(deployment, settings, model, adapter) as endpoint:
            for title, texts in sets.items():
                client = OpenAIClient(endpoint.base_url, endpoint.model, deployment.extraction, ends_repetition=True)
                _read(Reading(texts, extractor, Recorded(record / f"{title}.{mode}", client)))
    return {
        title: Reading(texts, extractor, Recorded(record / f"{title}.{mode}", None)) for title, texts in sets.items()
    }


def _read(reading: Reading) -> Reading:
    """The same after all questions were asked, many at a time: what follows finds the answers in the record."""
    extract(reading.texts, reading.extractor, reading.recorded)
    return reading


def _with(extractor: Extractor, curve: Curve | None) -> Extractor:
    extractor.fitted = curve
    return extractor


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, help="folder that keeps, or holds, what the model said")
    parser.add_argument("--mode", choices=MODES[1:], default="decide")
    parser.add_argument(
        "--trained", action="store_true", help="the shipped adapter; --record is filled where it is not"
    )
    parser.add_argument("--replay", action="store_true", help="with --trained: ask no engine, --record holds all")
    parser.add_argument("--only", type=int, default=0, help="with --trained: of GUM's unseen documents; 0: all")
    arguments = parser.parse_args()
    if arguments.record is None:
        print("nothing to fit on: fill a folder with extraction_quality --record, and name it with --record")
    elif arguments.trained:
        trained(arguments.record, arguments.mode, replay=arguments.replay, only=arguments.only)
    else:
        untrained(arguments.record, arguments.mode)

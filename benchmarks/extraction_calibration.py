"""Fit a curve of confidence for the embedded model and write it to `ec1/extraction/curves.json`.

On GUM's `seen` documents only, from what the model said there (`--record` of `extraction_quality`). Spans whose class
GUM does not annotate (Project, Account) say nothing here and are left out: for them the curve is a guess by analogy.
Prints the calibration error by cross-validation over documents, and the threshold with the best F1.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import gum
from benchmarks._engine import embedded, model_of
from benchmarks._recorded import Recorded
from benchmarks.extraction_quality import MODES, Mode, calibration_error, extract, extractor_of
from benchmarks.gum import Text
from ec1.extraction import candidates, confidence, decision
from ec1.extraction.confidence import Curve
from ec1.extraction.extractor import Extractor
from ec1.extraction.folding import normalised
from ec1.home import CHECKOUT

CURVES = CHECKOUT / "ec1" / "extraction" / "curves.json"
_KNOTS = 16
_RARER = 2.0


@dataclass(frozen=True)
class Span:
    """One decided span of one document."""

    document: str
    decided: decision.Decided
    text: str


def spans_of(texts: Sequence[Text], extractor: Extractor, recorded: Recorded) -> list[Span]:
    """What the model decided on these texts; the questions are those of phase 1, so the record answers them."""
    labels, decider = extractor.labels(), recorded.decider()

    async def ask() -> list[Span]:
        found = []
        for text in texts:
            proposed = candidates.propose(text.text)
            for chunk in extractor.chunks(text.text):
                spans = decision.spans_of(chunk, proposed)
                prompts = decision.questions(chunk, [text.text[span.start : span.end] for span in spans])
                scores: list[list[float]] = []
                for first in range(0, len(prompts), 64):
                    part = prompts[first : first + 64]
                    messages = [{"role": "user", "content": each} for each in part]
                    answer = await decider.complete(messages, {"labels": labels}, stream="research", deadline=None)
                    scores += decision.scores_in(answer.content, len(part))
                _, decided = decision.decode(decision.encode("", spans, scores))
                found += [Span(text.name, each, text.text) for each in decided]
        return found

    return asyncio.run(ask())


def bias_of(spans: Sequence[Span]) -> dict[str, float]:
    """How likely each label is on the whole: what the model says before it has read anything. Classes that the gold
    does not have are rarer than the others by `_RARER` nats, or they would take what is none of theirs."""
    means = np.array([span.decided.scores for span in spans]).mean(axis=0)
    common = {None, *gum.CLASSES.values()}
    return {
        each or "none": round(float(mean) + (0.0 if each in common else _RARER), 4)
        for each, mean in zip(decision.LABELS, means, strict=True)
    }


def weights_of(
    spans: Sequence[Span], gold: dict[str, frozenset[tuple[str, str]]], bias: dict[str, float]
) -> list[float]:
    """A logistic regression: is the span, with its likeliest class, an entity of the document?"""
    from sklearn.linear_model import LogisticRegression

    fitted = [number for number, name in enumerate(confidence.FEATURES) if name not in confidence.UNSEEN_FEATURES][1:]
    rows, right = [], []
    for span in spans:
        best, features = confidence.weighed(span.decided, span.text, bias, None)
        if best in gum.CLASSES.values():
            name = normalised(span.text[span.decided.start : span.decided.end])
            rows.append([features[number] for number in fitted])
            right.append((name, best) in gold[span.document])
    model = LogisticRegression(C=0.3, max_iter=3000).fit(np.array(rows), np.array(right))
    weights = list(confidence.UNFITTED.weights)
    weights[0] = model.intercept_[0]
    for number, weight in zip(fitted, model.coef_[0], strict=True):
        weights[number] = weight
    return [round(float(each), 4) for each in weights]


def knots_of(judged: Sequence[tuple[float, bool]]) -> list[tuple[float, float]]:
    """An isotonic regression of what was right on raw confidence, in a few points."""
    from sklearn.isotonic import IsotonicRegression

    raw, right = np.array([each for each, _ in judged]), np.array([float(each) for _, each in judged])
    fitted = IsotonicRegression(out_of_bounds="clip", y_min=0.01, y_max=0.99).fit(raw, right)
    places = np.unique(np.quantile(raw, np.linspace(0, 1, _KNOTS)))
    # The mean around each place, so that a line between them is not a staircase.
    return [(round(float(place), 4), round(float(fitted.predict([place])[0]), 4)) for place in places]


def judged_on(texts: Sequence[Text], extractor: Extractor, record: Path, curve: Curve) -> list[tuple[float, bool]]:
    """Entities of the classes that GUM annotates, through phase 1 with this curve: confidence, and whether right."""
    extractor.fitted = curve
    run = extract(texts, extractor, Recorded(record, None))
    gold = {text.name: text.gold for text in run.texts}
    found = []
    for name, result in run.results.items():
        best: dict[tuple[str, str], float] = {}
        for mention in result.mentions:
            entity = (normalised(mention.name), str(mention.entity_class))
            best[entity] = max(best.get(entity, 0.0), mention.confidence)
        found += [(sure, entity in gold[name]) for entity, sure in best.items() if entity[1] in gum.CLASSES.values()]
    return found


def main(record: Path, mode: Mode = "decide", folds: int = 5) -> dict[str, Any]:
    """Fit, print, write; returns the curve's record."""
    deployment, settings = embedded()
    with tempfile.TemporaryDirectory() as scratch:
        model = model_of(deployment, Path(scratch))
        extractor = extractor_of(mode, model, min_confidence=0.0)
        texts, file = gum.seen(), record / f"GUM seen.{mode}"
        spans = spans_of(texts, extractor, Recorded(file, None))
        gold = {text.name: text.gold for text in texts}
        bias = bias_of(spans)
        raw: list[tuple[float, bool]] = []
        parts: list[list[tuple[float, bool]]] = []
        for fold in range(folds):
            held = texts[fold::folds]
            names = {text.name for text in held}
            weights = weights_of([span for span in spans if span.document not in names], gold, bias)
            parts.append(judged_on(held, extractor, file, Curve(bias, tuple(weights), ())))
            raw += parts[-1]
        held_out: list[tuple[float, bool]] = []
        for fold, part in enumerate(parts):
            others = [each for number, other in enumerate(parts) if number != fold for each in other]
            curve = Curve(bias, (), tuple(knots_of(others)))
            held_out += [(curve.calibrated(each), right) for each, right in part]
        knots = knots_of(raw)
        curve = Curve(bias, tuple(weights_of(spans, gold, bias)), tuple(knots))
        wanted = sum(len(text.gold) for text in texts)
        sure = [(curve.calibrated(each), right) for each, right in raw]
        best = max(
            (
                2
                * sum(right for each, right in sure if each >= least)
                / (sum(each >= least for each, _ in sure) + wanted),
                least,
            )
            for least in (round(0.05 * step, 2) for step in range(1, 16))
        )
        print(f"{len(spans)} spans, {len(raw)} entities; {settings.model} {mode}")
        for name, weight in zip(confidence.FEATURES, curve.weights, strict=True):
            print(f"  {name:<22}{weight:>8.2f}")
        print(f"  bias {bias}\n  knots {knots}")
        print(f"calibration error, cross-validated: {calibration_error(held_out):.3f}")
        print(f"best F1 {best[0]:.3f} at min_confidence {best[1]}")
    kept = json.loads(CURVES.read_text(encoding="utf-8"))
    kept[f"{settings.model} {mode}"] = {"bias": bias, "weights": curve.weights, "knots": knots}
    CURVES.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return dict(kept[f"{settings.model} {mode}"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path, help="folder that `extraction_quality --record` filled")
    parser.add_argument("--mode", choices=MODES[1:], default="decide")
    arguments = parser.parse_args()
    if arguments.record is None:
        print("nothing to fit on: fill a folder with extraction_quality --record, and name it with --record")
    else:
        main(arguments.record, arguments.mode)

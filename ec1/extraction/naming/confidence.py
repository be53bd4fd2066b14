"""How sure an extraction is of a name and its class, from the model's log-probabilities and the text's evidence.

Belongs here: what is weighed, and the curves that were fitted. Does not: how they are fitted
(`benchmarks/extraction_calibration.py`), or agreement between chunks (`grounding`).

A curve belongs to one model in one mode, or to one adapter. It is small data: what each class is likely before
anything is read (`bias`), how much each feature speaks for a name (`weights`, a logistic regression), and which share
of mentions of a given raw confidence was right (`knots`, an isotonic regression). Those of models without an adapter
were fitted on public gold (GUM, documents that nothing is scored on) and lie in `curves.json`; an adapter's lies beside
its weights (`calibration`). Without a curve confidences are not calibrated, and results say so.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise

from ec1.extraction.naming.decision import Decided
from ec1.extraction.naming.evidence import is_shouted
from ec1.extraction.naming.filters import is_bare_word
from ec1.extraction.naming.own import cue_of, proof_of
from ec1.extraction.results import EntityClass
from ec1.extraction.schema import Named
from ec1.extraction.wordlists import word_list
from ec1.vocabulary import CONTRACT, Vocabulary

# Raise this when the same log-probabilities would give other confidences; a new curve needs no new version.
CONFIDENCE_VERSION = 1

FEATURES = (
    "intercept",
    # Of the model: log-probabilities less the label's bias, in nats.
    "over none",
    "over the next class",
    "best",
    "none",
    "mass",
    "Person",
    "Company",
    "Location",
    # Of the text's evidence.
    "proof",
    "cue",
    "opens a sentence",
    "small elsewhere",
    "often",
    # Of what proposed it.
    "part",
    "speaker or field",
    "known",
    "answer",
    # Of its shape and its neighbours.
    "one word",
    "two or three words",
    "linked words",
    "capitals",
    "initial",
    "digit",
    "after the",
    "after a preposition",
    "after of",
    "after and",
    "genitive",
    "before a comma",
    "in brackets",
)
UNSEEN_FEATURES = frozenset({"speaker or field", "known", "answer"})
"""Those that the texts of the fit do not have, or have with another meaning: their weights are set by hand."""
_WORD_BEFORE = re.compile(r"([^\W_]+)[ \t\n]$")
# How many nats a proof, a cue and the model's own answer are worth beside the model's log-probabilities of the classes.
_PROOF, _CUE, _ANSWERED = 4.0, 1.5, 1.5


@dataclass(frozen=True)
class Curve:
    """What was fitted for one model in one mode; `weights` are those of `FEATURES`, `knots` are (raw, calibrated)."""

    bias: Mapping[str, float]
    weights: tuple[float, ...]
    """Of an adapter's curve: none if the raw confidence is that of the text's evidence alone (`grounding`)."""
    knots: tuple[tuple[float, float], ...]
    least: float = 0.0
    """The `min_confidence` that is best by it."""
    calibrates: bool = True
    """Whether it was fitted for what it is used with."""

    @property
    def raw(self) -> "Curve":
        """The same without its last step: confidences as they were before they were calibrated."""
        return replace(self, knots=(), least=0.0)

    def calibrated(self, raw: float) -> float:
        """The share of mentions of this raw confidence that was right, between the fitted points by a line."""
        knots = self.knots
        if not knots:
            return raw
        if raw <= knots[0][0]:
            return knots[0][1]
        for (left, low), (right, high) in pairwise(knots):
            if raw <= right:
                return low + (high - low) * (raw - left) / max(right - left, 1e-9)
        return knots[-1][1]

    @property
    def digest_fields(self) -> list[object]:
        """What of it decides results, for the fingerprint."""
        return [sorted(self.bias.items()), list(self.weights), [list(knot) for knot in self.knots]]


_BY_HAND = {
    "intercept": -0.5,
    "over none": 1.0,
    "over the next class": 0.2,
    "proof": 1.5,
    "cue": 0.8,
    "opens a sentence": -0.8,
    "small elsewhere": -1.0,
    "often": 0.2,
    "part": -1.0,
    "speaker or field": 1.0,
    "known": 1.0,
    "answer": 0.5,
}
UNFITTED = Curve({}, tuple(_BY_HAND.get(name, 0.0) for name in FEATURES), ())
"""For a model that no curve was fitted for: signs and rough sizes. Its confidences are not calibrated."""


@cache
def curves() -> Mapping[str, Curve]:
    """All fitted curves, by `<model id> <mode>`."""
    value = json.loads((files("ec1.extraction.naming") / "curves.json").read_text(encoding="utf-8"))
    return {
        key: Curve(
            each["bias"],
            tuple(each["weights"]),
            tuple((raw, share) for raw, share in each["knots"]),
            each["least"],
        )
        for key, each in value.items()
    }


def curve_of(model_id: str, mode: str) -> Curve | None:
    """The curve of a model in a mode, or None: its confidences are not calibrated then."""
    return curves().get(f"{model_id} {mode}")


def weigh(
    decided: Decided,
    text: str,
    curve: Curve | None,
    answered: str | None,
    vocabulary: Vocabulary = CONTRACT,
    *,
    trained: bool = False,
) -> Named:
    """The class of a span and its raw confidence. `answered` is the class that the model's own answer gave the name.

    A `trained` model's class is taken as it is, unless the text says otherwise.
    """
    curve = curve or UNFITTED
    best, features = weighed(decided, text, curve.bias, answered, vocabulary, trained=trained)
    raw = sum(weight * value for weight, value in zip(curve.weights, features, strict=True))
    name = " ".join(text[decided.start : decided.end].split())
    return Named(name, best, 1 / (1 + math.exp(-_bounded(raw, 30.0))))


def weighed(
    decided: Decided,
    text: str,
    bias: Mapping[str, float],
    answered: str | None,
    vocabulary: Vocabulary = CONTRACT,
    *,
    trained: bool = False,
) -> tuple[EntityClass, tuple[float, ...]]:
    """The likeliest class of a span, the text's evidence included, and the values of `FEATURES` for it."""
    start, end = decided.start, decided.end
    name = text[start:end]
    proof, cue = proof_of(text, start, end, vocabulary), cue_of(text, start, end, vocabulary)
    model = {each: decided.of(each) - bias.get(each, 0.0) for each in decided.classes}
    scores = {
        each: score + _PROOF * (proof == each) + _CUE * (proof is None and cue == each) + _ANSWERED * (answered == each)
        for each, score in model.items()
    }
    best = max(scores, key=lambda each: scores[each])
    if trained:
        best = proof or cue or answered or decided.best
    none = decided.of(None) - bias.get("none", 0.0)
    shouted = is_shouted(text, start, end)
    small = not name.islower() and re.search(rf"(?<!\w){re.escape(name.lower())}(?!\w)", text) is not None
    found = {
        "intercept": 1.0,
        "over none": model[best] - none,
        "over the next class": scores[best]
        - max((score for each, score in scores.items() if each != best), default=scores[best]),
        "best": model[best],
        "none": none,
        "mass": math.log(sum(math.exp(score) for score in decided.scores)),
        best: 1.0,
        "proof": proof == best,
        "cue": cue == best,
        "opens a sentence": is_bare_word(text, [(start, end)]),
        "small elsewhere": small and not shouted,
        "often": math.log(min(10, max(1, text.count(name)))),
        "part": decided.source == "part",
        "speaker or field": decided.source in ("speaker", "field"),
        "known": decided.source == "known",
        "answer": answered == best,
        "capitals": shouted,
        **_shape(name),
        **_neighbours(text, start, end),
    }
    return best, tuple(_bounded(float(found.get(each, 0.0))) for each in FEATURES)


def _shape(name: str) -> dict[str, bool]:
    words = name.split()
    linked = any(word.casefold() in word_list("links") for word in words)
    return {
        "one word": len(words) == 1,
        "two or three words": 2 <= len(words) <= 3 and not linked,
        "linked words": linked,
        "initial": re.search(r"\b[^\W\d_]\.", name) is not None,
        "digit": any(character.isdigit() for character in name),
    }


def _neighbours(text: str, start: int, end: int) -> dict[str, bool]:
    before, after = text[max(0, start - 30) : start], text[end : end + 4]
    word = _WORD_BEFORE.search(before)
    previous = word[1].casefold() if word else ""
    return {
        "after the": previous == "the",
        "after a preposition": previous in ("in", "at", "from", "to", "near", "into", "by", "with"),
        "after of": previous == "of",
        "after and": previous in ("and", "or"),
        "genitive": after.startswith(("'s", "’s")),
        "before a comma": after.startswith(","),
        "in brackets": before.endswith("("),
    }


def _bounded(value: float, limit: float = 10.0) -> float:
    return max(-limit, min(limit, value))

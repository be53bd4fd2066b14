"""Fitting a curve of confidence on gold, how far it is off, and the file in which an adapter's own curve lies.

Belongs here: isotonic regression, expected calibration error, the threshold with the best F1, `calibration.json`. Does
not: what is weighed (`confidence`), and reading the texts that are judged (`ec1.adapters.reading`, `benchmarks`).

Expected calibration error: mentions in bins of equal width by confidence; the distance of mean confidence and share
right, weighed by the bins' sizes (Guo et al., On Calibration of Modern Neural Networks, 2017).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from ec1.errors import InputError
from ec1.extraction.naming.confidence import Curve
from ec1.files import write_json
from ec1.settings import Settings

CALIBRATION = "calibration.json"
"""Beside an adapter's weights, and published with them."""
MIN_JUDGED = 100
"""Entities that a curve of its own is fitted on at least, with `MIN_EACH` right and as many wrong: below that an
isotonic regression follows the noise (Niculescu-Mizil and Caruana, Predicting Good Probabilities, 2005)."""
MIN_EACH = 15
MIN_GROUPS = 4
_KNOTS = 16
_FOLDS = 5


@dataclass(frozen=True)
class JudgedName:
    """An entity that was found in a text of `group`, how sure that was, and whether gold has it with this class."""

    confidence: float
    right: bool
    group: str


class Calibration(Settings):
    """An adapter's curve and what it was fitted on; `judged` 0: it is another adapter's, and not calibrated for this
    one."""

    format: Literal[1] = 1
    adapter: str = Field(description="digest of the adapter that it is for")
    mode: Literal["answer", "decide", "both"] = Field(description="`extraction.mode` that it was fitted in")
    bias: dict[str, float] = Field({}, description="per label, subtracted from its log-probability")
    weights: tuple[float, ...] = Field((), description="of `confidence.FEATURES`; none: the text's evidence alone")
    knots: tuple[tuple[float, float], ...] = Field((), description="(raw, calibrated) confidence, rising")
    least: float = Field(0.0, ge=0, le=1, description="`min_confidence` with the best F1 on what it was fitted on")
    judged: int = Field(0, ge=0, description="entities that it was fitted on")
    groups: int = Field(0, ge=0, description="documents that those are from")
    error: float | None = Field(None, description="expected calibration error, each document by a fit on others")

    @property
    def curve(self) -> Curve:
        return Curve(self.bias, self.weights, self.knots, self.least, calibrates=self.judged > 0)

    def save(self, folder: Path) -> None:
        write_json(folder / CALIBRATION, self.model_dump(mode="json"))


def calibration_in(folder: Path, adapter_digest: str, mode: str) -> Calibration | None:
    """The curve that lies beside an adapter; None if there is none for these weights in this mode. Raises InputError
    for a damaged one."""
    file = folder / CALIBRATION
    if not file.is_file():
        return None
    try:
        found = Calibration.model_validate_json(file.read_bytes())
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]["msg"]
        raise InputError(
            f"{file} is not a curve of confidence ({problem}): delete it, or pull the version again"
        ) from None
    return found if (found.adapter, found.mode) == (adapter_digest, mode) else None


def own_calibration(
    shared: Curve | None, judged: Sequence[JudgedName], wanted: int, *, adapter_digest: str, mode: str
) -> Calibration | None:
    """An adapter's curve from what it read on texts that it did not learn from: `judged` by raw confidence (`shared`
    without its knots, or the text's evidence alone), `wanted` entities in their gold. Where that is too little, the
    shared one, uncalibrated; None if there is none."""
    curve = shared or Curve({}, (), ())
    made = Calibration.model_validate(
        {
            "adapter": adapter_digest,
            "mode": mode,
            "bias": dict(curve.bias),
            "weights": curve.weights,
            "knots": curve.knots,
            "least": curve.least,
        }
    )
    if not is_enough(judged):
        return made if shared is not None else None
    fitted = replace(curve, knots=knots_of(judged))
    sure = [replace(each, confidence=fitted.calibrated(each.confidence)) for each in judged]
    return made.model_copy(
        update={
            "knots": fitted.knots,
            "least": best_threshold(sure, wanted)[0],
            "judged": len(judged),
            "groups": len({each.group for each in judged}),
            "error": round(calibration_error(crossed(judged)), 4),
        }
    )


def is_enough(judged: Sequence[JudgedName]) -> bool:
    """Whether a curve can be fitted on so much."""
    right = sum(each.right for each in judged)
    few = min(right, len(judged) - right)
    return len(judged) >= MIN_JUDGED and few >= MIN_EACH and len({each.group for each in judged}) >= MIN_GROUPS


def knots_of(judged: Sequence[JudgedName]) -> tuple[tuple[float, float], ...]:
    """An isotonic regression of what was right on raw confidence, in a few points."""
    import numpy as np
    from sklearn.isotonic import IsotonicRegression

    raw = np.array([each.confidence for each in judged])
    right = np.array([float(each.right) for each in judged])
    fitted = IsotonicRegression(out_of_bounds="clip", y_min=0.01, y_max=0.99).fit(raw, right)
    places = np.unique(np.quantile(raw, np.linspace(0, 1, _KNOTS)))
    return tuple((round(float(place), 4), round(float(fitted.predict([place])[0]), 4)) for place in places)


def crossed(judged: Sequence[JudgedName]) -> list[JudgedName]:
    """The same with calibrated confidences, each group's by a fit on other groups."""
    names = sorted({each.group for each in judged})
    found: list[JudgedName] = []
    for fold in range(min(_FOLDS, len(names))):
        mine = set(names[fold::_FOLDS])
        curve = Curve({}, (), knots_of([each for each in judged if each.group not in mine]))
        found += [replace(each, confidence=curve.calibrated(each.confidence)) for each in judged if each.group in mine]
    return found


def calibration_error(judged: Sequence[JudgedName], bins: int = 10) -> float:
    """Expected calibration error over so many bins of equal width; 0 of nothing."""
    parts: list[list[JudgedName]] = [[] for _ in range(bins)]
    for each in judged:
        parts[min(bins - 1, int(each.confidence * bins))].append(each)
    off = (abs(sum(each.confidence for each in part) - sum(each.right for each in part)) for part in parts)
    return sum(off) / max(1, len(judged))


def best_threshold(judged: Sequence[JudgedName], wanted: int) -> tuple[float, float]:
    """The threshold with the best F1, in steps of 0.05 up to 0.75, and that F1."""
    found = []
    for step in range(16):
        least = round(0.05 * step, 2)
        kept = [each for each in judged if each.confidence >= least]
        found.append((2 * sum(each.right for each in kept) / max(1, len(kept) + wanted), -least))
    best, negative = max(found)
    return -negative, best

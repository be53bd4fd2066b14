"""How two evaluated runs differ in what they learnt: paired, on the same held-out examples.

Belongs here: whose scores may be held against each other, and the difference with its bounds. Does not: curves and
weights of a repetition (`log_book.py`), and whether a version may be published (`ec1.adapters.gate`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ec1.adapters.gate import ScoreDifference, compare
from ec1.adapters.scores import BASE, CANDIDATE, Scores, load_scores
from ec1.errors import InputError
from ec1.night.steps.candidate import EVALUATION_FOLDER
from ec1.night.steps.log_book import TRAINING, Run
from ec1.recipes.evaluation import EvaluationOptions

Outcome = Literal["better", "worse", "no difference shown"]

_BASE_TOLERANCE = 0.01
"""Nats per token by which the base's mean may differ between two scorings of the same examples: 16-bit arithmetic."""


@dataclass(frozen=True)
class ScoreComparison:
    """The second run's score less the first one's. `means`: of the base and the two runs, nats per token."""

    first: str
    second: str
    means: tuple[float, float, float]
    difference: ScoreDifference
    verdict: Outcome


def scores_of(run: Run) -> Scores:
    """What a run's evaluation left. Raises InputError if it was not evaluated."""
    folder = run.folder.parent if run.folder.name == TRAINING else run.folder
    try:
        scores = load_scores(folder / EVALUATION_FOLDER)
    except InputError:
        raise InputError(f"run {run.name} was not evaluated: train it with --evaluate") from None
    if CANDIDATE not in scores.models:
        raise InputError(f"the evaluation of run {run.name} scored no candidate: evaluate it again")
    return scores


def compare_runs(first: Run, second: Run, options: EvaluationOptions) -> ScoreComparison:
    """Raises InputError if they were not scored on the same examples of the same base model."""
    base_models = [(run.spec.recipe.base_model.id, run.spec.recipe.base_model.revision) for run in (first, second)]
    if base_models[0] != base_models[1]:
        raise InputError(f"{first.name} and {second.name} belong to different base models: nothing can be compared")
    scores = (scores_of(first), scores_of(second))
    check_same(scores, (first.name, second.name))
    one, other = (each.values(CANDIDATE) for each in scores)
    groups = [example.group for example in scores[0].examples]
    means = (_mean(scores[0].values(BASE)), _mean(one), _mean(other))
    gap = paired(one, other, groups, options)
    verdict: Outcome = "better" if gap.lower > 0 else "worse" if gap.upper < 0 else "no difference shown"
    return ScoreComparison(first.name, second.name, means, gap, verdict)


def paired(
    first: Sequence[float], second: Sequence[float], groups: Sequence[str], options: EvaluationOptions
) -> ScoreDifference:
    """The second's scores less the first's, resampled by source. Raises InputError where nothing can be told."""
    if not all(map(math.isfinite, (*first, *second))):
        raise InputError("some scores are not finite: nothing can be compared")
    if len(set(groups)) < 2:
        raise InputError("all held-out examples are of one source: nothing can be compared")
    return compare([b - a for a, b in zip(first, second, strict=True)], groups, options)


def check_same(scores: Sequence[Scores], names: Sequence[str]) -> None:
    """Raises InputError unless all were scored on the same examples, in the same form."""
    for other, name in zip(scores[1:], names[1:], strict=True):
        examples = [[(each.example, each.group, each.tokens) for each in one.examples] for one in (scores[0], other)]
        if examples[0] != examples[1] or scores[0].objective != other.objective:
            raise InputError(
                f"{names[0]} and {name} were scored on different held-out examples: train both on one dataset "
                "(the same bucket, data section and day)"
            )
        gap = abs(_mean(scores[0].values(BASE)) - _mean(other.values(BASE)))
        if not gap <= max(_BASE_TOLERANCE, scores[0].noise, other.noise):
            raise InputError(
                f"{names[0]} and {name} were scored in different forms: the base itself differs by {gap:.3f} "
                "nats/token (system prompt, chat template, device)"
            )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

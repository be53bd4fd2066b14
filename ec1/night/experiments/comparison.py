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
from ec1.errors import InputError, PermanentError
from ec1.night.steps.candidate import EVALUATION_FOLDER
from ec1.night.steps.log_book import TRAINING, Run
from ec1.recipes.evaluation import EvaluationOptions

Outcome = Literal["better", "worse", "no difference shown"]

_BASE_TOLERANCE = 0.01
"""Nats per token by which the base's mean may differ between two scorings of the same examples: 16-bit arithmetic."""


@dataclass(frozen=True)
class SeedSpread:
    """How far trainings lie apart that differ in their seed alone: a standard deviation of their mean scores, pooled
    over settings, with its degrees of freedom."""

    deviation: float
    freedom: int


@dataclass(frozen=True)
class ScoreComparison:
    """The second run's score less the first one's. `means`: of the base and the two runs, nats per token. `seeds`: what
    the bounds say of the chance of training."""

    first: str
    second: str
    means: tuple[float, float, float]
    difference: ScoreDifference
    verdict: Outcome
    seeds: str = ""


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


def compare_runs(first: Run, second: Run, options: EvaluationOptions, others: Sequence[Run] = ()) -> ScoreComparison:
    """`others`: runs among which more seeds of the two settings are looked for; what seeds change is then part of the
    bounds. Raises InputError if the two were not scored on the same examples of the same base model."""
    base_models = [(run.spec.recipe.base_model.id, run.spec.recipe.base_model.revision) for run in (first, second)]
    if base_models[0] != base_models[1]:
        raise InputError(f"{first.name} and {second.name} belong to different base models: nothing can be compared")
    scores = (scores_of(first), scores_of(second))
    check_same(scores, (first.name, second.name))
    one, other = (each.values(CANDIDATE) for each in scores)
    groups = [example.group for example in scores[0].examples]
    means = (_mean(scores[0].values(BASE)), _mean(one), _mean(other))
    gap = paired(one, other, groups, options)
    spread = spread_of([_means_of_seeds(run, others, scores[0]) for run in (first, second)])
    if spread is not None:
        gap = widened(gap, spread, (1, 1), options.confidence)
        seeds = f"with what other seeds change (±{spread.deviation:.3f})"
    else:
        seeds = "another seed may change it: train each setting with several to know by how much"
    verdict: Outcome = "better" if gap.lower > 0 else "worse" if gap.upper < 0 else "no difference shown"
    if first.spec.recipe_digest == second.spec.recipe_digest:
        verdict, seeds = "no difference shown", "one setting with two seeds: what lies between them is chance"
    return ScoreComparison(first.name, second.name, means, gap, verdict, seeds)


def spread_of(settings: Sequence[Sequence[float]]) -> SeedSpread | None:
    """`settings`: per setting the mean score of each of its seeds. None where no setting has two."""
    several = [each for each in settings if len(each) > 1]
    freedom = sum(len(each) - 1 for each in several)
    if not freedom:
        return None
    squares = math.fsum((value - _mean(each)) ** 2 for each in several for value in each)
    return SeedSpread(math.sqrt(squares / freedom), freedom)


def widened(gap: ScoreDifference, spread: SeedSpread, seeds: tuple[int, int], confidence: float) -> ScoreDifference:
    """The same difference with bounds that hold for other seeds, too: two independent errors, one of the examples and
    one of the trainings. `seeds`: how many each side is the average of."""
    import numpy as np

    # Student's, drawn: few seeds know their own spread badly.
    drawn = np.random.default_rng(0).standard_t(spread.freedom, 200_000)
    chance = float(np.quantile(drawn, confidence)) * spread.deviation * math.sqrt(sum(1 / each for each in seeds))
    lower = gap.mean - math.hypot(gap.mean - gap.lower, chance)
    upper = gap.mean + math.hypot(gap.upper - gap.mean, chance)
    return gap.model_copy(update={"lower": lower, "upper": upper, "better": lower > 0})


def _means_of_seeds(run: Run, others: Sequence[Run], like: Scores) -> list[float]:
    """The mean score of a run, and of each other run of its setting that was scored on the same examples."""
    found = {}
    for each in (run, *others):
        same = (each.spec.recipe_digest, each.spec.dataset_digest) == (run.spec.recipe_digest, run.spec.dataset_digest)
        try:
            scores = scores_of(each) if same else None
        except (InputError, PermanentError):
            continue
        if scores is not None and [one.example for one in scores.examples] == [one.example for one in like.examples]:
            found[each.spec.effective_seed] = _mean(scores.values(CANDIDATE))
    return list(found.values())


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

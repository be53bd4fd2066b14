"""The gate: whether a candidate may become a version.

Non-inferiority on the same held-out examples: a candidate is accepted only if it is, with confidence, at most a margin
worse than every reference (the base, the incumbent, the best ever). If the evidence is inconclusive, the verdict is
`review`, which is not accepted. The bounds are those of a studentised bootstrap over sources: with the 8 to 16 sources
of a small corpus, the plain percentile bootstrap accepts an inferior candidate 9 to 15 times in a hundred where 5 are
allowed.
Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 12.
"""

import math
from collections.abc import Sequence
from typing import Literal

from ec1.adapters.scores import BASE, Scores
from ec1.errors import InputError
from ec1.recipes.evaluation import EvaluationOptions
from ec1.settings import Settings

# Less than this, on average over the examples, is no difference at all: bf16 rounding alone makes more.
_NO_DIFFERENCE = 1e-5


class Difference(Settings):
    """Candidate minus one reference, nats per token; `lower` and `upper` are one-sided bounds."""

    mean: float
    lower: float
    upper: float
    examples: int
    groups: int
    better: bool
    """True if the candidate is better with confidence, not merely no worse."""


class Verdict(Settings):
    verdict: Literal["accepted", "review", "rejected"]
    reasons: tuple[str, ...]
    differences: dict[str, Difference]
    """Per reference; none where the candidate's scores are not finite."""

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"


def judge(scores: Scores, options: EvaluationOptions, *, candidate: str = "candidate") -> Verdict:
    """Compare `candidate` with every other model that was scored.

    Raises InputError if the base or the candidate was not scored, or a reference's scores are not finite.
    """
    references = [model for model in scores.models if model != candidate]
    values = scores.values(candidate)
    if BASE not in references:
        raise InputError("the base was not evaluated: the gate compares every candidate with it")
    if not all(math.isfinite(value) for value in (*values, *scores.losses(candidate))):
        return Verdict(verdict="rejected", reasons=(f"the {candidate}'s scores are not finite",), differences={})

    groups = [example.group for example in scores.examples]
    rejected: list[str] = []
    review: list[str] = []
    if len(values) < options.min_examples:
        review.append(f"{len(values)} held-out examples are too few to tell: at least {options.min_examples}")
    if len(set(groups)) < options.min_groups:
        review.append(f"the examples come from {len(set(groups))} sources: at least {options.min_groups}")

    differences: dict[str, Difference] = {}
    for reference in references if len(set(groups)) > 1 else []:
        other = scores.values(reference)
        if not all(map(math.isfinite, other)):
            raise InputError(f"the scores of the reference {reference!r} are not finite: nothing can be compared")
        pairs = [mine - theirs for mine, theirs in zip(values, other, strict=True)]
        difference = differences[reference] = compare(pairs, groups, options)
        bounds = f"{difference.mean:+.3f} [{difference.lower:+.3f}, {difference.upper:+.3f}] nats/token"
        if difference.upper < -options.margin_nats:
            rejected.append(f"worse than {reference}: {bounds}")
        elif difference.lower <= -options.margin_nats:
            review.append(f"not shown to be as good as {reference} within {options.margin_nats}: {bounds}")
    if values and _change(scores, candidate) < _NO_DIFFERENCE:
        rejected.append("it answers as the base does: the adapter is a no-op")
    if scores.objective != "sft" and values:
        lost = math.fsum(scores.losses(candidate)) - math.fsum(scores.losses(BASE))
        lost /= len(values)
        if lost > options.max_chosen_loss_nats:
            rejected.append(f"the chosen answers became less likely by {lost:.3f} nats/token")

    if rejected:
        return Verdict(verdict="rejected", reasons=(*rejected, *review), differences=differences)
    if review:
        return Verdict(verdict="review", reasons=tuple(review), differences=differences)
    return Verdict(
        verdict="accepted",
        reasons=tuple(_accepted(reference, difference, options) for reference, difference in differences.items()),
        differences=differences,
    )


def compare(differences: Sequence[float], groups: Sequence[str], options: EvaluationOptions) -> Difference:
    """Mean of paired differences with one-sided bounds, resampled by group. Needs two groups or more."""
    import numpy as np

    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.bincount(member, weights=np.asarray(differences, dtype=float))
    counts = np.bincount(member).astype(float)
    number = len(sums)
    mean = float(sums.sum() / counts.sum())

    def deviation(sums: "np.ndarray", counts: "np.ndarray", means: "np.ndarray") -> "np.ndarray":
        residuals = sums - means[:, None] * counts
        result: np.ndarray = np.sqrt((residuals**2).sum(axis=1) * number / (number - 1)) / counts.sum(axis=1)
        return result

    error = float(deviation(sums[None], counts[None], np.array([mean]))[0])
    lower = upper = mean
    if error > 1e-12:
        draw = np.random.default_rng(options.seed).integers(0, number, (options.resamples, number))
        means = sums[draw].sum(axis=1) / counts[draw].sum(axis=1)
        errors = deviation(sums[draw], counts[draw], means)
        # A resample that drew one group only says nothing about the spread.
        usable = errors > 1e-12
        statistic = (means[usable] - mean) / errors[usable]
        lower = mean - error * float(np.quantile(statistic, options.confidence))
        upper = mean - error * float(np.quantile(statistic, 1 - options.confidence))
    return Difference(
        mean=mean, lower=lower, upper=upper, examples=len(differences), groups=number, better=lower > _NO_DIFFERENCE
    )


def _change(scores: Scores, candidate: str) -> float:
    """Mean absolute change against the base, over scores and losses."""
    before = scores.values(BASE) + scores.losses(BASE)
    after = scores.values(candidate) + scores.losses(candidate)
    return math.fsum(abs(x - y) for x, y in zip(after, before, strict=True)) / len(after)


def _accepted(reference: str, difference: Difference, options: EvaluationOptions) -> str:
    how = "better than" if difference.better else f"within {options.margin_nats} nats/token of"
    return f"{how} {reference}: {difference.mean:+.3f} [{difference.lower:+.3f}, {difference.upper:+.3f}] nats/token"

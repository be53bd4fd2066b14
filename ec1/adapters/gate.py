"""The gate: whether a candidate may become a version.

1. Its *answers must be right*: a share of them that the recipe states, and with confidence more than the base's (or
   more that are well formed). A likelihood may rise a lot while every answer is wrong: that is `review`.
2. It must be *better than the base* in likelihood, with confidence and by a minimum effect. What is certainly less is
   `no_effect`; if the evidence is inconclusive, the verdict is `review`.
3. It must keep a share of the gain of the version in use and of the best ever: a fixed margin adds up night by night.
4. Its gain must come from the prompts: on answers shuffled between prompts it must gain less, or it learnt form alone.
5. Guards can only reject: forgetting, answers that are formed worse than the base's, tasks that it passes no longer.

Tasks are judged by executing the answers: the candidate must solve the share that the recipe states, more than the
base, and more than the version that it started from or that is in use.

An extractor is judged by F1 (`ec1.adapters.reading`): it must be better than the base, and better than whatever reads
now, both with confidence; what it reads is grounded in the text, so it needs no control and no guard.

All bounds are those of a studentised bootstrap over sources: with the 8 to 16 sources of a small corpus, the plain
percentile bootstrap accepts an inferior candidate 9 to 15 times in a hundred where 5 are allowed. Each look at the same
held-out groups spends a part of the error that is allowed over all of them.
Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 12.
"""

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ec1.adapters.scores import BASE, CANDIDATE, THINKING, Judge, Scores, Success
from ec1.corpus.row_kinds import ANSWERS, PAIRS, TASKS
from ec1.errors import InputError
from ec1.recipes.evaluation import EvaluationOptions
from ec1.settings import Settings

_MIN_ERROR_RATE = 0.001
_TAIL_RESAMPLES = 20
"""Resamples beyond a bound: with fewer, its place is chance."""
_GOOD_SHARE = 0.9
"""Where so many answers are right, a base that is as good leaves no room to be better with confidence."""
_CUT = "were cut while it was thinking: raise evaluation.sample_tokens"

VerdictName = Literal["accepted", "no_effect", "review", "rejected"]


class ScoreDifference(Settings):
    """Candidate minus one reference, in `unit`; `lower` and `upper` are one-sided bounds."""

    mean: float
    lower: float
    upper: float
    examples: int
    groups: int
    better: bool
    """True if the candidate is better with confidence, not merely no worse."""
    unit: str = "nats/token"

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.lower:+.3f}, {self.upper:+.3f}] {self.unit}"


class Verdict(Settings):
    verdict: VerdictName
    reasons: tuple[str, ...]
    differences: dict[str, ScoreDifference]
    """Per reference; none where the candidate's scores are not finite."""
    judge: Judge | None = None
    """Which model judged task cases, if one did."""
    success: Success | None = None
    """How many answers were right; None of an extractor, and where none was written."""
    right: dict[str, ScoreDifference] = Field({}, description="per reference, the share of right answers less its")

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"

    @property
    def told(self) -> str:
        """In one line: how many answers are right, then what the verdict rests on; of an accepted one the gain."""
        reasons = self.reasons[:2] if self.accepted else self.reasons
        said = self.success.of(CANDIDATE) if self.success is not None else ""
        return "; ".join(reasons if any(each.startswith(said) for each in reasons) else (said, *reasons))


class _Findings:
    """What speaks against a candidate, by how much it weighs."""

    def __init__(self) -> None:
        self.rejected: list[str] = []
        self.no_effect: list[str] = []
        self.review: list[str] = []

    @property
    def verdict(self) -> VerdictName:
        return (
            "rejected" if self.rejected else "no_effect" if self.no_effect else "review" if self.review else "accepted"
        )


def judge(scores: Scores, options: EvaluationOptions, *, candidate: str = CANDIDATE) -> Verdict:
    """Compare `candidate` with the base and every other model that was scored.

    Raises InputError if the base or the candidate was not scored, or a reference's scores are not finite.
    """
    references = [model for model in scores.models if model not in (BASE, candidate)]
    mine, found = scores.values(candidate), _Findings()
    if BASE not in scores.models:
        raise InputError("the base was not evaluated: the gate compares every candidate with it")
    reads = scores.counts_right
    beside = () if reads else (*scores.losses(candidate), *scores.shuffled(candidate))
    if not all(map(math.isfinite, (*mine, *beside))):
        reasons = (f"the {candidate}'s scores are not finite",)
        return Verdict(verdict="rejected", reasons=reasons, differences={}, judge=scores.judge)
    for model in (BASE, *references):
        if not all(map(math.isfinite, scores.values(model))):
            raise InputError(f"the scores of the reference {model!r} are not finite: nothing can be compared")

    groups = [example.group for example in scores.examples]
    if len(mine) < options.min_examples:
        found.review.append(f"{len(mine)} held-out examples are too few to tell: at least {options.min_examples}")
    if len(set(groups)) < options.min_groups:
        found.review.append(f"the examples come from {len(set(groups))} sources: at least {options.min_groups}")
    if scores.looks >= options.max_looks:
        found.review.append(
            f"these held-out groups were looked at {scores.looks:.0f} times: hold out others (data.seed)"
        )
    differences: dict[str, ScoreDifference] = {}
    right: dict[str, ScoreDifference] = {}
    good: list[str] = []
    if scores.rows is TASKS and (success := scores.success()) is not None:
        good.append(_enough(success, options, candidate, found))
    elif not reads:
        right = _answers(scores, options, candidate, found, good)
    if len(set(groups)) > 1:
        differences[BASE] = _against_base(scores, options, candidate, found, good)
        for reference in references:
            against = _reads_better if reads else _against
            differences[reference] = against(reference, scores, options, candidate, found, good)
        if differences[BASE].better and not reads:
            _control(scores, options, candidate, found)
    _guards(scores, options, candidate, found)
    problems = (*found.rejected, *found.no_effect, *found.review)
    return Verdict(
        verdict=found.verdict,
        reasons=problems or tuple(good),
        differences=differences,
        judge=scores.judge,
        success=scores.success(),
        right=right,
    )


def error_rate(options: EvaluationOptions, looks: float) -> float:
    """How often this look may be wrong: 1/2, 1/6, 1/12, … of what is allowed, so that all of them together keep to it.

    `looks`: how often the same groups were looked at before, on average over the groups; fresh groups count none. It
    never falls below 0.001, which the bootstrap can still resolve: 30 looks cost 0.07 where 0.05 are allowed.
    """
    return max((1 - options.confidence) / ((looks + 1) * (looks + 2)), _MIN_ERROR_RATE)


def compare(
    differences: Sequence[float],
    groups: Sequence[str],
    options: EvaluationOptions,
    *,
    looks: float = 0.0,
    least: float = 0.0,
    unit: str = "nats/token",
) -> ScoreDifference:
    """Mean of paired differences with one-sided bounds, resampled by group. Needs two groups or more.

    `better` is true if the lower bound exceeds `least`.
    """
    import numpy as np

    rate = error_rate(options, looks)
    resamples = max(options.resamples, math.ceil(_TAIL_RESAMPLES / rate))
    _, member = np.unique(np.asarray(groups), return_inverse=True)
    sums = np.bincount(member, weights=np.asarray(differences, dtype=float))
    counts = np.bincount(member).astype(float)
    number = len(sums)
    mean = float(sums.sum() / counts.sum())

    def deviation(sums: "np.ndarray", counts: "np.ndarray", means: "np.ndarray") -> "np.ndarray":
        residuals = sums - means[:, None] * counts
        result: np.ndarray = np.sqrt((residuals**2).sum(axis=1)) / counts.sum(axis=1)
        return result

    error = float(deviation(sums[None], counts[None], np.array([mean]))[0])
    lower = upper = mean
    if error > 1e-12:
        draw = np.random.default_rng(options.seed).integers(0, number, (resamples, number))
        means = sums[draw].sum(axis=1) / counts[draw].sum(axis=1)
        errors = deviation(sums[draw], counts[draw], means)
        # A resample that drew one group only says nothing about the spread.
        usable = errors > 1e-12
        statistic = (means[usable] - mean) / errors[usable]
        lower = mean - error * float(np.quantile(statistic, 1 - rate))
        upper = mean - error * float(np.quantile(statistic, rate))
    return ScoreDifference(
        mean=mean,
        lower=lower,
        upper=upper,
        examples=len(differences),
        groups=number,
        better=lower > least,
        unit=unit,
    )


def _less(values: Sequence[float], others: Sequence[float], share: float = 1.0) -> list[float]:
    return [value - share * other for value, other in zip(values, others, strict=True)]


def _answers(
    scores: Scores, options: EvaluationOptions, candidate: str, found: _Findings, good: list[str]
) -> dict[str, ScoreDifference]:
    """Whether enough of what it wrote is right: the share that is asked for, and with confidence more than the base."""
    success = scores.success()
    if success is None:
        why = "no held-out prompt was answered, so nothing shows that its answers are right"
        mend = f"raise evaluation.sample_tokens above {options.sample_tokens}" if scores.too_long else ""
        found.review.append(f"{why}: {mend or 'set evaluation.sample_generations'}")
        return {}
    mine, said = success.right[candidate], _enough(success, options, candidate, found)
    if success.prompts < options.min_examples:
        found.review.append(f"{success.prompts} answered prompts are too few to tell: at least {options.min_examples}")
    samples = [sample for sample in scores.samples if sample.kind]
    groups = [sample.group for sample in samples]
    if len(set(groups)) < 2:
        return {}

    # What the base would have answered after a thought that was cut may have been right.
    doubts = [THINKING in sample.faults.get(BASE, ()) for sample in samples]
    thinking = sum(doubts)

    def against(reference: str, what: Literal["right", "formed"], doubted: Sequence[bool]) -> ScoreDifference:
        counts = [getattr(sample, what) for sample in samples]
        theirs = [each.get(reference, False) or doubt for each, doubt in zip(counts, doubted, strict=True)]
        gaps = [float(each.get(candidate, False)) - float(other) for each, other in zip(counts, theirs, strict=True)]
        return compare(gaps, groups, options, looks=scores.looks, unit=f"of the answers {what}")

    differences = {name: against(name, "right", [False] * len(samples)) for name in scores.models if name != candidate}
    shown = against(BASE, "right", doubts) if thinking else differences[BASE]
    as_good = mine >= max(_GOOD_SHARE * success.prompts, success.right[BASE] + thinking)
    if not (shown.better or against(BASE, "formed", doubts).better or as_good):
        doubt = f", {thinking} of whose answers {_CUT}"
        found.review.append(f"{said}: not shown to answer better than the base{doubt if thinking else ''}")
    for name, difference in differences.items():
        if difference.upper < 0:
            found.rejected.append(f"{said}: fewer right answers than {name}")
    good.append(said)
    return differences


def _enough(success: Success, options: EvaluationOptions, candidate: str, found: _Findings) -> str:
    """How many answers are right, in words; it is a finding if their share is less than the recipe asks for."""
    said = success.of(candidate)
    if success.right[candidate] < options.min_success * success.prompts:
        found.review.append(f"{said}: at least {options.min_success:.0%} must be right")
    return said


def _against_base(
    scores: Scores, options: EvaluationOptions, candidate: str, found: _Findings, good: list[str]
) -> ScoreDifference:
    groups = [example.group for example in scores.examples]
    least = options.min_effect_tasks if scores.rows is TASKS else options.min_effect_f1
    if not scores.counts_right:
        least = options.min_effect_pairs_nats if scores.rows is PAIRS else options.min_effect_nats
    # What another batching of the same rows changes is not an effect of training.
    least = max(least, scores.noise)
    how = f" ({scores.trained})" if scores.trained else ""
    thinking = scores.faults(BASE).get(THINKING, 0) if scores.rows is TASKS else 0
    if thinking:
        # Of those, too, it may have solved all.
        least += thinking / len(scores.samples)
        how += f"; {thinking} of the base's answers {_CUT}"
    difference = compare(
        _less(scores.values(candidate), scores.values(BASE)),
        groups,
        options,
        looks=scores.looks,
        least=least,
        unit=scores.unit,
    )
    if difference.upper < -least:
        found.rejected.append(f"worse than base: {difference}")
    elif difference.better:
        good.append(f"better than base: {difference}")
    elif difference.upper < least or _change(scores, candidate) <= scores.noise:
        found.no_effect.append(f"no effect, less than {least:g} {scores.unit} above base: {difference}{how}")
    else:
        found.review.append(f"not shown to be better than base by {least:g}: {difference}{how}")
    return difference


def _against(
    reference: str, scores: Scores, options: EvaluationOptions, candidate: str, found: _Findings, good: list[str]
) -> ScoreDifference:
    groups = [example.group for example in scores.examples]
    mine, theirs, base = (scores.values(model) for model in (candidate, reference, BASE))
    kept = compare(
        _less(_less(mine, base), _less(theirs, base), options.keep_share), groups, options, looks=scores.looks
    )
    difference = compare(_less(mine, theirs), groups, options, looks=scores.looks)
    if kept.upper < 0:
        found.rejected.append(
            f"worse than {reference}: {difference}, keeps less than {options.keep_share:.0%} of its gain"
        )
    elif kept.lower <= 0:
        found.review.append(f"not shown to keep {options.keep_share:.0%} of the gain of {reference}: {difference}")
    elif difference.better:
        good.append(f"better than {reference}: {difference}")
    else:
        good.append(f"keeps {options.keep_share:.0%} of the gain of {reference}: {difference}")
    return difference


def _reads_better(
    reference: str, scores: Scores, options: EvaluationOptions, candidate: str, found: _Findings, good: list[str]
) -> ScoreDifference:
    """Whether what counts right things is better than what could serve instead of it: nothing less is worth it."""
    groups = [example.group for example in scores.examples]
    differences = _less(scores.values(candidate), scores.values(reference))
    difference = compare(differences, groups, options, looks=scores.looks, unit=scores.unit)
    if difference.upper < 0:
        found.rejected.append(f"worse than {reference}: {difference}")
    elif difference.better:
        good.append(f"better than {reference}: {difference}")
    else:
        found.review.append(f"not shown to be better than {reference}: {difference}")
    return difference


def _control(scores: Scores, options: EvaluationOptions, candidate: str, found: _Findings) -> None:
    """Whether the gain comes from the prompts.

    Answers: the gain on them must exceed what the same answers gain behind other examples' prompts. Pairs may teach a
    preference that holds for every prompt, and what is unlikely behind another prompt gains more by it; then the chosen
    answers must at least not come loose from their prompts: they gain `keep_share` of that.
    """
    groups = [example.group for example in scores.examples]
    own = [-value for value in _less(scores.losses(candidate), scores.losses(BASE))]
    elsewhere = _less(scores.shuffled(candidate), scores.shuffled(BASE))
    share = options.min_prompt_share if scores.rows is ANSWERS else 0.0
    loose = 0.0 if scores.rows is ANSWERS else 1 - options.keep_share
    bound = compare(
        [_o - _e + loose * max(_e, 0.0) - share * max(_o, 0.0) for _o, _e in zip(own, elsewhere, strict=True)],
        groups,
        options,
        looks=scores.looks,
    )
    gains = f"{_mean(own):+.3f} nats/token on the right answers, {_mean(elsewhere):+.3f} on those of other prompts"
    if bound.upper < 0:
        found.rejected.append(f"it learnt the form of the answers, not what belongs to a prompt: {gains}")
    elif scores.rows is ANSWERS and bound.lower <= 0:
        found.review.append(f"not shown to have learnt more than the form of the answers: {gains}")


def _guards(scores: Scores, options: EvaluationOptions, candidate: str, found: _Findings) -> None:
    if scores.rows is PAIRS and scores.examples:
        lost = _mean(scores.losses(candidate)) - _mean(scores.losses(BASE))
        if lost > options.max_chosen_loss_nats:
            found.rejected.append(f"the chosen answers became less likely by {lost:.3f} nats/token")
    if scores.general:
        lost = _mean(scores.general[BASE]) - _mean(scores.general[candidate])
        # Not `lost > limit`: no comparison with NaN is ever true.
        if not lost <= options.max_forgetting_nats:
            found.rejected.append(
                f"it forgot: answers to general questions became less likely by {lost:.3f} nats/token"
            )
    if scores.general_right:
        mine_right, base_right = (sum(scores.general_right[model]) for model in (candidate, BASE))
        asked = len(scores.general_right[BASE])
        if base_right - mine_right > options.max_general_lost * asked:
            found.rejected.append(
                f"it forgot: of {asked} general questions it answers {mine_right} rightly, the base {base_right}"
            )
    if scores.samples:
        before, after = scores.faults(BASE), scores.faults(candidate)
        for fault in after:
            new = after[fault] - before.get(fault, 0)
            if new > options.max_new_faults * len(scores.samples):
                found.rejected.append(
                    f"of {len(scores.samples)} answers {after[fault]} are {fault.replace('_', ' ')}, of the base's "
                    f"{before.get(fault, 0)}"
                )
    if scores.tasks:
        mine, bases = list(scores.tasks[candidate].values()), list(scores.tasks[BASE].values())
        passed, base = mine.count(True), bases.count(True)
        undecided = sum(None in each for each in zip(mine, bases, strict=True))
        if passed + mine.count(None) < base:
            found.rejected.append(f"it passes {passed} of {len(bases)} tasks, the base {base}")
        elif undecided:
            why = scores.judge.problem if scores.judge else "no judge"
            found.review.append(f"{undecided} of {len(bases)} tasks were not judged: {why}")


def _change(scores: Scores, candidate: str) -> float:
    """Mean absolute change against the base, over scores and, where there are any, losses."""
    before, after = scores.values(BASE), scores.values(candidate)
    if not scores.counts_right:
        before, after = before + scores.losses(BASE), after + scores.losses(candidate)
    return math.fsum(abs(x - y) for x, y in zip(after, before, strict=True)) / len(after)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

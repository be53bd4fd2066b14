"""The gate's arithmetic: what it accepts, how often it is wrong, and that it says the same thing twice."""

import math

import numpy as np
import pytest

from ec1.adapters.gate import compare, judge
from ec1.adapters.scores import ExampleScores, Scores
from ec1.errors import InputError
from ec1.recipes.evaluation import EvaluationOptions

OPTIONS = EvaluationOptions()


def scores(
    differences: dict[str, list[float]], *, per_group: int = 2, objective: str = "sft", **losses: list[float]
) -> Scores:
    """Scores in which each model lies `differences` above a base of -2."""
    models = ("base", *differences)
    count = len(next(iter(differences.values())))
    examples = []
    for index in range(count):
        value = {"base": -2.0} | {name: -2.0 + column[index] for name, column in differences.items()}
        loss = {name: losses[name][index] if name in losses else -value[name] for name in models}
        finite = {name: number if math.isfinite(number) else None for name, number in value.items()}
        examples.append(
            ExampleScores(example=str(index), group=str(index // per_group), tokens=9, scores=finite, losses=loss)
        )
    return Scores(objective=objective, models=models, examples=tuple(examples))  # type: ignore[arg-type]


def spread(mean: float, width: float, count: int = 16, seed: int = 0) -> list[float]:
    noise = np.random.default_rng(seed).normal(size=count)
    return list(mean + width * (noise - noise.mean()) / noise.std())


@pytest.mark.parametrize(
    ("differences", "verdict", "reason"),
    [
        ({"candidate": spread(0.3, 0.1)}, "accepted", "better than base"),
        ({"candidate": spread(0.0, 0.02)}, "accepted", "within 0.05 nats/token of base"),
        ({"candidate": spread(-0.02, 0.2)}, "review", "not shown to be as good as base"),
        ({"candidate": spread(-0.3, 0.1)}, "rejected", "worse than base"),
        ({"candidate": [0.0] * 16}, "rejected", "no-op"),
        ({"incumbent": spread(0.6, 0.1), "candidate": spread(0.3, 0.1, seed=1)}, "rejected", "worse than incumbent"),
        ({"incumbent": spread(0.2, 0.1), "candidate": spread(0.3, 0.1)}, "accepted", "better than incumbent"),
        ({"incumbent": [0.1] * 16, "best": [0.9] * 16, "candidate": [0.1] * 16}, "rejected", "worse than best"),
        ({"candidate": [math.nan, *[0.3] * 15]}, "rejected", "not finite"),
        ({"candidate": spread(0.3, 0.1, count=6)}, "review", "6 held-out examples are too few"),
        ({"candidate": []}, "review", "too few"),
    ],
)
def test_verdicts(differences: dict[str, list[float]], verdict: str, reason: str) -> None:
    judged = judge(scores(differences), OPTIONS)
    assert judged.verdict == verdict, judged
    assert judged.accepted is (verdict == "accepted")
    assert any(reason in text for text in judged.reasons), judged.reasons
    assert judge(scores(differences), OPTIONS) == judged


def test_many_examples_of_few_sources_are_not_many() -> None:
    judged = judge(scores({"candidate": spread(0.3, 0.1)}, per_group=8), OPTIONS)
    assert judged.verdict == "review"
    assert "come from 2 sources" in judged.reasons[0]
    one_source = judge(scores({"candidate": spread(0.3, 0.1)}, per_group=16), OPTIONS)
    assert (one_source.verdict, one_source.differences) == ("review", {})


def test_a_margin_bought_by_making_everything_unlikely_is_rejected() -> None:
    lost = {"base": [2.0] * 16, "candidate": [2.9] * 16}
    assert judge(scores({"candidate": spread(0.5, 0.1)}, objective="dpo", **lost), OPTIONS).verdict == "rejected"
    kept = {"base": [2.0] * 16, "candidate": [2.2] * 16}
    assert judge(scores({"candidate": spread(0.5, 0.1)}, objective="dpo", **kept), OPTIONS).verdict == "accepted"


def test_there_is_no_verdict_without_a_base() -> None:
    with pytest.raises(InputError, match="base was not evaluated"):
        judge(scores({"candidate": [0.1] * 16}).model_copy(update={"models": ("candidate",)}), OPTIONS)
    with pytest.raises(InputError, match="'candidate' was not evaluated"):
        judge(scores({"other": [0.1] * 16}), OPTIONS)
    with pytest.raises(InputError, match="reference 'incumbent' are not finite"):
        judge(scores({"incumbent": [math.nan] * 16, "candidate": [0.1] * 16}), OPTIONS)


@pytest.mark.parametrize(("groups", "skewed"), [(8, False), (16, False), (16, True), (50, True)])
def test_an_inferior_candidate_rarely_passes(groups: int, skewed: bool) -> None:
    """A candidate exactly a margin worse may be accepted in 5 % of all nights; a percentile bootstrap: 9 to 15 %."""
    random = np.random.default_rng(groups)
    options = EvaluationOptions(resamples=1000)
    nights, passed = 300, 0
    for _ in range(nights):
        sizes = random.integers(1, 4, groups)
        group = np.repeat(np.arange(groups), sizes)
        shared = random.exponential(0.1, groups) if skewed else random.normal(0.1, 0.1, groups)
        own = random.normal(0, 0.1, len(group))
        difference = -options.margin_nats - (shared - 0.1)[group] + own
        passed += compare(list(difference), [str(number) for number in group], options).lower > -options.margin_nats
    assert passed / nights < (0.12 if skewed else 0.09)

"""The gate's arithmetic: what it accepts, how often it is wrong, and that it says the same thing twice."""

import math
from typing import Any

import numpy as np
import pytest

from ec1.adapters.gate import compare, error_rate, judge
from ec1.adapters.scores import ExampleScores, Sample, Scores
from ec1.errors import InputError
from ec1.recipes.evaluation import EvaluationOptions

OPTIONS = EvaluationOptions()


def scores(
    differences: dict[str, list[float]],
    *,
    per_group: int = 2,
    objective: str = "sft",
    elsewhere: dict[str, list[float]] | None = None,
    losses: dict[str, list[float]] | None = None,
    **fields: Any,
) -> Scores:
    """Scores in which each model lies `differences` above a base of -2, and gains `elsewhere` behind other prompts."""
    models = ("base", *differences)
    count = len(next(iter(differences.values())))
    examples = []
    for index in range(count):
        value = {"base": -2.0} | {name: -2.0 + column[index] for name, column in differences.items()}
        loss = {name: losses[name][index] if losses else -value[name] for name in models}
        shuffled = {name: -4.0 + (elsewhere[name][index] if elsewhere and name != "base" else 0.0) for name in models}
        finite = {name: number if math.isfinite(number) else None for name, number in value.items()}
        examples.append(
            ExampleScores(
                example=str(index),
                group=str(index // per_group),
                tokens=9,
                scores=finite,
                losses={name: number if math.isfinite(number) else None for name, number in loss.items()},
                shuffled=shuffled,
            )
        )
    return Scores(objective=objective, models=models, examples=tuple(examples), **fields)  # type: ignore[arg-type]


def spread(mean: float, width: float, count: int = 16, seed: int = 0) -> list[float]:
    noise = np.random.default_rng(seed).normal(size=count)
    return list(mean + width * (noise - noise.mean()) / noise.std())


@pytest.mark.parametrize(
    ("differences", "verdict", "reason"),
    [
        ({"candidate": spread(0.3, 0.1)}, "accepted", "better than base"),
        ({"candidate": spread(0.0, 0.02)}, "no_effect", "less than 0.02 nats/token above base"),
        ({"candidate": spread(0.01, 0.002)}, "no_effect", "no effect"),
        ({"candidate": spread(0.03, 0.1)}, "review", "not shown to be better than base"),
        ({"candidate": spread(-0.02, 0.2)}, "review", "not shown to be better than base"),
        ({"candidate": spread(-0.3, 0.1)}, "rejected", "worse than base"),
        ({"candidate": [0.0] * 16}, "no_effect", "no effect"),
        ({"incumbent": spread(0.6, 0.1), "candidate": spread(0.3, 0.1, seed=1)}, "rejected", "worse than incumbent"),
        ({"incumbent": spread(0.2, 0.1), "candidate": spread(0.3, 0.1)}, "accepted", "better than incumbent"),
        (
            {"incumbent": spread(0.3, 0.1), "candidate": spread(0.29, 0.1)},
            "accepted",
            "keeps 80% of the gain of incumbent",
        ),
        (
            {"incumbent": spread(0.3, 0.1), "candidate": spread(0.25, 0.1, seed=1)},
            "review",
            "not shown to keep 80% of the gain of incumbent",
        ),
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


def test_what_has_no_effect_says_how_it_was_trained() -> None:
    judged = judge(scores({"candidate": [0.0] * 16}, trained="learning rate 5e-06 over 12 steps"), OPTIONS)
    assert "learning rate 5e-06 over 12 steps" in judged.reasons[0]


def test_exactly_as_many_examples_and_sources_as_asked_for_are_enough() -> None:
    options = EvaluationOptions(min_examples=8, min_groups=4)
    assert judge(scores({"candidate": spread(0.4, 0.05, count=8)}), options).accepted
    assert judge(scores({"candidate": spread(0.4, 0.05, count=7)}), options).verdict == "review"
    assert judge(scores({"candidate": spread(0.4, 0.05, count=9)}, per_group=3), options).verdict == "review"


def test_many_examples_of_few_sources_are_not_many() -> None:
    judged = judge(scores({"candidate": spread(0.3, 0.1)}, per_group=8), OPTIONS)
    assert judged.verdict == "review"
    assert "come from 2 sources" in judged.reasons[0]
    one_source = judge(scores({"candidate": spread(0.3, 0.1)}, per_group=16), OPTIONS)
    assert (one_source.verdict, one_source.differences) == ("review", {})


def test_a_gain_that_does_not_come_from_the_prompts_is_form_alone() -> None:
    gain = {"candidate": spread(0.4, 0.1)}
    judged = judge(scores(gain, elsewhere={"candidate": spread(0.4, 0.1, seed=1)}), OPTIONS)
    assert judged.verdict in ("rejected", "review") and "form of the answers" in judged.reasons[0]
    judged = judge(scores(gain, elsewhere={"candidate": spread(0.9, 0.1, seed=1)}), OPTIONS)
    assert judged.verdict == "rejected" and "form of the answers" in judged.reasons[0]
    assert judge(scores(gain, elsewhere={"candidate": spread(0.2, 0.1, seed=1)}), OPTIONS).accepted
    # A preference may hold for every prompt; what must not happen is that answers come loose from their prompts.
    likelier = {"base": [2.0] * 16, "candidate": [1.7] * 16}
    same = scores(gain, objective="dpo", losses=likelier, elsewhere={"candidate": [0.3] * 16})
    assert judge(same, OPTIONS).accepted
    loose = scores(gain, objective="dpo", losses=likelier, elsewhere={"candidate": spread(0.5, 0.1)})
    assert judge(loose, OPTIONS).verdict == "rejected"


def test_a_margin_bought_by_making_everything_unlikely_is_rejected() -> None:
    lost = {"base": [2.0] * 16, "candidate": [2.9] * 16}
    gain = {"candidate": spread(0.5, 0.1)}
    assert judge(scores(gain, objective="dpo", losses=lost), OPTIONS).verdict == "rejected"
    kept = {"base": [2.0] * 16, "candidate": [1.8] * 16}
    assert judge(scores(gain, objective="dpo", losses=kept), OPTIONS).verdict == "accepted"
    swapped = scores({"candidate": spread(-0.5, 0.1)}, objective="dpo", losses=kept)
    assert judge(swapped, OPTIONS).verdict == "rejected"


def test_guards_only_reject() -> None:
    gain = {"candidate": spread(0.3, 0.1)}
    for lost, verdict in ((0.1, "accepted"), (3.0, "rejected"), (math.nan, "rejected")):
        general = {"base": (-1.0,) * 4, "candidate": (-1.0 - lost,) * 4}
        assert judge(scores(gain, general=general), OPTIONS).verdict == verdict, lost
    bettered = {"base": (-3.0,) * 4, "candidate": (-1.0,) * 4}
    assert judge(scores({"candidate": [0.0] * 16}, general=bettered), OPTIONS).verdict == "no_effect"

    def samples(base: int, candidate: int) -> tuple[Sample, ...]:
        faults = [
            {"base": ("repetitive",) * (place < base), "candidate": ("repetitive",) * (place < candidate)}
            for place in range(4)
        ]
        return tuple(Sample(prompt="p", expected="e", answers={}, faults=each) for each in faults)

    for base, candidate, verdict in ((0, 1, "accepted"), (0, 2, "rejected"), (4, 4, "accepted"), (4, 0, "accepted")):
        assert judge(scores(gain, samples=samples(base, candidate)), OPTIONS).verdict == verdict
    tasks = {"base": {"one": True, "two": False}, "candidate": {"one": False, "two": False}}
    assert "passes 0 of 2 tasks" in judge(scores(gain, tasks=tasks), OPTIONS).reasons[0]
    tasks["candidate"]["two"] = True
    assert judge(scores(gain, tasks=tasks), OPTIONS).accepted


def test_what_another_batching_changes_is_no_effect() -> None:
    gain = {"candidate": spread(0.05, 0.01)}
    assert judge(scores(gain), OPTIONS).accepted
    assert judge(scores(gain, noise=0.1), OPTIONS).verdict == "no_effect"


def test_each_look_at_the_same_groups_asks_for_more() -> None:
    gain = {"candidate": spread(0.1, 0.1)}
    lowers = [judge(scores(gain, looks=looks), OPTIONS).differences["base"].lower for looks in (0, 1, 5)]
    assert lowers == sorted(lowers, reverse=True) and len(set(lowers)) == 3
    assert sum(error_rate(OPTIONS, looks) for looks in range(6)) < 0.05
    assert sum(error_rate(OPTIONS, looks) for looks in range(30)) < 0.07
    used_up = judge(scores({"candidate": spread(0.3, 0.1)}, looks=30), OPTIONS)
    assert used_up.verdict == "review" and "looked at 30 times" in used_up.reasons[0]


def test_there_is_no_verdict_without_a_base() -> None:
    with pytest.raises(InputError, match="base was not evaluated"):
        judge(scores({"candidate": [0.1] * 16}).model_copy(update={"models": ("candidate",)}), OPTIONS)
    with pytest.raises(InputError, match="'candidate' was not evaluated"):
        judge(scores({"other": [0.1] * 16}), OPTIONS)
    with pytest.raises(InputError, match="reference 'incumbent' are not finite"):
        judge(scores({"incumbent": [math.nan] * 16, "candidate": [0.1] * 16}), OPTIONS)


@pytest.mark.parametrize(("groups", "skewed"), [(8, False), (16, False), (16, True), (50, True)])
def test_a_useless_candidate_rarely_seems_better(groups: int, skewed: bool) -> None:
    """A candidate exactly at the minimum effect may pass the first look in 2.5 % of all nights."""
    random = np.random.default_rng(groups)
    options = EvaluationOptions(resamples=1000)
    nights, passed = 300, 0
    for _ in range(nights):
        sizes = random.integers(1, 4, groups)
        group = np.repeat(np.arange(groups), sizes)
        shared = random.exponential(0.1, groups) if skewed else random.normal(0.1, 0.1, groups)
        own = random.normal(0, 0.1, len(group))
        difference = options.min_effect_nats - (shared - 0.1)[group] + own
        passed += compare(
            list(difference), [str(number) for number in group], options, least=options.min_effect_nats
        ).better
    assert passed / nights < (0.08 if skewed else 0.05)

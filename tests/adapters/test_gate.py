"""The gate's arithmetic: what it accepts, how often it is wrong, and that it says the same thing twice."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ec1.adapters.gate import compare, error_rate, judge
from ec1.adapters.scores import THINKING, ExampleScores, Judge, Sample, Scores
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
    """Scores in which each model lies `differences` above a base of -2, and gains `elsewhere` behind other prompts.

    All but the base answer every prompt rightly, if no `samples` say otherwise.
    """
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
    right = {name: name != "base" for name in models}
    fields = {"samples": written([right] * count, per_group=per_group)} | fields
    return Scores(objective=objective, models=models, examples=tuple(examples), **fields)  # type: ignore[arg-type]


def written(
    right: Sequence[dict[str, bool]], *, per_group: int = 2, formed: Sequence[dict[str, bool]] = (), **fields: Any
) -> tuple[Sample, ...]:
    """One answered prompt for each of `right`; an answer is well formed where it is right, or `formed` says so."""
    return tuple(
        Sample(
            prompt="p",
            expected="e",
            answers={},
            example=str(place),
            group=str(place // per_group),
            kind="text",
            right=each,
            formed=formed[place] if formed else each,
            **fields,
        )
        for place, each in enumerate(right)
    )


def counted(candidate: int, base: int, prompts: int = 50, **others: int) -> list[dict[str, bool]]:
    """The first so many of each model's answers are right."""
    counts = {"candidate": candidate, "base": base} | others
    return [{name: place < count for name, count in counts.items()} for place in range(prompts)]


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
    # What is unlikely behind another prompt gains a little more by the same form: nothing came loose.
    more = scores(gain, objective="dpo", losses=likelier, elsewhere={"candidate": spread(0.33, 0.01)})
    assert judge(more, OPTIONS).accepted
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


@pytest.mark.parametrize(
    ("right", "verdict", "reason"),
    [
        (counted(30, 0), "accepted", "30 of 50 right, base 0"),
        (counted(0, 0), "review", "0 of 50 right, base 0: at least 10% must be right"),
        (counted(4, 0), "review", "at least 10%"),
        (counted(7, 6), "review", "not shown to answer better than the base"),
        (counted(50, 50), "accepted", "50 of 50 right, base 50"),
        (counted(20, 40), "rejected", "fewer right answers than base"),
        (counted(6, 0, 6), "review", "6 answered prompts are too few"),
        ([], "review", "no held-out prompt was answered"),
    ],
)
def test_without_right_answers_no_likelihood_is_enough(right: list[dict[str, bool]], verdict: str, reason: str) -> None:
    judged = judge(scores({"candidate": spread(3.0, 0.1)}, samples=written(right)), OPTIONS)
    assert judged.verdict == verdict, judged
    assert reason in judged.told
    assert verdict != "accepted" or judged.told.startswith(reason)


def test_well_formed_answers_are_enough_only_beside_the_share_that_is_right() -> None:
    formed = [{"candidate": True, "base": False}] * 50
    for count, verdict in ((6, "accepted"), (4, "review")):
        samples = written(counted(count, 5), formed=formed)
        found = judge(scores({"candidate": spread(3.0, 0.1)}, samples=samples), OPTIONS)
        assert found.verdict == verdict, found


def test_fewer_right_answers_than_the_version_in_use_are_rejected() -> None:
    gain = {"incumbent": spread(0.3, 0.1), "candidate": spread(0.6, 0.1)}
    judged = judge(scores(gain, samples=written(counted(20, 0, incumbent=40))), OPTIONS)
    assert (judged.verdict, judged.reasons[0]) == (
        "rejected",
        "20 of 50 right, base 0, incumbent 40: fewer right answers than incumbent",
    )
    assert judge(scores(gain, samples=written(counted(40, 0, incumbent=40))), OPTIONS).accepted


def test_pairs_tell_how_often_the_chosen_answer_is_preferred() -> None:
    kept = {"base": [2.0] * 16, "candidate": [1.8] * 16}
    pairs = scores({"candidate": [2.5] * 15 + [1.0]}, objective="dpo", losses=kept)
    assert judge(pairs, OPTIONS).told.startswith(
        "16 of 16 right, base 0; prefers the chosen answer in 15 of 16, base 0; better than base"
    )


def test_general_questions_that_are_answered_rightly_no_more_are_forgotten() -> None:
    gain = {"candidate": spread(0.3, 0.1)}
    for lost, verdict in ((6, "accepted"), (7, "rejected")):
        right = {"base": (True,) * 64, "candidate": (False,) * lost + (True,) * (64 - lost)}
        assert judge(scores(gain, general_right=right), OPTIONS).verdict == verdict


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
            for place in range(8)
        ]
        all_right = written([{"candidate": True, "base": False}] * 8)
        return tuple(each.model_copy(update={"faults": fault}) for each, fault in zip(all_right, faults, strict=True))

    for base, candidate, verdict in ((0, 2, "accepted"), (0, 3, "rejected"), (8, 8, "accepted"), (8, 0, "accepted")):
        assert judge(scores(gain, samples=samples(base, candidate)), OPTIONS).verdict == verdict
    tasks = {"base": {"one": True, "two": False}, "candidate": {"one": False, "two": False}}
    assert "passes 0 of 2 tasks" in judge(scores(gain, tasks=tasks), OPTIONS).reasons[0]
    tasks["candidate"]["two"] = True
    assert judge(scores(gain, tasks=tasks), OPTIONS).accepted


@pytest.mark.parametrize(
    ("right", "thinking", "verdict"),
    [(40, 0, "accepted"), (40, 50, "review"), (40, 39, "review"), (40, 30, "accepted"), (40, 3, "accepted")],
)
def test_a_base_that_was_cut_while_it_thought_is_not_taken_for_wrong(right: int, thinking: int, verdict: str) -> None:
    """All of what it would have answered may be right."""
    samples = tuple(
        each.model_copy(update={"faults": {"base": (THINKING,) * (place < thinking)}})
        for place, each in enumerate(written(counted(right, 0)))
    )
    found = judge(scores({"candidate": spread(0.3, 0.1)}, samples=samples), OPTIONS)
    assert found.verdict == verdict
    if verdict == "review":
        assert (
            f"{thinking} of whose answers were cut while it was thinking: raise evaluation.sample_tokens"
            in (found.reasons[0])
        )


def test_what_a_judge_left_open_is_never_accepted() -> None:
    gain = {"candidate": spread(0.3, 0.1)}
    silent = Judge(model="judge", digest="d" * 64, problem="it did not answer")
    for mine, base, verdict in (
        ((True, None), (True, None), "review"),
        ((True, True), (False, None), "review"),
        ((None, True), (False, False), "review"),
        ((False, None), (True, True), "rejected"),
        ((True, False), (True, False), "accepted"),
    ):
        tasks = {
            name: dict(zip(("one", "two"), each, strict=True)) for name, each in (("base", base), ("candidate", mine))
        }
        found = judge(scores(gain, tasks=tasks, judge=silent), OPTIONS)
        assert found.verdict == verdict, (mine, base)
        assert found.judge == silent, "who judged is part of the verdict"
        if verdict == "review":
            assert found.reasons == ("1 of 2 tasks were not judged: it did not answer",)


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


# --- at the bounds themselves: equal differences leave no doubt, and these figures are exact in binary


def steady(gain: float, count: int = 16) -> dict[str, list[float]]:
    return {"candidate": [gain] * count}


def test_what_lies_exactly_at_a_bound_is_left_to_a_person() -> None:
    options = EvaluationOptions(min_effect_nats=0.5)
    at_the_least = judge(scores(steady(0.5)), options)
    assert (at_the_least.verdict, at_the_least.differences["base"].better) == ("review", False)
    assert judge(scores(steady(0.5), noise=0.5), options).verdict == "no_effect", "all of it is noise"
    as_much_less = judge(scores(steady(-0.5)), options)
    assert as_much_less.verdict == "no_effect" and as_much_less.reasons[0].endswith("nats/token")


def test_exactly_the_share_that_must_be_kept_is_left_to_a_person() -> None:
    options = EvaluationOptions(keep_share=0.5)
    verdicts = [
        judge(scores({"incumbent": [0.5] * 16} | steady(gain)), options).verdict for gain in (0.125, 0.25, 0.375)
    ]
    assert verdicts == ["rejected", "review", "accepted"]


def test_pairs_have_a_minimum_of_their_own() -> None:
    options = EvaluationOptions(min_effect_nats=0.5, min_effect_pairs_nats=0.125)
    assert judge(scores(steady(0.25)), options).verdict == "no_effect"
    losses = {"base": [2.0] * 16, "candidate": [1.75] * 16}
    assert judge(scores(steady(0.25), objective="dpo", losses=losses), options).accepted


def test_a_share_of_the_gain_must_come_from_the_prompt() -> None:
    def verdict(elsewhere: float, share: float) -> str:
        options = EvaluationOptions(min_prompt_share=share)
        return judge(scores(steady(0.5), elsewhere={"candidate": [elsewhere] * 16}), options).verdict

    assert [verdict(elsewhere, 0.0) for elsewhere in (0.25, 0.5, 0.75)] == ["accepted", "review", "rejected"]
    assert [verdict(elsewhere, 0.5) for elsewhere in (0.125, 0.25, 0.375)] == ["accepted", "review", "rejected"]
    judged = judge(scores(steady(0.5), elsewhere={"candidate": [0.75] * 16}), OPTIONS)
    assert "+0.500 nats/token on the right answers, +0.750 on those of other prompts" in judged.reasons[0]
    pairs = scores(
        steady(0.5),
        objective="dpo",
        losses={"base": [2.0] * 16, "candidate": [1.5] * 16},
        elsewhere={"candidate": [0.5] * 16},
    )
    assert judge(pairs, EvaluationOptions(min_prompt_share=0.5)).accepted, "a preference may hold for every prompt"


def test_answers_that_became_less_likely_are_told_of_pairs_alone() -> None:
    def pairs(loss: float) -> Scores:
        losses = {"base": [2.0] * 16, "candidate": [loss] * 16}
        return scores(steady(0.5), objective="dpo", losses=losses, elsewhere={"candidate": [2.0 - loss] * 16})

    options = EvaluationOptions(max_chosen_loss_nats=0.5)
    assert judge(pairs(2.5), options).accepted, "exactly the bound is allowed"
    judged = judge(pairs(2.75), options)
    assert judged.reasons == ("the chosen answers became less likely by 0.750 nats/token",)
    (reason,) = judge(scores(steady(-0.75)), options).reasons
    assert reason.startswith("worse than base")
    assert judge(scores(steady(0.5, count=0), objective="dpo"), options).verdict == "review", "no pairs at all"


def test_exactly_the_bound_of_forgetting_is_allowed() -> None:
    general = {"base": (-1.0,) * 4, "candidate": (-2.0,) * 4}
    assert judge(scores(steady(0.5), general=general), EvaluationOptions(max_forgetting_nats=1.0)).accepted


def test_faults_are_told_in_numbers() -> None:
    faults: list[dict[str, tuple[str, ...]]] = [
        {"base": ("cut_off",) * (at < 1), "candidate": ("cut_off",)} for at in range(4)
    ]
    all_right = written([{"candidate": True, "base": False}] * 4)
    samples = tuple(each.model_copy(update={"faults": fault}) for each, fault in zip(all_right, faults, strict=True))
    judged = judge(scores(steady(0.5), samples=samples), EvaluationOptions(min_examples=4))
    assert judged.reasons == ("of 4 answers 4 are cut off, of the base's 1",)
    new = tuple(sample.model_copy(update={"faults": {"candidate": ("cut_off",)}}) for sample in samples)
    judged = judge(scores(steady(0.5), samples=new), EvaluationOptions(min_examples=4))
    assert judged.reasons == ("of 4 answers 4 are cut off, of the base's 0",)


def test_two_sources_are_compared_and_left_to_a_person() -> None:
    judged = judge(scores({"candidate": spread(0.3, 0.1)}, per_group=8), OPTIONS)
    assert (judged.verdict, set(judged.differences)) == ("review", {"base"})


# --- the bounds


def interval(sums: "np.ndarray", counts: "np.ndarray", rate: float) -> tuple[float, float]:
    """What the normal theory of a ratio says of the same figures: the bootstrap must agree with it where it holds."""
    mean = sums.sum() / counts.sum()
    error = math.sqrt(((sums - mean * counts) ** 2).sum()) / counts.sum()
    # Student's t of 39 degrees of freedom.
    quantile = {0.025: 2.023, 0.05 / 6: 2.502}[rate]
    return mean - quantile * error, mean + quantile * error


@pytest.mark.parametrize(("looks", "rate"), [(0, 0.025), (1, 0.05 / 6)])
@pytest.mark.parametrize("sizes", [[2] * 40, [1, 5] * 20])
def test_the_bounds_are_those_of_theory_where_there_is_one(looks: int, rate: float, sizes: list[int]) -> None:
    random = np.random.default_rng(3)
    group = np.repeat(np.arange(40), sizes)
    differences = random.normal(0.3, 0.2, 40)[group] + random.normal(0, 0.1, len(group))
    found = compare(list(differences), [str(number) for number in group], OPTIONS, looks=looks)
    lower, upper = interval(np.bincount(group, weights=differences), np.bincount(group).astype(float), rate)
    width = upper - lower
    assert found.mean == pytest.approx(differences.mean())
    assert abs(found.lower - lower) < 0.12 * width and abs(found.upper - upper) < 0.12 * width
    assert (found.examples, found.groups) == (len(group), 40)
    if not looks:
        assert found == compare(list(differences), [str(number) for number in group], OPTIONS)


def test_the_allowed_error_is_spent_look_by_look() -> None:
    assert [error_rate(OPTIONS, looks) / (1 - OPTIONS.confidence) for looks in range(3)] == pytest.approx(
        [1 / 2, 1 / 6, 1 / 12]
    )
    assert error_rate(OPTIONS, 100) == 0.001


def test_a_rare_error_is_told_by_enough_resamples() -> None:
    differences, groups = spread(0.3, 0.1, count=12), [str(number) for number in range(12)]
    few, many = (
        compare(differences, groups, EvaluationOptions(resamples=resamples), looks=30) for resamples in (1000, 20_000)
    )
    assert few == many


def decided(looks: float, others: dict[str, list[float]], elsewhere: Sequence[float] | None = None) -> str:
    shuffled = None if elsewhere is None else {"candidate": list(elsewhere)}
    return judge(scores(others | {"candidate": spread(0.5, 0.1)}, looks=looks, elsewhere=shuffled), OPTIONS).verdict


def test_a_later_look_asks_for_more_in_every_comparison() -> None:
    incumbent = spread(0.5, 0.1, seed=1)
    lowers = [
        judge(scores({"incumbent": incumbent, "candidate": spread(0.5, 0.1)}, looks=looks), OPTIONS)
        .differences["incumbent"]
        .lower
        for looks in (0, 5)
    ]
    assert lowers[0] > lowers[1]
    kept = {"incumbent": spread(0.525, 0.1, seed=1)}
    assert (decided(0, kept), decided(5, kept)) == ("accepted", "review")
    form = spread(0.42, 0.1, seed=1)
    assert (decided(0, {}, form), decided(5, {}, form)) == ("accepted", "review")


def reads(**gains: list[float]) -> Scores:
    """Scores of extractors: shares of F1, no likelihoods."""
    examples = tuple(
        ExampleScores(
            example=str(number),
            group=str(number // 2),
            tokens=9,
            scores={"base": 0.4} | {name: 0.4 + column[number] for name, column in gains.items()},
        )
        for number in range(16)
    )
    return Scores(objective="extraction", models=("base", *gains), examples=examples)


@pytest.mark.parametrize(
    ("gains", "verdict", "reason"),
    [
        ({"candidate": spread(0.2, 0.1)}, "accepted", "better than base: +0.200 ["),
        ({"candidate": spread(0.005, 0.001)}, "no_effect", "no effect, less than 0.01 F1 above base"),
        ({"candidate": spread(-0.2, 0.1)}, "rejected", "worse than base"),
        ({"candidate": spread(0.3, 0.1), "incumbent": spread(0.1, 0.1)}, "accepted", "better than incumbent"),
        # Of an adapter of another kind, this would keep enough of the gain.
        ({"candidate": spread(0.3, 0.1), "incumbent": spread(0.3, 0.1, seed=1)}, "review", "not shown to be better"),
        ({"candidate": spread(0.2, 0.05), "incumbent": spread(0.4, 0.05)}, "rejected", "worse than incumbent"),
    ],
)
def test_an_extractor_is_judged_by_f1_against_what_reads_now(
    gains: dict[str, list[float]], verdict: str, reason: str
) -> None:
    found = judge(reads(**gains), OPTIONS)
    assert found.verdict == verdict, found
    assert any(reason in each for each in found.reasons)
    assert all(str(each).endswith(" F1") for each in found.differences.values())


def test_the_least_gain_in_f1_is_the_recipes() -> None:
    gain = reads(candidate=spread(0.1, 0.01))
    assert judge(gain, OPTIONS).accepted
    assert judge(gain, EvaluationOptions(min_effect_f1=0.2)).verdict == "no_effect"

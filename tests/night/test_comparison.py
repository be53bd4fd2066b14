"""Two runs are held against each other only if they were asked the same."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ec1.adapters.gate import Verdict
from ec1.adapters.scores import ExampleScores, Scores, Success
from ec1.errors import InputError
from ec1.night.experiments.comparison import check_same, paired, spread_of, widened
from ec1.night.experiments.sweep import settings_of, table
from ec1.night.records import EvaluationRecord, Records
from ec1.night.steps.candidate import CandidateVerdict, earlier_looks
from ec1.recipes.evaluation import EvaluationOptions


def scores(*names: str, base: float = -2.0, tokens: int = 5) -> Scores:
    examples = tuple(
        ExampleScores(
            example=name,
            group=name,
            tokens=tokens,
            scores={"base": base, "candidate": base + 0.1},
            losses={"base": -base, "candidate": -base - 0.1},
        )
        for name in names
    )
    return Scores(objective="sft", models=("base", "candidate"), examples=examples)


def test_other_examples_or_another_form_are_refused() -> None:
    check_same([scores("a", "b"), scores("a", "b", base=-2.005)], ["one", "other"])
    for other in (scores("a", "c"), scores("a"), scores("b", "a"), scores("a", "b", tokens=6)):
        with pytest.raises(InputError, match="one and other were scored on different held-out examples"):
            check_same([scores("a", "b"), other], ["one", "other"])
    with pytest.raises(InputError, match=r"the base itself differs by 0\.500"):
        check_same([scores("a", "b"), scores("a", "b", base=-2.5)], ["one", "other"])


def test_the_difference_is_of_pairs() -> None:
    """What all examples share does not widen the bounds: the second is better by 0.1 on each, however hard each is."""
    first = [-float(n) for n in range(12)]
    groups = [f"g{n}" for n in range(12)]
    second = [value + 0.1 + 0.01 * (n % 3) for n, value in enumerate(first)]
    found = paired(first, second, groups, EvaluationOptions())
    assert 0.1 < found.lower < found.mean < found.upper < 0.12
    with pytest.raises(InputError, match="of one source"):
        paired(first, second, ["g"] * 12, EvaluationOptions())
    with pytest.raises(InputError, match="not finite"):
        paired(first, [float("nan"), *second[1:]], groups, EvaluationOptions())


def test_what_other_seeds_change_is_part_of_the_bounds() -> None:
    groups = [f"g{n}" for n in range(12)]
    gap = paired([0.0] * 12, [-0.020 + 0.002 * (n % 3 - 1) for n in range(12)], groups, EvaluationOptions())
    assert gap.upper < -0.018, "two trainings of one setting, and without their chance a certain loss"
    assert spread_of([[0.3], [0.2]]) is None, "one seed of each says nothing about others"
    spread = spread_of([[0.300, 0.320], [0.290, 0.310, 0.300]])
    assert spread is not None and spread.freedom == 3 and spread.deviation == pytest.approx(0.01155, abs=1e-4)
    wide = widened(gap, spread, (1, 1), 0.95)
    assert wide.mean == gap.mean and wide.lower < gap.lower and wide.upper > 0, "nothing is shown"
    # Student's 0.95 quantile of three degrees of freedom is 2.353.
    assert wide.upper - wide.mean == pytest.approx(2.353 * 0.01155 * 2**0.5, rel=0.03)
    assert widened(gap, spread, (9, 9), 0.95).upper < wide.upper, "more seeds, less chance"


def test_settings_become_every_combination() -> None:
    assert settings_of(["optimisation.learning_rate=1e-4,2e-4", "lora.target_modules=[q_proj],[q_proj, v_proj]"]) == [
        ["optimisation.learning_rate=0.0001", 'lora.target_modules=["q_proj"]'],
        ["optimisation.learning_rate=0.0001", 'lora.target_modules=["q_proj", "v_proj"]'],
        ["optimisation.learning_rate=0.0002", 'lora.target_modules=["q_proj"]'],
        ["optimisation.learning_rate=0.0002", 'lora.target_modules=["q_proj", "v_proj"]'],
    ]
    for wrong in (["lora.r"], ["lora.r="], ["lora.r=4", "lora.r=8"], ["lora.r=[1"]):
        with pytest.raises(InputError, match="--set"):
            settings_of(wrong)


def test_most_right_answers_come_first_whatever_the_likelihood() -> None:
    def tried(setting: str, seed: int, gain: float | None, right: int = 0) -> Any:
        recipe = SimpleNamespace(evaluation=EvaluationOptions())
        prepared = SimpleNamespace(step=SimpleNamespace(recipe=recipe))
        trial = SimpleNamespace(setting=setting, seed=seed, prepared=prepared)
        result = SimpleNamespace(status="finished" if gain else "diverged", loss_last=None, seconds=1.0)
        if gain is None:
            return trial, result, None
        examples = tuple(
            ExampleScores(
                example=str(n), group=str(n), tokens=9, scores={"base": -2.0, "candidate": -2.0 + gain + n / 99}
            )
            for n in range(8)
        )
        scores = Scores(objective="sft", models=("base", "candidate"), examples=examples)
        success = Success(prompts=8, right={"base": 0, "candidate": right})
        verdict = Verdict(verdict="review", reasons=(), differences={}, success=success)
        return trial, result, CandidateVerdict(scores, verdict)

    rows = table(
        [
            tried("likely", 1, 2.0, 1),
            tried("likely", 2, 2.0, 3),
            tried("broken", 1, None),
            tried("right", 1, 0.5, 6),
            tried("right", 2, 0.5, 8),
            tried("as right", 1, 0.6, 7),
        ]
    )
    assert [row.setting for row in rows] == ["as right", "right", "likely", "broken"]
    assert rows[1].right == (0.875, 0.75, 1.0) and rows[3].right is None


def test_each_candidate_that_was_evaluated_is_a_look(tmp_path: Path) -> None:
    def evaluated(folder: str, *groups: str, candidates: Sequence[str] = ()) -> None:
        for run, candidate in enumerate(candidates):
            Records(tmp_path / folder).write(
                f"r{run}", EvaluationRecord(verdict="review", scored={"adapter_model.safetensors": candidate})
            )
        (tmp_path / folder / "evaluation").mkdir(parents=True)
        lines = "".join(json.dumps({"group": group}) + "\n" for group in groups)
        (tmp_path / folder / "evaluation" / "examples.jsonl").write_text(lines)

    evaluated("2026-06-01", "a", "b")
    evaluated("2026-06-01/by-hand/111", "a")
    evaluated("2026-06-01/by-hand/222", "a")
    evaluated("2026-06-02", "a", "b")
    evaluated("2026-06-02/by-hand/333", "b")
    night = tmp_path / "2026-06-02"
    assert earlier_looks(night) == {"a": 3, "b": 2}, "its own evaluation is still to come"
    # A night that was run again with another recipe has looked twice, and so has a sweep of two.
    evaluated("2026-06-03", "a", candidates=["one", "two", "two"])
    assert earlier_looks(night) == {"a": 5, "b": 2}
    same = {"adapter_model.safetensors": "two"}
    assert earlier_looks(tmp_path / "2026-06-03", same) == {"a": 5, "b": 3}, "to score the same bytes again is no look"
    assert earlier_looks(tmp_path / "2026-06-03") == {"a": 6, "b": 3}

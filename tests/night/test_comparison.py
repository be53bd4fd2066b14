"""Two runs are held against each other only if they were asked the same."""

import json
from pathlib import Path

import pytest

from ec1.adapters.scores import ExampleScores, Scores
from ec1.errors import InputError
from ec1.night.experiments.comparison import check_same, paired
from ec1.night.experiments.sweep import settings_of
from ec1.night.steps.candidate import earlier_looks
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


def test_what_was_evaluated_by_hand_on_a_day_is_one_look(tmp_path: Path) -> None:
    def evaluated(folder: str, *groups: str) -> None:
        (tmp_path / folder / "evaluation").mkdir(parents=True)
        lines = "".join(json.dumps({"group": group}) + "\n" for group in groups)
        (tmp_path / folder / "evaluation" / "examples.jsonl").write_text(lines)

    evaluated("2026-06-01", "a", "b")
    evaluated("2026-06-01/by-hand/111", "a")
    evaluated("2026-06-01/by-hand/222", "a")
    evaluated("2026-06-02", "a", "b")
    evaluated("2026-06-02/by-hand/333", "b")
    assert earlier_looks(tmp_path / "2026-06-02") == {"a": 2, "b": 2}

"""Held-out tasks: what models answer is executed, and the gate counts what is solved."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ec1.adapters.evaluation import GENERAL, EvaluationSpec, evaluate
from ec1.adapters.gate import judge
from ec1.adapters.scores import THINKING, ExampleScores, Scores, load_scores
from ec1.adapters.solving import HeldOutTask, answered, read_tasks, scored_tasks
from ec1.answers.answering import ModelAnswer
from ec1.errors import InputError
from ec1.recipes.evaluation import EvaluationOptions
from ec1.rewards.checks import Check
from ec1.sandbox.batch import why_no_python

DOUBLE = Check(check="python", value=[{"given": {"x": x}, "expected": 2 * x} for x in (3, -4)])
OPTIONS = EvaluationOptions()


@pytest.fixture
def sandbox() -> None:
    if (why := why_no_python()) is not None:
        pytest.skip(why)


def task(number: int, *checks: Check) -> HeldOutTask:
    return HeldOutTask(str(number), f"g{number // 2}", [1] * (9 - number), f"task {number}", checks or (DOUBLE,))


def solved(**models: list[int]) -> Scores:
    """Scores in which each model solves the tasks of its list, of forty in twenty groups."""
    examples = tuple(
        ExampleScores(
            example=str(number),
            group=str(number // 2),
            tokens=9,
            scores={"base": 0.0} | {name: float(number in mine) for name, mine in models.items()},
        )
        for number in range(40)
    )
    return Scores(objective="task", models=("base", *models), examples=examples)


@pytest.mark.needs("bwrap")
@pytest.mark.usefixtures("sandbox")
def test_an_answer_solves_a_task_if_it_passes_all_checks() -> None:
    short = Check(check="regex", value="^.{1,5}$")
    tasks = [task(0), task(1, DOUBLE, short), task(2)]
    answers = {
        "base": [ModelAnswer("x", False), ModelAnswer("(x * 2)", False), ModelAnswer("", False)],
        "candidate": [ModelAnswer("x + x", False), ModelAnswer("x * 2", True), ModelAnswer("exit()", False)],
    }
    examples, samples = scored_tasks(tasks, answers, 3)
    assert [each.scores for each in examples] == [
        {"base": 0.0, "candidate": 1.0},
        {"base": 0.0, "candidate": 1.0},
        {"base": 0.0, "candidate": 0.0},
    ]
    assert [each.faults["candidate"] for each in samples] == [(), ("endless",), ()]
    assert [each.faults["base"] for each in samples] == [(), (), ("empty",)]


def test_every_task_gets_its_own_answer() -> None:
    tasks = [task(number) for number in range(9)]
    widths: list[list[int]] = []

    def write(prompts: list[list[int]]) -> list[ModelAnswer]:
        widths.append([len(each) for each in prompts])
        return [ModelAnswer(str(len(each)), False) for each in prompts]

    assert [each.text for each in answered(tasks, write)] == [str(9 - number) for number in range(9)]
    assert widths == [sorted(range(1, 10))]


def test_rows_of_another_shape_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": [{"role": "user", "content": "a"}], "completion": []}) + "\n")
    with pytest.raises(InputError, match="is not a task"):
        read_tasks(path, lambda messages: [1], 9)


@pytest.mark.parametrize(
    ("models", "verdict", "reason"),
    [
        ({"candidate": list(range(20))}, "accepted", "better than base"),
        ({"candidate": []}, "no_effect", "no effect"),
        ({"candidate": [3]}, "review", "not shown to be better than base"),
        ({"incumbent": list(range(8)), "candidate": list(range(24))}, "accepted", "better than incumbent"),
        (
            {"incumbent": list(range(20)), "candidate": list(range(20))},
            "review",
            "not shown to be better than incumbent",
        ),
        ({"incumbent": list(range(24)), "candidate": list(range(8))}, "rejected", "worse than incumbent"),
    ],
)
def test_the_gate_counts_what_is_solved(models: dict[str, list[int]], verdict: str, reason: str) -> None:
    found = judge(solved(**models), OPTIONS)
    assert (found.verdict, found.differences["base"].unit) == (verdict, "of the tasks"), found
    assert any(reason in each for each in found.reasons), found.reasons


def test_a_base_that_was_cut_while_it_thought_may_have_solved_as_much() -> None:
    cut = [ModelAnswer("", True, thinking=True), ModelAnswer("x", False)]
    _, (thought, plain) = scored_tasks([task(0), task(1)], {"base": cut}, 2)
    assert (thought.faults, plain.faults) == ({"base": (THINKING,)}, {"base": ()})
    found = judge(solved(candidate=list(range(20))).model_copy(update={"samples": (thought, plain)}), OPTIONS)
    assert found.verdict == "review"
    assert "1 of the base's answers were cut while it was thinking: raise evaluation.sample_tokens" in found.reasons[0]
    few = (thought, *[plain] * 19)
    assert judge(solved(candidate=list(range(20))).model_copy(update={"samples": few}), OPTIONS).accepted


def test_better_than_base_is_not_enough_where_most_is_wrong() -> None:
    some = solved(candidate=list(range(12)))
    assert judge(some, OPTIONS).accepted and judge(some, OPTIONS).told.startswith("12 of ")
    found = judge(some, EvaluationOptions(min_success=0.9))
    assert found.verdict == "review" and "at least 90% must be right" in found.told


@pytest.mark.needs("bwrap")
@pytest.mark.usefixtures("sandbox")
def test_models_answer_held_out_tasks(tiny_model: Path, tmp_path: Path) -> None:
    """The whole evaluation, of a model of random weights and an adapter that changes what it writes."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(3)
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16),
        LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"),
    )
    adapted.save_pretrained(tmp_path / "adapter")
    any_text: Any = [{"role": "checks", "content": json.dumps([{"check": "regex", "value": ""}])}]
    executed: Any = [{"role": "checks", "content": json.dumps([DOUBLE.model_dump(mode="json")])}]
    prompts = [[{"role": "user", "content": f"{number} doubled"}] for number in range(6)]
    rows = {"prompt": prompts, "checks": [any_text, executed] * 3, "group": list("aabbcc"), "row": list("abcdef")}
    (tmp_path / "heldout").mkdir()
    pq.write_table(pa.table(rows), tmp_path / "heldout" / "rows.parquet")
    general = tmp_path / "general.jsonl"
    general.write_text("\n".join(GENERAL.read_text(encoding="utf-8").splitlines()[:2]) + "\n", encoding="utf-8")
    spec = EvaluationSpec(
        model=tiny_model,
        device="cpu",
        candidates={"base": None, "candidate": tmp_path / "adapter"},
        heldout=tmp_path / "heldout",
        objective="task",
        system_prompt="Answer with an expression.",
        general=general,
        options=EvaluationOptions(sample_tokens=6, sample_generations=2),
        output=tmp_path / "out",
    )
    said: list[str] = []
    scores = evaluate(spec, said.append)
    assert load_scores(tmp_path / "out") == scores
    assert scores.means() == {"base": 0.5, "candidate": 0.5}, "any answer passes every other task, and none is right"
    assert {name: len(values) for name, values in scores.general.items()} == {"base": 2, "candidate": 2}
    assert {name: len(values) for name, values in scores.general_right.items()} == {"base": 2, "candidate": 2}
    assert len(scores.samples) == 2 and scores.samples[0].answers["base"] != scores.samples[0].answers["candidate"]
    assert judge(scores, OPTIONS).verdict in ("no_effect", "rejected")
    assert any("candidate answered 6 tasks" in line for line in said)

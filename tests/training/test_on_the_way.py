"""Questions that a training is asked on the way: counted, drawn, and without effect on what it learns."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from small_trainings import ROWS, run, run_until

from ec1.recipes.schema import Recipe
from ec1.recipes.sharing import refusal
from ec1.training.on_the_way import RIGHT, Questions
from ec1.training.spec import METRICS, TrainingSpec

WEIGHTS = "adapter/adapter_model.safetensors"
EVERY_SECOND = {"task_steps": 2, "task_rows": 4, "sample_tokens": 6}
DROPOUT = {"r": 4, "target_modules": ["q_proj", "v_proj"], "dropout": 0.3}


def same_weights(one: TrainingSpec, other: TrainingSpec) -> bool:
    ours, theirs = (load_file(each.output / WEIGHTS) for each in (one, other))
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("role", ["engineering", "apprenticeship"])
def test_questions_change_nothing_that_is_learnt_and_go_on_after_an_interruption(
    make: Callable[..., TrainingSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """With dropout, whose draws would be others if anything had been drawn between."""
    asked = make(role, tmp_path / "asked", evaluation=EVERY_SECOND, lora=DROPOUT)
    result = run(asked)
    assert result.rows == ROWS - 1, "what is asked is not trained on"
    assert [step for step, _ in result.answered_right] == [0, *range(2, result.steps + 1, 2)]
    assert any("1 rows of sources that are not trained on are questions" in note for note in result.notes)

    parted = make(role, tmp_path / "parted", evaluation=EVERY_SECOND, lora=DROPOUT)
    with pytest.raises(Exception, match="stopped after step 3"):
        run_until(parted, 3)
    resumed = run(parted)
    assert resumed.resumed_from == 3 and resumed.answered_right == result.answered_right
    assert same_weights(parted, asked)

    monkeypatch.setattr(Questions, "right", lambda self, model: 0.5)
    silent = make(role, tmp_path / "silent", evaluation=EVERY_SECOND, lora=DROPOUT)
    assert {share for _, share in run(silent).answered_right} == {0.5}
    assert same_weights(silent, asked)
    shares = pq.read_table(silent.output / METRICS)[RIGHT].to_pylist()
    assert shares == [0.5 if step % 2 == 0 or step == len(shares) else None for step in range(1, len(shares) + 1)]


@pytest.mark.needs("bwrap")
def test_tasks_are_held_against_their_checks_and_change_nothing_that_is_learnt(
    make: Callable[..., TrainingSpec], sft: TrainingSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that writes its own answers draws at every token: one draw more would change all that follow."""
    start: dict[str, Any] = {"folder": sft.output / "adapter", "name": "fernhollow/engineering@v1", "digest": "s" * 64}

    def tasks(output: Path) -> TrainingSpec:
        return make(
            "engineering",
            output,
            start_adapter=start,
            objective="grpo",
            grpo={"max_tokens": 8, "group": 4, "temperature": 1.2},
            optimisation={"scheduler": "constant", "warmup_share": None},
            evaluation=EVERY_SECOND,
        )

    asked = tasks(tmp_path / "asked")
    result = run(asked)
    assert result.answered_right and all(0 <= share <= 1 for _, share in result.answered_right)

    monkeypatch.setattr(Questions, "right", lambda self, model: 0.5)
    silent = tasks(tmp_path / "silent")
    assert {share for _, share in run(silent).answered_right} == {0.5}
    assert same_weights(silent, asked)


def test_an_answer_that_is_the_wanted_one_counts(
    make: Callable[..., TrainingSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ec1.answers import answering
    from ec1.training.building import load_tokenizer

    spec = make("engineering", tmp_path, evaluation=EVERY_SECOND)
    rows = pq.read_table(spec.dataset / "train" / "rows.parquet").to_pylist()
    questions = Questions(spec.recipe, rows, load_tokenizer(spec.base_model), "cpu")
    by_prompt = {row["prompt"][-1]["content"]: row["completion"][-1]["content"] for row in rows}
    wanted = [by_prompt[row["prompt"][-1]["content"]] for row in questions._rows]

    def write(*_: Any, **__: Any) -> list[answering.ModelAnswer]:
        said = [*wanted[:3], "Something else."]
        return [answering.ModelAnswer(text, cut=False) for text in said]

    model = torch.nn.Linear(1, 1).train()
    monkeypatch.setattr("ec1.answers.answering.write_answers", write)
    assert questions.right(model) == 0.75 and model.training


def test_what_has_no_questions_is_refused(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    values = make("engineering", tmp_path).recipe.model_dump(mode="json")
    with pytest.raises(ValueError, match="task_steps counts right answers"):
        Recipe.model_validate({**values, "kind": "pretraining", "evaluation": {"task_steps": 2}})
    recipe = make("engineering", tmp_path, evaluation=EVERY_SECOND).recipe
    assert refusal(recipe, 1, False) is None
    assert "task_steps is for one process" in str(refusal(recipe, 2, False))

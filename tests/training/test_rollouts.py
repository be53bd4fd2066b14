"""Answers that the model writes itself and rewards score: what they are worth, the same curve after an interruption,
and an end where nothing can be learnt. That a real model learns is shown by benchmarks/expressions.py."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from small_trainings import ROWS, run, run_until
from transformers import AutoTokenizer

from ec1.errors import InputError, PermanentError
from ec1.recipes.schema import Recipe
from ec1.sandbox.batch import why_no_python
from ec1.training.plan import schedule_of
from ec1.training.rollouts import grpo_rewards
from ec1.training.spec import METRICS, TrainingSpec

pytestmark = pytest.mark.needs("bwrap")
WEIGHTS = "adapter/adapter_model.safetensors"
GRPO = {"max_tokens": 8, "group": 4, "temperature": 1.2, "formed_reward": 0.0}


@pytest.fixture(autouse=True)
def works() -> None:
    if (why := why_no_python()) is not None:
        pytest.skip(why)


@pytest.fixture(scope="session")
def rollouts(make: Callable[..., TrainingSpec], sft: TrainingSpec) -> Callable[..., TrainingSpec]:
    """A specification that goes on from the undisturbed SFT training, two prompts a step."""

    def made(output: Path, **changes: Any) -> TrainingSpec:
        start = {"folder": sft.output / "adapter", "name": "fernhollow/engineering@v1", "digest": "s" * 64}
        wish = {"scheduler": "constant", "warmup_share": None, "checkpoint_minutes": 10}
        return make(
            "engineering",
            output,
            **{"start_adapter": start, "objective": "grpo", "grpo": GRPO, "optimisation": wish, **changes},
        )

    return made


@pytest.fixture(scope="session")
def undisturbed(rollouts: Callable[..., TrainingSpec], tmp_path_factory: pytest.TempPathFactory) -> TrainingSpec:
    spec = rollouts(tmp_path_factory.mktemp("rollouts"), optimisation={"epochs": 1.5, "scheduler": "constant"})
    run(spec)
    return spec


def test_a_step_writes_answers_and_learns_from_their_rewards(undisturbed: TrainingSpec, sft: TrainingSpec) -> None:
    result = run(undisturbed)
    assert (result.status, result.steps, result.objective) == ("finished", ROWS * 3 // 4, "grpo")
    assert result.start_adapter == "fernhollow/engineering@v1"
    metrics = pq.read_table(undisturbed.output / METRICS).to_pydict()
    assert all(0 <= value <= 1 for name in ("reward", "spread", "right", "refused") for value in metrics[name])
    assert any(metrics["spread"]) and all(entropy > 0 for entropy in metrics["entropy"])
    assert metrics["reward"] == pytest.approx(metrics["right"]), "nothing is earned by form alone here"
    # Two prompts with four answers of at most eight tokens each.
    assert all(8 * 8 < tokens < 8 * 64 for tokens in metrics["tokens"]) and result.tokens == sum(metrics["tokens"])
    before, after = load_file(sft.output / WEIGHTS), load_file(undisturbed.output / WEIGHTS)
    assert before.keys() == after.keys() and any(not torch.equal(before[name], after[name]) for name in before)


def test_an_interrupted_training_goes_on_with_the_same_answers(
    undisturbed: TrainingSpec, rollouts: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    """In its second epoch, whose order of prompts is another one."""
    spec = undisturbed.model_copy(update={"output": tmp_path})
    with pytest.raises(Exception, match="stopped after step 8"):
        run_until(spec, 8)
    assert run(spec).resumed_from == 8
    columns = ("loss", "reward", "entropy", "tokens")
    ours, theirs = (pq.read_table(each.output / METRICS).select(columns) for each in (spec, undisturbed))
    assert ours.equals(theirs)
    mine, others = load_file(spec.output / WEIGHTS), load_file(undisturbed.output / WEIGHTS)
    assert all(torch.equal(mine[name], others[name]) for name in others)


def test_a_training_whose_answers_all_earn_the_same_is_stopped(
    rollouts: Callable[..., TrainingSpec], datasets: Path, tmp_path: Path
) -> None:
    ends = {"never": ("diverged", "in 5 steps no group's answers differed"), "always": ("finished", None)}
    for name, (status, verdict) in ends.items():
        for side in ("train", "heldout"):
            table = pq.read_table(datasets / "task" / side / "rows.parquet")
            pattern = "(?!)" if name == "never" else ""
            checks = [[{"role": "checks", "content": json.dumps([{"check": "regex", "value": pattern}])}]] * len(table)
            (tmp_path / name / side).mkdir(parents=True)
            pq.write_table(
                table.set_column(table.column_names.index("checks"), "checks", pa.array(checks)),
                tmp_path / name / side / "rows.parquet",
            )
        spec = rollouts(tmp_path / f"{name}-out").model_copy(update={"dataset": tmp_path / name})
        try:
            result = run(spec)
        except PermanentError as error:
            # Where all was right from the beginning, nothing has changed.
            assert name == "always" and "training changed nothing" in str(error)
            continue
        assert (result.status, result.steps) == (status, 5)
        assert (result.verdict or "").startswith(verdict or "")
        assert (result.weights is None) is (name == "never")


def test_there_must_be_a_version_to_start_from(rollouts: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="train one on answers first"):
        run(rollouts(tmp_path, start_adapter=None))


def test_what_a_recipe_may_not_ask_for(rollouts: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    for changes, why in (
        ({"optimisation": {"evaluation_steps": 2}}, "evaluation_steps measures a held-out loss"),
        ({"grpo": None}, "needs the section grpo"),
        ({"method": "full", "lora": None}, "method lora or qlora"),
    ):
        with pytest.raises(ValueError, match=why):
            rollouts(tmp_path, **changes)
    recipe = rollouts(tmp_path, optimisation={"batch_size": 4, "gradient_accumulation": 2}).recipe
    assert schedule_of(recipe, 20, 5).steps == 2, "the last four prompts do not fill a step"
    with pytest.raises(PermanentError, match="7 tasks do not fill a step of 8"):
        schedule_of(recipe, 7, 5)


def test_an_answer_earns_what_its_checks_say(
    rollouts: Callable[..., TrainingSpec], tmp_path: Path, tiny_model: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    recipe: Recipe = rollouts(tmp_path, grpo={**GRPO, "formed_reward": 0.1, "weights": {"regex": 3.0}}).recipe
    cases = [{"given": {"x": x}, "expected": 2 * x} for x in (3, 5)]
    checks = json.dumps([{"check": "python", "value": cases}, {"check": "regex", "value": "x"}])
    answers = ["2 * x", "x * 2", "x + 3", "6", "__import__('os')._exit(0)", "y", "2 * x"]
    told: dict[str, float] = {}
    earned = grpo_rewards(recipe, tokenizer)(
        prompts=[None] * len(answers),
        completion_ids=tokenizer(answers)["input_ids"],
        checks=[[{"role": "checks", "content": checks}]] * len(answers),
        log_metric=told.__setitem__,
    )
    # An exit has an x in it, and earns nothing by that either.
    assert earned == pytest.approx([1.0, 1.0, (0.1 + 3) / 4, 0.1 / 4, 0.0, 0.0, 1.0])
    assert told == pytest.approx({"right": 3 / 7, "refused": 1 / 7})

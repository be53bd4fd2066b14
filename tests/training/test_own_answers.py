"""Rejection sampling: right answers of the model's own are learnt, the same ones after an interruption. That a real
model learns from them is shown by benchmarks/expressions.py."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from small_trainings import ROWS, losses, run

from ec1.errors import InputError, PermanentError
from ec1.sandbox.batch import why_no_python
from ec1.training import own_answers
from ec1.training.plan import DatasetSize, HardwareFigures, figures_of
from ec1.training.shape import ModelShape
from ec1.training.spec import OWN_ANSWERS, TrainingSpec

pytestmark = pytest.mark.needs("bwrap")
WEIGHTS = "adapter/adapter_model.safetensors"
RFT = {"max_tokens": 8, "answers": 4, "kept": 2}
PATTERN = "^[a-mA-M]"


@pytest.fixture(autouse=True)
def works(monkeypatch: pytest.MonkeyPatch) -> None:
    if (why := why_no_python()) is not None:
        pytest.skip(why)
    # Several rounds of answers even of so few tasks.
    monkeypatch.setattr(own_answers, "_CHUNK", 16)


@pytest.fixture(scope="module")
def answering(make: Callable[..., TrainingSpec], sft: TrainingSpec) -> Callable[..., TrainingSpec]:
    """A specification that goes on from the undisturbed SFT training."""

    def made(output: Path, **changes: Any) -> TrainingSpec:
        start = {"folder": sft.output / "adapter", "name": "fernhollow/engineering@v1", "digest": "s" * 64}
        wish = {"evaluation_steps": None}
        return make(
            "engineering",
            output,
            **{"start_adapter": start, "objective": "rft", "rft": RFT, "optimisation": wish, **changes},
        )

    return made


def written(spec: TrainingSpec) -> list[list[tuple[str, bool]]]:
    found: list[list[tuple[str, bool]]] = json.loads((spec.output / OWN_ANSWERS).read_text())["answers"]
    return found


def test_its_right_answers_are_learnt_and_no_others(
    answering: Callable[..., TrainingSpec], sft: TrainingSpec, tmp_path: Path
) -> None:
    spec = answering(tmp_path)
    result = run(spec)
    assert (result.status, result.objective) == ("finished", "rft")
    assert result.start_adapter == "fernhollow/engineering@v1"
    answered = written(spec)
    assert len(answered) == ROWS and {len(mine) for mine in answered} == {4}
    assert len({text for mine in answered for text, _ in mine}) > ROWS, "they are drawn, not the likeliest again"
    assert all(right is bool(re.search(PATTERN, text)) for mine in answered for text, right in mine)
    kept = sum(min(2, len({text for text, right in mine if right})) for mine in answered)
    assert 0 < result.rows == kept, "at most two different ones to a task"
    assert any(not right for mine in answered for _, right in mine)
    solved = sum(any(right for _, right in mine) for mine in answered)
    assert any(f"to {solved} of {ROWS} tasks: {kept} rows" in note for note in result.notes)
    before, after = load_file(sft.output / WEIGHTS), load_file(spec.output / WEIGHTS)
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_what_was_answered_before_an_interruption_is_not_answered_again(
    answering: Callable[..., TrainingSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, interrupted = answering(tmp_path / "whole"), answering(tmp_path / "interrupted")
    run(whole)
    real, places = own_answers._write, []

    def dies_in_the_second_round(*given: Any) -> Any:
        places.append(given[3])
        if len(places) == 2:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(own_answers, "_write", dies_in_the_second_round)
    with pytest.raises(KeyboardInterrupt):
        run(interrupted)
    assert len(written(interrupted)) == 4
    run(interrupted)
    assert places == [0, 4, 4, 8], "the first four tasks are not asked again"
    assert written(interrupted) == written(whole)
    assert losses(interrupted) == losses(whole)


def test_answers_of_another_training_are_not_taken(answering: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    run(answering(tmp_path))
    first = written(answering(tmp_path))
    run(answering(tmp_path, rft={**RFT, "temperature": 2.0}))
    assert written(answering(tmp_path)) != first


def test_without_a_right_answer_or_a_start_it_says_so(
    answering: Callable[..., TrainingSpec], datasets: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="train one on answers first"):
        run(answering(tmp_path, start_adapter=None))
    for side in ("train", "heldout"):
        table = pq.read_table(datasets / "task" / side / "rows.parquet")
        checks = [[{"role": "checks", "content": '[{"check": "regex", "value": "(?!)"}]'}]] * len(table)
        (tmp_path / "never" / side).mkdir(parents=True)
        at = table.column_names.index("checks")
        pq.write_table(table.set_column(at, "checks", pa.array(checks)), tmp_path / "never" / side / "rows.parquet")
    with pytest.raises(PermanentError, match=r"0 of 48 answers .* to 0 of 12 tasks: 0 rows; train its start"):
        run(answering(tmp_path / "out").model_copy(update={"dataset": tmp_path / "never"}))


def test_a_plan_counts_what_is_written_and_the_most_that_can_be_learnt(
    answering: Callable[..., TrainingSpec], tiny_model: Path, tmp_path: Path
) -> None:
    machine = HardwareFigures(name="CPU", device="cpu", memory_gib=8, tokens_per_second=100, cost_per_hour=0)
    size = DatasetSize(rows=100, tokens=2000, longest=24, heldout_rows=20)
    shape = ModelShape.read(tiny_model)
    few, many = (
        figures_of(answering(tmp_path, rft={**RFT, "answers": number}).recipe, shape, machine, size)
        for number in (4, 40)
    )
    assert (few.rows, few.steps, few.tokens) == (200, 100, 2 * (2000 + 100 * 8))
    assert (many.rows, many.steps, many.tokens) == (few.rows, few.steps, few.tokens)
    assert many.seconds - few.seconds == pytest.approx(36 * 2800 / 2 / 100, rel=0.01), "one pass instead of two"
    assert "100 tasks × 4 answers of at most 8 tokens are written first" in few.notes[0]

"""What a recipe can set beyond the usual: losses of pairs, packing, an early end, the schedule, all layers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from small_trainings import ROWS, run, run_until

from ec1.errors import PermanentError
from ec1.recipes.schema import PROJECTIONS, DpoLoss
from ec1.training.__main__ import unneeded
from ec1.training.building import build_trainer, load_rows, load_tokenizer
from ec1.training.packed import require_hidden_rows
from ec1.training.spec import METRICS, TrainingSpec

pytestmark = pytest.mark.slow
WEIGHTS = "adapter/adapter_model.safetensors"


@pytest.fixture(scope="module")
def pairs_trainer(make: Callable[..., TrainingSpec], tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pairs")
    spec = make("apprenticeship", folder, dpo={"loss": "robust", "label_smoothing": 0.1})
    rows, heldout, _ = load_rows(spec, folder)
    trainer = build_trainer(spec, load_tokenizer(spec.base_model), rows, heldout, 4, 1)
    assert trainer.loss_types == ["robust"] and trainer.label_smoothing == 0.1
    trainer.create_optimizer()
    trainer.current_gradient_accumulation_steps = 1
    trainer.rows = next(iter(trainer.get_train_dataloader()))
    return trainer


@pytest.mark.parametrize("loss", get_args(DpoLoss))
def test_one_step_of_each_loss_moves_the_adapter(pairs_trainer: Any, loss: str) -> None:
    pairs_trainer.loss_types = [loss]
    pairs_trainer.model.zero_grad()
    with pairs_trainer.accelerator.autocast():
        value = float(pairs_trainer.training_step(pairs_trainer.model, dict(pairs_trainer.rows)))
    assert math.isfinite(value)
    gradients = [weight.grad for name, weight in pairs_trainer.model.named_parameters() if ".lora_B.default" in name]
    assert gradients and all(gradient is not None for gradient in gradients)
    assert any(bool(gradient.count_nonzero()) for gradient in gradients)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_the_losses_are_all_that_the_library_has() -> None:
    from trl import DPOConfig

    said = DPOConfig.__dataclass_fields__["loss_type"].metadata["help"]
    known = {word.strip("`'.,") for word in said.split() if word.startswith("`'")}
    assert known == {*get_args(DpoLoss), "sft"}, "sft is the setting sft_weight"


def test_a_training_ends_after_max_steps_with_the_least_rate_on_all_layers(
    make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    wish = {"max_steps": 4, "epochs": 50, "scheduler": "cosine", "min_rate_share": 0.25, "warmup_share": None}
    spec = make("engineering", tmp_path, lora={"target_modules": "all-linear"}, optimisation=wish)
    result = run(spec)
    assert (result.status, result.steps, result.planned_steps) == ("finished", 4, 4)
    rates = pq.read_table(spec.output / METRICS)["learning_rate"].to_pylist()
    assert rates == sorted(rates, reverse=True) and rates[0] == pytest.approx(1e-3)
    # The last step's rate is that of three quarters of the way.
    assert rates[3] == pytest.approx(1e-3 * (0.25 + 0.75 * (1 + math.cos(0.75 * math.pi)) / 2))
    config = json.loads((spec.output / "adapter" / "adapter_config.json").read_text())
    assert {name.rpartition(".")[-1] for name in config["target_modules"]} == set(PROJECTIONS)
    assert result.changed_modules == 2 * len(PROJECTIONS)


def test_a_training_that_gets_no_better_ends_with_its_best_weights(
    make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    """At this rate no loss changes in the digits that are kept: the first measurement stays the best."""
    wish = {"learning_rate": 1e-12, "scheduler": "constant", "evaluation_steps": 1, "epochs": 50}

    def made(name: str, **more: Any) -> TrainingSpec:
        return make("engineering", tmp_path / name, optimisation={**wish, "early_stopping_patience": 2, **more})

    spec = made("whole")
    result = run(spec)
    assert (result.status, result.steps, result.rows) == ("finished", 3, ROWS - 1)
    assert any("ended early: the weights are those of step 1 of 3" in note for note in result.notes)
    assert any("that of 1 rows that are not trained on" in note for note in result.notes)
    first = made("first", max_steps=1)
    run(first)
    ours, theirs = load_file(spec.output / WEIGHTS), load_file(first.output / WEIGHTS)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    parted = made("parted")
    with pytest.raises(Exception, match="stopped after step 2"):
        run_until(parted, 2)
    resumed = run(parted)
    assert (resumed.resumed_from, resumed.steps) == (2, 3), "it goes on counting, and knows the best checkpoint"
    ours = load_file(parted.output / WEIGHTS)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def _loss(trainer: Any) -> tuple[float, int]:
    """The mean loss of a token over all rows, and the number of sequences that they came in."""
    loss = tokens = 0.0
    batches = list(trainer.get_train_dataloader())
    trainer.model.eval()
    for batch in batches:
        learnt = int((batch["labels"] != -100).sum())
        with torch.no_grad():
            loss += float(trainer.compute_loss(trainer.model, dict(batch))) * learnt
        tokens += learnt
    return loss / tokens, len(trainer.train_dataset)


def test_packed_rows_are_learnt_as_if_each_stood_alone(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    found = {}
    for packing in (False, True):
        spec = make("engineering", tmp_path / str(packing), optimisation={"packing": packing}, data={"max_length": 128})
        rows, heldout, _ = load_rows(spec, tmp_path)
        trainer = build_trainer(spec, load_tokenizer(spec.base_model), rows, heldout, 2, 1)
        found[packing] = _loss(trainer)
    assert found[True][0] == pytest.approx(found[False][0], rel=2e-3)
    assert found[True][1] <= found[False][1] / 2
    collator = trainer.data_collator

    def one_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
        """What a model sees whose attention knows of no boundary."""
        batch = collator(rows)
        batch["position_ids"] = torch.arange(batch["input_ids"].shape[1])[None]
        return {name: batch[name] for name in ("input_ids", "labels", "position_ids")}

    with pytest.raises(PermanentError, match="does not hide packed rows from one another"):
        require_hidden_rows(trainer.model, one_row)
    result = run(spec)
    assert result.status == "finished" and result.rows == ROWS and result.full_rows == 0
    assert result.steps == math.ceil(found[True][1] / 2)


def test_a_layer_can_be_trained_whole_where_nothing_is_served(
    make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    spec = make(
        "engineering",
        tmp_path,
        kind="pretraining",
        method="lora",
        quantization=None,
        lora={"modules_to_save": ["norm"]},
        optimisation={"max_steps": 2},
    )
    result = run(spec)
    weights = load_file(spec.output / WEIGHTS)
    assert "base_model.model.model.norm.weight" in weights
    assert not bool((weights["base_model.model.model.norm.weight"] == 1).all())
    assert result.trainable_parameters > 64


def test_a_process_loads_what_its_training_uses(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    lora: dict[str, Any] = {"method": "lora", "quantization": None}
    assert unneeded(make("engineering", tmp_path, **lora)) == {"bitsandbytes", "wandb"}
    in_few_bits = make("engineering", tmp_path, method="qlora", quantization={"type": "nf4"}, tracking=("wandb",))
    assert unneeded(in_few_bits) == set()
    base = tmp_path / "model"
    base.mkdir()
    (base / "config.json").write_text('{"quantization_config": {"load_in_4bit": true}}')
    assert unneeded(make("engineering", tmp_path, model=base, **lora)) == {"wandb"}

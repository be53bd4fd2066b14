"""Time from physics: operations and bytes by known closed forms, the table of cards, and what a card makes of both."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ec1.errors import InputError
from ec1.recipes.resolution import load_recipe
from ec1.recipes.schema import Recipe
from ec1.settings import Settings
from ec1.training.cards import CardSheet, card_named, cards, find_card, without_sheet
from ec1.training.memory import trainable_parameters
from ec1.training.methods import fuses_kernels
from ec1.training.physics import DEFAULT_EFFICIENCY, TrainingWork, multiplied_parameters, operations_per_token, work_of
from ec1.training.plan import DatasetSize, HardwareFigures, figures_of
from ec1.training.shape import ModelShape

CONFIG: dict[str, Any] = {
    "model_type": "olmo3",
    **{"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
    **{"num_key_value_heads": 32, "vocab_size": 100278, "tie_word_embeddings": False},
}
SIZE = DatasetSize(rows=400, tokens=200_000, longest=500, heldout_rows=80)


@pytest.fixture(scope="module")
def olmo(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    """OLMo 3 7B, from its public config.json."""
    folder = tmp_path_factory.mktemp("olmo")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return ModelShape.read(folder)


@pytest.fixture(scope="module")
def recipe(project: Path) -> Recipe:
    folder = project / "configs" / "recipes"
    return load_recipe(folder / "pointsav" / "engineering.yaml", [folder]).recipe


def changed(recipe: Recipe, method: str = "qlora", **optimisation: object) -> Recipe:
    wish: Settings = recipe.optimisation.model_copy(update=optimisation)
    return recipe.model_copy(update={"method": method, "optimisation": wish})


def test_all_weights_cost_six_operations_a_weight_and_token(recipe: Recipe, olmo: ModelShape) -> None:
    """6·N·D, with N all weights but the embeddings, which are looked up; and attention's 6·layers·width·length."""
    embeddings, norms = 100278 * 4096, 2 * 4096 * 32 + 32 * 2 * 4096 + 4096
    n = multiplied_parameters(olmo)
    assert n == pytest.approx(olmo.parameters - embeddings, abs=2 * norms)
    full = changed(recipe, "full", gradient_checkpointing=False)
    assert operations_per_token(full, olmo, 512) == 6 * n + 6 * 32 * 4096 * 512
    again = changed(recipe, "full", gradient_checkpointing=True)
    assert operations_per_token(again, olmo, 512) == 8 * n + 8 * 32 * 4096 * 512


def test_a_frozen_base_does_without_the_gradient_of_its_weights(recipe: Recipe, olmo: ModelShape) -> None:
    n, attention = multiplied_parameters(olmo), 32 * 4096 * 512
    for method in ("lora", "qlora"):
        plain = changed(recipe, method, gradient_checkpointing=False)
        adapter = trainable_parameters(plain, olmo)
        assert operations_per_token(plain, olmo, 512) == 4 * n + 6 * attention + 6 * adapter
        again = changed(recipe, method, gradient_checkpointing=True)
        assert operations_per_token(again, olmo, 512) == 6 * n + 8 * attention + 8 * adapter
    # The figure of 6·N for a 7B with checkpointing, in GFLOP.
    assert 6 * n / 1e9 == pytest.approx(41, abs=1)


def test_a_layer_below_all_adapters_has_no_backward_pass(recipe: Recipe, olmo: ModelShape) -> None:
    plain = changed(recipe, gradient_checkpointing=False)
    assert plain.lora is not None
    upper = plain.model_copy(update={"lora": plain.lora.model_copy(update={"upper_share": 0.5})})
    n, attention = multiplied_parameters(olmo), 32 * 4096 * 512
    adapter = trainable_parameters(upper, olmo)
    assert operations_per_token(upper, olmo, 512) == 3 * n + 4 * attention + 6 * adapter


def test_a_frozen_reference_is_one_more_forward_pass(project: Path, recipe: Recipe, olmo: ModelShape) -> None:
    folder = project / "configs" / "recipes"
    dpo = load_recipe(folder / "pointsav" / "apprenticeship.yaml", [folder]).recipe
    more = operations_per_token(dpo, olmo, 512) - operations_per_token(recipe, olmo, 512)
    n, adapter = multiplied_parameters(olmo), trainable_parameters(recipe, olmo)
    assert more == pytest.approx(2 * n + 2 * 32 * 4096 * 512 + 2 * adapter)


def test_experts_count_as_often_as_a_token_is_sent_to_them(tmp_path: Path) -> None:
    """Mixtral 8x7B multiplies each token with 12.9 billion of its 46.7 billion weights."""
    config: Mapping[str, object] = {
        "model_type": "mixtral",
        **{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000},
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert multiplied_parameters(ModelShape.read(tmp_path)) == pytest.approx(12.9e9, rel=0.02)


def test_weights_in_four_bits_are_unpacked_once_a_batch(recipe: Recipe, olmo: ModelShape) -> None:
    one = work_of(changed(recipe, batch_size=1), olmo, tokens=1e6, batches=2000, updates=500)
    four = work_of(changed(recipe, batch_size=4), olmo, tokens=1e6, batches=500, updates=500)
    assert one.operations == four.operations
    packed = 4 + 8 / 64 + 32 / (64 * 256)
    unpacking = olmo.projection_parameters * (packed / 8 + 2) * 3
    assert one.other_bytes - four.other_bytes == pytest.approx(1500 * unpacking)
    assert one.weight_bytes == pytest.approx(4 * four.weight_bytes)
    assert one.seconds_on(card_named("L4")) > 1.3 * four.seconds_on(card_named("L4"))


def test_a_card_takes_the_longer_of_arithmetic_and_traffic() -> None:
    card = CardSheet(name="c", bf16_tflops=100, memory_gb=24, bandwidth_gb_per_second=500, source="s")
    assert TrainingWork(operations=1e15, weight_bytes=1e12, other_bytes=0).seconds_on(card) == pytest.approx(10)
    assert TrainingWork(operations=1e14, weight_bytes=1e12, other_bytes=0).seconds_on(card) == pytest.approx(2)
    assert TrainingWork(operations=1e14, weight_bytes=1e12, other_bytes=1e12).seconds_on(card) == pytest.approx(4)
    # A machine without a sheet: seconds at 1 TFLOP/s, and no bound by traffic.
    assert TrainingWork(operations=1e14, weight_bytes=1e12, other_bytes=1e12).seconds_on(
        without_sheet("cpu", 8)
    ) == pytest.approx(100)


def test_a_small_batch_waits_for_its_kernels(recipe: Recipe, olmo: ModelShape) -> None:
    """One row of 1,024 tokens, by QLoRA with checkpointing, took 0.55 s on an H100, 32 layers one after the other."""
    work = work_of(changed(recipe, batch_size=1), olmo, tokens=1024, batches=1, updates=1)
    assert work.launch_seconds == pytest.approx(0.55, abs=0.05)
    h100, l4 = card_named("H100"), card_named("L4")
    assert work.expected_on(h100, 0.35) == work.launch_seconds > work.seconds_on(h100) / 0.35
    assert work.expected_on(l4, 0.35) == work.seconds_on(l4) / 0.35 > work.launch_seconds, "there the card is slower"
    machine = without_sheet("cpu", 8)
    assert work.expected_on(machine, 0.5) == work.seconds_on(machine) / 0.5, "what is learned there has it in it"


@pytest.mark.parametrize(
    ("wish", "method", "objective", "device", "installed", "fused"),
    [
        (None, "qlora", "sft", "cuda", True, True),
        (None, "lora", "sft", "cuda", True, True),
        (None, "qlora", "sft", "cuda", False, False),
        (None, "qlora", "sft", "cpu", True, False),
        (None, "full", "sft", "cuda", True, False),
        (None, "qlora", "dpo", "cuda", True, False),
        (False, "qlora", "sft", "cuda", True, False),
        (True, "qlora", "dpo", "cuda", True, True),
    ],
)
def test_fused_kernels_run_where_their_worth_was_measured(
    recipe: Recipe, wish: bool | None, method: str, objective: str, device: str, installed: bool, fused: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("ec1.training.methods.find_spec", lambda name: object() if installed else None)
    asked = changed(recipe, method, liger_kernels=wish).model_copy(update={"objective": objective})
    assert fuses_kernels(asked, device) is fused


def test_fused_kernels_are_planned_as_much_faster_as_they_were(recipe: Recipe, olmo: ModelShape) -> None:
    plain, fused = (
        work_of(changed(recipe, liger_kernels=each), olmo, tokens=8192, batches=1, updates=1) for each in (False, True)
    )
    card = card_named("L4")
    assert plain.seconds_on(card) == pytest.approx(1.3 * fused.seconds_on(card))


def test_the_table_of_cards() -> None:
    assert {"L4", "A10G", "A100-40", "A100-80", "H100", "RTX 4090"} <= {card.name for card in cards()}
    names = [name.lower() for card in cards() for name in (card.name, *card.also)]
    assert len(names) == len(set(names))
    for card in cards():
        assert card.source.startswith("https://"), card.name
        # Operations a byte: of every such card between 50 and 450. A figure "with sparsity", or in bits, is outside.
        assert 50 < card.bf16_tflops * 1e3 / card.bandwidth_gb_per_second < 450, card.name
    assert find_card("NVIDIA L4") == card_named("l4") and find_card("nvidia geforce rtx 4090") == card_named("RTX-4090")
    assert find_card("CPU, 2 cores") is None
    with pytest.raises(InputError, match=r"no card 'B1000' is known: L4, "):
        card_named("B1000")


@pytest.mark.parametrize(
    ("card", "method", "optimizer", "fits"),
    [
        ("L4", "qlora", "adamw_torch_fused", True),
        ("L4", "full", "paged_adamw_8bit", False),
        ("H100", "full", "adamw_torch_fused", False),
        ("H100", "full", "paged_adamw_8bit", True),
    ],
)
def test_what_fits_which_card(
    recipe: Recipe, olmo: ModelShape, card: str, method: str, optimizer: str, fits: bool
) -> None:
    plan = figures_of(changed(recipe, method, optimizer=optimizer), olmo, hardware(card), SIZE)
    assert (plan.peak_memory_gib <= card_named(card).usable_gib) == fits, plan.peak_memory_gib


def test_a_faster_card_is_planned_faster_and_says_what_that_rests_on(recipe: Recipe, olmo: ModelShape) -> None:
    plans = {name: figures_of(recipe, olmo, hardware(name), SIZE) for name in ("L4", "A100-80", "H100")}
    assert plans["L4"].seconds > plans["A100-80"].seconds > plans["H100"].seconds
    assert any("as on an H100" in note and "121 TFLOP/s, 300 GB/s" in note for note in plans["L4"].notes)
    # 2,000 tokens in a batch of a 7B on an L4; measured nowhere yet, so only the magnitude is held.
    steps = plans["L4"].seconds - 30
    assert 700 < plans["L4"].tokens / steps < 1400
    measured = hardware("L4").model_copy(update={"efficiency": DEFAULT_EFFICIENCY / 2, "efficiency_from": 3})
    slower = figures_of(recipe, olmo, measured, SIZE)
    assert slower.seconds - 30 == pytest.approx(2 * steps, rel=0.001)
    assert any("as 3 earlier trainings reached" in note for note in slower.notes)


def hardware(card: str) -> HardwareFigures:
    found = card_named(card)
    return HardwareFigures(
        name=card, device="cuda", memory_gib=found.usable_gib, tokens_per_second=1, card=found, cost_per_hour=0.3
    )

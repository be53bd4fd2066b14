"""The plan learns from the log book: after a first training of a kind, its own figures count."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ec1.files import write_json
from ec1.home import Home
from ec1.launch.device import GpuSettings
from ec1.night.steps.hardware import hardware_of, hardware_with
from ec1.night.steps.learned import efficiency, learned
from ec1.recipes.resolution import load_recipe
from ec1.recipes.schema import Recipe
from ec1.training.cards import card_named, without_sheet
from ec1.training.physics import work_of
from ec1.training.plan import DatasetSize, HardwareFigures, figures_of, plan_training
from ec1.training.shape import ModelShape
from ec1.training.spec import RUN, SUMMARY, TrainingResult, TrainingSpec

GPU = GpuSettings(device="cpu", name="this CPU", memory_gib=8, tokens_per_second=400)


@pytest.fixture(scope="module")
def shape(small_model: Path) -> ModelShape:
    return ModelShape.read(small_model)


@pytest.fixture
def recipe(project: Path) -> Recipe:
    shipped = project / "configs" / "recipes"
    return load_recipe(project / "examples" / "recipes" / "engineering.yaml", [shipped]).recipe


@pytest.fixture
def trained(recipe: Recipe, home: Home) -> Callable[..., None]:
    """Put one finished training into the log book."""

    def put(night: str, tokens: int, step_seconds: float, *, made: Recipe = recipe, **fields: Any) -> None:
        folder = home.run(made.tenant, made.role, night) / "training"
        spec = TrainingSpec(
            recipe=made,
            recipe_digest=made.digest(),
            dataset=home.datasets / "d",
            dataset_digest="d" * 64,
            base_model=fields.pop("base_model", home.models / "m"),
            output=folder,
            budget_seconds=600,
            device="cpu",
            machine=fields.pop("machine", "this CPU"),
        )
        write_json(folder / RUN, {"identity": spec.identity, "spec": spec.model_dump(mode="json")})
        whole = dict.fromkeys(
            ("steps", "planned_steps", "rows", "left_out_rows", "full_rows", "trainable_parameters", "changed_modules",
             "batch_size", "gradient_accumulation", "effective_batch", "warmup_steps", "seed"), 1
        )  # fmt: skip
        texts = dict.fromkeys(("recipe", "recipe_digest", "dataset_digest", "base_model", "base_revision"), "x")
        texts |= dict.fromkeys(("method", "objective", "device", "hardware", "chat_template_sha256"), "x")
        values: dict[str, Any] = {
            "status": "finished",
            "identity": spec.identity,
            "weights": "adapter",
            "epochs": 1.0,
            "loss_first": 2.0,
            "loss_last": 1.0,
            "tokens": tokens,
            "training_seconds": step_seconds,
            "seconds": step_seconds + 16,
            "tokens_per_second": tokens / step_seconds,
            "peak_memory_gib": 2.4,
            "versions": {},
        }
        result = TrainingResult.model_validate({**whole, **texts, **values, **fields})
        write_json(folder / SUMMARY, result.model_dump(mode="json"))

    return put


def planned(recipe: Recipe, home: Home, shape: ModelShape, tokens: int) -> tuple[float, float, tuple[str, ...]]:
    hardware = HardwareFigures(
        name=GPU.name, device=GPU.device, memory_gib=GPU.memory_gib, tokens_per_second=GPU.tokens_per_second
    )
    plan = plan_training(
        recipe,
        shape,
        hardware,
        DatasetSize(rows=74, tokens=tokens, longest=400, heldout_rows=20),
        budget_seconds=3600,
        learned=learned(home, recipe, shape, GPU),
    )
    return plan.seconds, plan.peak_memory_gib, plan.notes


def test_the_second_night_is_planned_as_the_first_one_went(
    recipe: Recipe, home: Home, shape: ModelShape, trained: Callable[..., None]
) -> None:
    """The sample's figures on two cores: 8,472 tokens an epoch, 157 tokens/s, 15 s around the steps, 2.3 GiB."""
    guessed, computed, notes = planned(recipe, home, shape, 8_472)
    assert not any("earlier" in note for note in notes)
    trained("2026-06-01", 16_944, 108.1, peak_memory_gib=2.315)
    seconds, memory, notes = planned(recipe, home, shape, 8_472)
    assert seconds == pytest.approx(124.1, abs=0.2) and memory == pytest.approx(2.32, abs=0.01)
    assert abs(guessed - 124.1) > 0.2 * 124.1 and computed != pytest.approx(memory)
    assert "time and memory as 1 earlier training of this kind took them" in notes
    # Twice the tuples: twice the steps' time, and what surrounds them stays.
    assert planned(recipe, home, shape, 2 * 8_472)[0] == pytest.approx(2 * 108.1 + 16, abs=0.2)


def test_only_trainings_of_the_same_kind_on_the_same_machine_count(
    recipe: Recipe, home: Home, shape: ModelShape, trained: Callable[..., None]
) -> None:
    other = recipe.model_copy(update={"role": "other", "method": "full"})
    trained("2026-06-01", 1000, 100, made=other)
    trained("2026-06-02", 1000, 100, machine="another card")
    trained("2026-06-03", 1000, 100, status="diverged")
    trained("2026-06-04", 1000, 100, resumed_from=4)
    trained("2026-06-05", 100, 1.0)
    assert learned(home, recipe, shape, GPU) is None
    (home.run("fernhollow", "engineering", "2026-06-06") / "training").mkdir(parents=True)
    (home.run("fernhollow", "engineering", "2026-06-06") / "training" / SUMMARY).write_text("{")
    trained("2026-06-07", 1000, 10)
    found = learned(home, recipe, shape, GPU)
    assert found is not None and (found.tokens_per_second, found.trainings) == (100, 1)


def test_a_changed_recipe_begins_with_the_nearest_trainings_and_scales_their_memory(
    recipe: Recipe, home: Home, shape: ModelShape, trained: Callable[..., None]
) -> None:
    trained("2026-06-01", 1000, 10)
    wish = recipe.optimisation
    larger = recipe.model_copy(update={"optimisation": wish.model_copy(update={"batch_size": 4 * wish.batch_size})})
    found = learned(home, larger, shape, GPU)
    assert found is not None and found.tokens_per_second == 100 and found.memory_gib > 2.5
    trained("2026-06-02", 3000, 10, made=larger, peak_memory_gib=5.0)
    found = learned(home, larger, shape, GPU)
    assert found is not None and (found.tokens_per_second, found.memory_gib) == (300, 5.0), "its own now"


def test_what_trainings_of_other_kinds_reached_counts_before_the_first_of_a_kind(
    recipe: Recipe, home: Home, shape: ModelShape, trained: Callable[..., None], small_model: Path
) -> None:
    """The machine has no data sheet: what counts is the TFLOP/s that it reached."""
    card = without_sheet(GPU.name, GPU.memory_gib)
    assert efficiency(home, GPU, card) is None and hardware_of(home, GPU).card is None
    work = work_of(recipe, shape, tokens=20_000, batches=100, updates=25)
    reached = work.operations / 200 / 1e12
    facts = {"base_model": small_model, "steps": 25, "gradient_accumulation": 4}
    trained("2026-06-01", 20_000, 200, **facts)
    found = efficiency(home, GPU, card)
    assert found is not None and found.trainings == 1 and found.share == pytest.approx(reached)
    # One on another machine, and one whose model has gone, say nothing of this one.
    trained("2026-06-02", 20_000, 2, **{**facts, "machine": "another card"})
    trained("2026-06-03", 20_000, 2, **{**facts, "base_model": home.models / "gone"})
    assert efficiency(home, GPU, card) == found
    hardware = hardware_of(home, GPU)
    size = DatasetSize(rows=74, tokens=10_000, longest=400, heldout_rows=20)
    other = recipe.model_copy(update={"method": "lora"})
    plan = figures_of(other, shape, hardware, size)
    assert any("as 1 earlier training reached" in note for note in plan.notes)
    expected = work_of(other, shape, tokens=plan.tokens, batches=plan.steps, updates=plan.steps).operations
    assert plan.seconds - 30 == pytest.approx(expected / 1e12 / reached, abs=0.1)


def test_a_card_with_a_data_sheet_is_planned_by_it_unless_somebody_measured(home: Home) -> None:
    gpu = GpuSettings(device="cuda", name="NVIDIA L4")
    assert (card := hardware_of(home, gpu).card) is not None and card.name == "L4"
    told = GpuSettings(device="cuda", name="NVIDIA L4", tokens_per_second=1000)
    assert hardware_of(home, told).card is None and hardware_of(home, told).tokens_per_second == 1000
    assert hardware_of(home, GpuSettings(device="cuda", name="B1000")).card is None
    other = hardware_with(home, GPU, card_named("H100"))
    assert (other.name, other.device, other.efficiency_from) == ("H100", "cuda", 0), "a CPU says nothing of cards"

"""The plan: parameters from a config alone, memory and steps by formula; what cannot fit is refused."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from ec1.corpus.buckets import bucket
from ec1.deployment import Deployment
from ec1.errors import InputError, PermanentError
from ec1.home import Home
from ec1.night.steps.recipes import nightly_recipes
from ec1.recipes.resolution import load_recipe, survey
from ec1.recipes.schema import Recipe
from ec1.settings import Settings
from ec1.training.memory import peak_memory_gib, trainable_parameters
from ec1.training.plan import DatasetSize, HardwareFigures, plan_training, schedule_of
from ec1.training.shape import ModelShape

L4 = HardwareFigures(name="NVIDIA L4", device="cuda", memory_gib=24, tokens_per_second=900, cost_per_hour=0.3)


def changed(recipe: Recipe, **sections: Mapping[str, object]) -> Recipe:
    """The recipe with some values of some sections replaced."""
    update: dict[str, object] = {}
    for name, values in sections.items():
        section: Settings = getattr(recipe, name)
        update[name] = section.model_copy(update=values)
    return recipe.model_copy(update=update)


@pytest.fixture(scope="module")
def sft(project: Path) -> Recipe:
    folder = project / "configs" / "recipes"
    return load_recipe(folder / "pointsav" / "engineering.yaml", [folder]).recipe


@pytest.fixture(scope="module")
def dpo(project: Path) -> Recipe:
    folder = project / "configs" / "recipes"
    return load_recipe(folder / "pointsav" / "apprenticeship.yaml", [folder]).recipe


def shape_of(folder: Path, **config: object) -> ModelShape:
    """The shape of a model of which there is only a configuration."""
    (folder / "config.json").write_text(json.dumps(config))
    return ModelShape.read(folder)


@pytest.fixture(scope="module")
def olmo(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    """OLMo 3 7B, from its public config.json."""
    return shape_of(
        tmp_path_factory.mktemp("olmo"),
        model_type="olmo3",
        **{"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 32, "vocab_size": 100278, "tie_word_embeddings": False},
    )


SIZE = DatasetSize(rows=400, tokens=160_000, longest=500, heldout_rows=80)
FIGURES: dict[str, Any] = {"size": SIZE, "budget_seconds": 7200}


def test_parameters_from_the_config_are_those_of_the_weights(small_model: Path) -> None:
    shape = ModelShape.read(small_model)
    with safe_open(small_model / "model.safetensors", "np") as weights:
        counted = {}
        for name in weights.keys():  # noqa: SIM118 - not a mapping
            size = 1
            for length in weights.get_slice(name).get_shape():
                size *= length
            counted[name] = size
    projections = sum(size for name, size in counted.items() if "_proj" in name)
    assert shape.projection_parameters == projections
    # A tied head may or may not be stored a second time.
    assert shape.parameters == sum(size for name, size in counted.items() if name != "lm_head.weight")


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no config\.json"):
        ModelShape.read(tmp_path)
    with pytest.raises(InputError, match="describes no causal language model that transformers knows"):
        shape_of(tmp_path, num_attention_heads=8, hidden_size=64)


def test_experts_nested_models_and_fused_projections_are_counted(tmp_path: Path, sft: Recipe) -> None:
    """Figures of public configurations; the parameters are those that their model cards name."""
    mixtral = shape_of(
        tmp_path,
        model_type="mixtral",
        **{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000},
        tie_word_embeddings=False,
    )
    assert mixtral.parameters == pytest.approx(46.7e9, rel=0.005)
    assert mixtral.intermediate == 2 * 14336, "a token passes two of eight experts"
    assert mixtral.other_parameters > 40e9, "experts in one block are not held in 4 bits"
    with pytest.raises(PermanentError, match=r"has no module gate_proj, up_proj.*down_proj.*; lora.target_modules can"):
        plan_training(sft, mixtral, L4, **FIGURES)

    text: dict[str, object] = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "num_attention_heads": 8,
    }
    text |= {"num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "model_type": "gemma3_text"}
    gemma = shape_of(
        tmp_path, model_type="gemma3", text_config=text, vision_config={"model_type": "siglip_vision_model"}
    )
    assert (gemma.hidden, gemma.layers, gemma.attention) == (2560, 34, 2048)
    assert {"q_proj", "down_proj"} <= {each.name for each in gemma.linears}

    phi = shape_of(
        tmp_path,
        model_type="phi3",
        **{"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32},
        **{"num_key_value_heads": 32, "vocab_size": 32064, "pad_token_id": 0, "tie_word_embeddings": False},
    )
    assert phi.parameters == pytest.approx(3.82e9, rel=0.005)
    fused = changed(sft, lora={"target_modules": ("qkv_proj", "gate_up_proj")})
    assert trainable_parameters(fused, phi) == 32 * 16 * (3072 + 3 * 3072 + 3072 + 2 * 8192)
    everything = changed(sft, lora={"target_modules": "all-linear"})
    assert trainable_parameters(everything, phi) == 32 * 16 * (4 * 3072 + 2 * 3072 + 3072 + 2 * 8192 + 8192 + 3072)


def test_a_misspelt_module_is_named_with_its_neighbour(sft: Recipe, olmo: ModelShape) -> None:
    wrong = changed(sft, lora={"target_modules": ("q_proj", "v_porj")})
    with pytest.raises(PermanentError, match=r"has no module v_porj \(did you mean v_proj\?\); .* can be of down_proj"):
        plan_training(wrong, olmo, L4, **FIGURES)


def test_what_ends_a_training_early_is_in_the_plan(sft: Recipe, olmo: ModelShape) -> None:
    assert (full := plan_training(sft, olmo, L4, **FIGURES)).steps == 200
    short = plan_training(changed(sft, optimisation={"max_steps": 50}), olmo, L4, **FIGURES)
    assert (short.steps, short.tokens) == (50, full.tokens // 4)
    assert plan_training(changed(sft, optimisation={"max_steps": 500}), olmo, L4, **FIGURES).steps == 200
    early = {"early_stopping_patience": 2, "evaluation_steps": 10}
    aside = plan_training(changed(sft, optimisation=early), olmo, L4, **FIGURES)
    assert (aside.rows, aside.steps, aside.tokens) == (360, 180, 288_000), "a tenth is measured on"
    packed = plan_training(changed(sft, optimisation={"packing": True, "batch_size": 1}), olmo, L4, **FIGURES)
    assert packed.steps == 2 * 79 and packed.tokens == full.tokens, "160,000 tokens in sequences of 2,048"


def test_default_adapter_of_the_7b_is_about_40_million(sft: Recipe, olmo: ModelShape) -> None:
    assert olmo.parameters == pytest.approx(7.3e9, rel=0.02)
    assert trainable_parameters(sft, olmo) == pytest.approx(40e6, rel=0.02)


def test_default_recipe_fits_the_l4_and_16_bit_weights_do_not(sft: Recipe, olmo: ModelShape) -> None:
    plan = plan_training(sft, olmo, L4, **FIGURES)
    assert 6 < plan.peak_memory_gib < 14
    assert (plan.steps, plan.effective_batch, plan.tokens) == (200, 4, 320_000)
    assert plan.seconds == pytest.approx(320_000 / 900, abs=60)
    assert plan.cost == pytest.approx(plan.seconds / 3600 * 0.3, rel=0.01)
    with pytest.raises(PermanentError, match=r"needs about \d+\.\d GiB, NVIDIA L4 leaves 24\.0"):
        plan_training(sft.model_copy(update={"method": "full"}), olmo, L4, **FIGURES)


def test_the_pages_figures_of_a_7b_are_the_plans(project: Path, sft: Recipe, dpo: Recipe, olmo: ModelShape) -> None:
    """Computed, and said to be; whoever changes a default or the arithmetic sees the page."""
    page = (project / "docs" / "recipes.md").read_text(encoding="utf-8")
    page = page[page.index("**Defaults for a 7B") :]
    assert "*computed*" in page.splitlines()[0]

    def peak(recipe: Recipe, length: int = 2048, **wish: object) -> str:
        return f"{peak_memory_gib(changed(recipe, optimisation=wish), olmo, 'cuda', length):.1f}"

    wish = sft.optimisation
    assert f"batch {wish.batch_size} × accumulation {wish.gradient_accumulation}, 2,048 tokens" in page
    assert sft.data.max_length == 2048 and f"`{wish.optimizer}`" in page and sft.lora is not None
    assert f"r {sft.lora.r}, dropout {sft.lora.dropout:g}" in page and not wish.packing and wish.group_by_length
    told = f"{peak(sft)} GiB; batch 8 would take {peak(sft, batch_size=8)}, 4,096 tokens {peak(sft, 4096)}, batch 1 "
    assert f"{told}{peak(sft, batch_size=1)} |" in page
    plain = peak(sft, gradient_checkpointing=False)
    assert (
        f"without it {plain} GiB at batch 4, {peak(sft, gradient_checkpointing=False, batch_size=1)} at batch 1" in page
    )
    assert f"pairs at batch 4: {peak(dpo)} GiB" in page
    whole = 4 * 2048 * 100_278 * 4 * 3 / 2**30
    assert f"would take {whole:.0f} GiB" in page


def test_memory_grows_with_what_costs_memory(sft: Recipe, dpo: Recipe, olmo: ModelShape) -> None:
    def peak(recipe: Recipe, length: int = 512) -> float:
        return peak_memory_gib(recipe, olmo, "cuda", length)

    assert peak(sft) < peak(sft.model_copy(update={"method": "lora"}))
    assert peak(sft) < peak(changed(sft, optimisation={"gradient_checkpointing": False}))
    assert peak(sft) < peak(changed(sft, optimisation={"batch_size": 8}))
    assert peak(sft) < peak(sft, length=4096)
    assert peak(changed(sft, optimisation={"optimizer": "paged_adamw_8bit"})) < peak(sft)
    assert peak(sft) < peak(dpo), "a pair is two rows"


@pytest.mark.parametrize(
    ("precision", "batch", "measured"),
    # Peak resident memory of real trainings of the small model on a CPU, all rows of 256 tokens, in GiB.
    [("bfloat16", 8, 4.34), ("bfloat16", 4, 2.68), ("float32", 8, 7.64), ("float32", 4, 4.26)],
)
def test_memory_on_a_cpu_is_what_was_measured_or_a_little_more(
    project: Path, small_model: Path, precision: str, batch: int, measured: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ec1.training.memory.precision_on", lambda device, weight_bytes: precision)
    folder = project / "configs" / "recipes"
    recipe = load_recipe(project / "examples" / "recipes" / "engineering.yaml", [folder]).recipe
    planned = peak_memory_gib(
        changed(recipe, optimisation={"batch_size": batch}, lora={"dropout": 0.05}),
        ModelShape.read(small_model),
        "cpu",
        256,
    )
    assert measured * 0.99 <= planned <= measured * 1.2


# As above, of two rows, each time with the scores of all layers: 1.1 and 1.6 GiB more than without.
@pytest.mark.parametrize(("length", "measured"), [(512, 4.2), (768, 6.14)])
def test_scores_that_attention_keeps_are_counted(
    project: Path, small_model: Path, length: int, measured: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ec1.training.memory.precision_on", lambda device, weight_bytes: "float32")
    sample = load_recipe(
        project / "examples" / "recipes" / "engineering.yaml", [project / "configs" / "recipes"]
    ).recipe
    recipe, model = changed(sample, optimisation={"batch_size": 2}), ModelShape.read(small_model)
    eager = peak_memory_gib(changed(recipe, hardware={"attention": "eager"}), model, "cpu", length)
    assert eager == pytest.approx(measured, rel=0.1)
    without = model.model_copy(update={"fused_attention": False})
    assert eager == peak_memory_gib(recipe, without, "cpu", length), "as of a model that has no other"


def test_a_plan_says_when_it_moves_nothing(dpo: Recipe, olmo: ModelShape) -> None:
    few = {**FIGURES, "size": replace(SIZE, rows=48, tokens=9_000)}
    old = changed(dpo, optimisation={"learning_rate": 5e-6, "epochs": 1})
    assert any("too little to change an answer" in note for note in plan_training(old, olmo, L4, **few).notes)
    assert not any("too little" in note for note in plan_training(dpo, olmo, L4, **few).notes)


def test_preference_training_costs_the_reference_too(sft: Recipe, dpo: Recipe, olmo: ModelShape) -> None:
    assert plan_training(dpo, olmo, L4, **FIGURES).seconds > 1.2 * plan_training(sft, olmo, L4, **FIGURES).seconds


def test_what_exceeds_the_budget_is_refused_with_a_way_out(sft: Recipe, olmo: ModelShape) -> None:
    with pytest.raises(PermanentError, match=r"the budget is 120 s: lower optimisation\.epochs"):
        plan_training(sft, olmo, L4, **{**FIGURES, "budget_seconds": 120})


def test_the_recipes_own_limit_counts_too(sft: Recipe, olmo: ModelShape) -> None:
    with pytest.raises(PermanentError, match=r"leaves 4\.0"):
        plan_training(changed(sft, hardware={"memory_gib": 4.0}), olmo, L4, **FIGURES)


def test_another_kind_of_device_is_refused(sft: Recipe, olmo: ModelShape) -> None:
    cpu = L4.model_copy(update={"device": "cpu"})
    with pytest.raises(InputError, match="asks for device cuda, the deployment has cpu"):
        plan_training(sft, olmo, cpu, **FIGURES)


@pytest.mark.parametrize(
    ("wish", "rows", "steps", "warmup", "note"),
    [
        ({"warmup_share": 0.03}, 400, 200, 6, None),
        ({"warmup_share": 0.03}, 20, 10, 0, None),
        ({"warmup_share": None, "warmup_steps": 100}, 400, 200, 40, "warm-up cut from 100 to 40 steps"),
        ({"warmup_share": None, "warmup_steps": 100}, 3, 2, 0, "warm-up cut from 100 to 0 steps"),
        ({"warmup_share": None, "warmup_steps": 10}, 400, 200, 10, None),
        ({}, 2, 2, 0, "2 rows do not fill the effective batch of 4"),
        ({"epochs": 0.5}, 401, 51, 2, None),
    ],
)
def test_schedule_follows_the_real_number_of_rows(
    sft: Recipe, wish: dict[str, object], rows: int, steps: int, warmup: int, note: str | None
) -> None:
    schedule = schedule_of(changed(sft, optimisation=wish), rows, heldout_rows=10)
    assert (schedule.steps, schedule.warmup_steps) == (steps, warmup)
    assert any(note in text for text in schedule.notes) if note else schedule.notes == ()


def test_evaluations_are_never_zero_in_silence(sft: Recipe) -> None:
    often = changed(sft, optimisation={"evaluation_steps": 50})
    assert schedule_of(often, 400, heldout_rows=10).evaluations == 4
    short = schedule_of(often, 20, heldout_rows=10)
    assert (short.evaluation_steps, short.evaluations) == (10, 1)
    assert "evaluation every 50 steps becomes one after the last of 10" in short.notes
    none = schedule_of(often, 400, heldout_rows=0)
    assert none.evaluations == 0 and "there is no held-out row" in none.notes[0]


def test_nothing_to_train_on_is_refused(sft: Recipe) -> None:
    with pytest.raises(PermanentError, match="no row is left"):
        schedule_of(sft, 0, heldout_rows=10)


def test_rows_that_will_be_cut_are_said(sft: Recipe, olmo: ModelShape) -> None:
    plan = plan_training(sft, olmo, L4, **{**FIGURES, "size": replace(SIZE, longest=2900)})
    assert "rows are cut at 2048 tokens; the longest has 2900" in plan.notes


ROLES = {
    # role: epochs, warm-up steps, evaluation every so many steps; rank, batch, accumulation, longest row
    "mayor": (3, 100, 100, 64, 2, 4, 4096),
    "deacon": (3, 50, 50, 16, 1, 8, 2048),
    "witness": (3, 50, 50, 16, 1, 8, 2048),
    "refinery": (3, 50, 50, 64, 2, 4, 4096),
    "polecat": (4, 30, 25, 64, 2, 4, 4096),
    "crew": (4, 30, 25, 64, 2, 4, 4096),
}


@pytest.mark.parametrize("role", ROLES)
def test_the_roles_of_gastown_are_deltas_that_fit_the_l4(project: Path, role: str, olmo: ModelShape) -> None:
    shipped = project / "configs" / "recipes"
    resolved = load_recipe(shipped / "gastown" / f"{role}.yaml", [shipped])
    recipe, wish = resolved.recipe, resolved.recipe.optimisation
    assert [path.relative_to(shipped).as_posix() for path in resolved.chain] == [
        f"gastown/{role}.yaml",
        "gastown/base.yaml",
        "base.yaml",
    ]
    assert (recipe.tenant, recipe.role, recipe.method, recipe.objective) == ("gastown", role, "qlora", "sft")
    assert recipe.lora is not None and recipe.lora.alpha == 2 * recipe.lora.r
    batch = (recipe.lora.r, wish.batch_size, wish.gradient_accumulation, recipe.data.max_length)
    assert (wish.epochs, wish.warmup_steps, wish.evaluation_steps, *batch) == ROLES[role]
    assert (wish.learning_rate, wish.scheduler, wish.warmup_share) == (2e-4, "cosine", None)

    size = DatasetSize(rows=8000, tokens=2_000_000, longest=4096, heldout_rows=100)
    plan = plan_training(recipe, olmo, L4, size, budget_seconds=12 * 3600)
    assert plan.steps == 1000 * wish.epochs and plan.warmup_steps == wish.warmup_steps
    assert plan.evaluations == plan.steps // (wish.evaluation_steps or 1)
    assert 5 < plan.peak_memory_gib < 22
    few = plan_training(recipe, olmo, L4, replace(size, rows=200, tokens=50_000), budget_seconds=12 * 3600)
    assert any("warm-up cut from" in note for note in few.notes), "adapted to the real number of steps, and said"


def test_each_role_of_gastown_has_its_own_bucket_and_folder_and_none_runs_in_the_sample(
    project: Path, embedded: Deployment, home: Home
) -> None:
    shipped = project / "configs" / "recipes"
    recipes = [each.recipe for each in survey([shipped / "gastown"], [shipped])[0]]
    assert {recipe.role for recipe in recipes} == set(ROLES)
    for own in (
        {bucket(home.corpus, recipe.role, recipe.tenant).name for recipe in recipes},
        {str(bucket(home.corpus, recipe.role, recipe.tenant).folders) for recipe in recipes},
        {home.run(recipe.tenant, recipe.role, "2026-06-01") for recipe in recipes},
        {recipe.digest() for recipe in recipes},
    ):
        assert len(own) == len(ROLES)
    assert {each.recipe.tenant for each in nightly_recipes(embedded, project)} == {"fernhollow"}


def test_several_cards_share_the_tokens_and_with_fsdp_the_model(sft: Recipe, olmo: ModelShape) -> None:
    lora = changed(sft, optimisation={"batch_size": 2, "gradient_accumulation": 8}).model_copy(
        update={"method": "lora", "quantization": None}
    )
    small = L4.model_copy(update={"memory_gib": 12})
    for hardware in (small, small.model_copy(update={"processes": 4})):
        with pytest.raises(PermanentError, match="needs about"):
            plan_training(lora, olmo, hardware, **FIGURES)
    four = plan_training(lora, olmo, small.model_copy(update={"processes": 4, "fsdp": True}), **FIGURES)
    one = plan_training(lora, olmo, L4, **FIGURES)
    assert four.peak_memory_gib < 12 < one.peak_memory_gib
    assert (four.steps, four.tokens, four.effective_batch) == (one.steps, one.tokens, one.effective_batch)
    assert four.seconds < one.seconds / 2
    assert any("4 processes share a step: 2 × 2 rows each" in note for note in four.notes)

"""Configurations of Axolotl and LLaMA-Factory become recipes; no key is lost without a word. Recipes are compared."""

from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from ec1.cli import app
from ec1.errors import InputError
from ec1.recipes import importing
from ec1.recipes.compare import differences
from ec1.recipes.importing import import_recipe
from ec1.recipes.objectives import OBJECTIVES
from ec1.recipes.resolution import ResolvedRecipe, load_recipe, parse_overrides
from ec1.recipes.schema import DpoLoss, Recipe
from ec1.settings import Settings
from ec1.strict_yaml import parse_mapping

# As in the examples that the two projects ship.
AXOLOTL = """
base_model: NousResearch/Llama-3.2-1B
load_in_4bit: true
adapter: qlora
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
val_set_size: 0.2
output_dir: ./outputs/qlora-out
lora_r: 32
lora_alpha: 16
lora_dropout: 0.05
lora_target_modules: [gate_proj, down_proj, up_proj, q_proj, v_proj, k_proj, o_proj]
sequence_len: 2048
sample_packing: true
eval_sample_packing: true
wandb_project:
gradient_accumulation_steps: 4
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_bnb_8bit
lr_scheduler: cosine
cosine_min_lr_ratio: 0.1
learning_rate: 0.0002
bf16: auto
tf32: false
gradient_checkpointing: true
flash_attention: true
warmup_steps: 10
evals_per_epoch: 4
saves_per_epoch: 1
weight_decay: 0.0
special_tokens:
  pad_token: "<|end_of_text|>"
"""
LLAMA_FACTORY = """
### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true
### method
stage: dpo
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
pref_beta: 0.2
pref_loss: hinge
pref_ftx: 0.5
### dataset
dataset: dpo_en_demo
template: llama3
cutoff_len: 1024
max_samples: 1000
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 5.0e-6
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
"""


@pytest.fixture
def shipped(project: Path) -> Path:
    return project / "configs" / "recipes"


def imported(text: str, folder: Path, shipped: Path) -> tuple[ResolvedRecipe, dict[str, str]]:
    found = import_recipe(parse_mapping(text, "it"), "acme", "editor")
    path = folder / "imported.yaml"
    path.write_text(found.text)
    return load_recipe(path, [shipped]), found.not_carried


def test_an_axolotl_file_becomes_a_recipe_and_the_rest_is_named(tmp_path: Path, shipped: Path) -> None:
    resolved, rest = imported(AXOLOTL, tmp_path, shipped)
    recipe, wish = resolved.recipe, resolved.recipe.optimisation
    assert (recipe.base_model.id, recipe.method, recipe.objective) == ("NousResearch/Llama-3.2-1B", "qlora", "sft")
    assert recipe.lora is not None and (recipe.lora.r, recipe.lora.alpha, recipe.lora.dropout) == (32, 16, 0.05)
    assert (wish.batch_size, wish.gradient_accumulation, wish.epochs, wish.learning_rate) == (2, 4, 1, 2e-4)
    assert (wish.warmup_steps, wish.warmup_share, wish.packing, wish.min_rate_share) == (10, None, True, 0.1)
    assert (recipe.data.max_length, recipe.data.heldout_share) == (2048, 0.2)
    assert recipe.hardware.attention == "flash_attention_2"
    assert (wish.seed, wish.group_by_length) == (42, False), "what the file leaves out is as there, not as here"
    assert set(rest) == {
        *("datasets", "output_dir", "eval_sample_packing", "optimizer", "evals_per_epoch", "saves_per_epoch"),
        "special_tokens",
    }
    assert "adamw_bnb_8bit has no counterpart" in rest["optimizer"] and "ec1 corpus import" in rest["datasets"]
    assert resolved.origins["lora.r"].startswith(str(tmp_path / "imported.yaml"))


def test_a_llama_factory_file_becomes_a_recipe_and_the_rest_is_named(tmp_path: Path, shipped: Path) -> None:
    resolved, rest = imported(LLAMA_FACTORY, tmp_path, shipped)
    recipe, wish = resolved.recipe, resolved.recipe.optimisation
    assert (recipe.method, recipe.objective, recipe.quantization) == ("lora", "dpo", None)
    assert recipe.dpo is not None
    assert (recipe.dpo.beta, recipe.dpo.loss, recipe.dpo.sft_weight) == (0.2, "hinge", 0.5)
    assert recipe.lora is not None and (recipe.lora.alpha, recipe.lora.target_modules) == (16, "all-linear")
    assert (wish.effective_batch, wish.epochs, wish.warmup_share, wish.scheduler) == (8, 3, 0.1, "cosine")
    assert (recipe.data.max_length, recipe.data.max_rows) == (1024, 1000)
    assert set(rest) == {"trust_remote_code", "dataset", "template"}


def test_every_key_ends_in_the_recipe_or_is_named(tmp_path: Path, shipped: Path) -> None:
    plain, none = imported("base_model: a/b\nlearning_rate: 1e-5\n", tmp_path, shipped)
    assert none == {} and plain.recipe.method == "full" and plain.recipe.lora is None
    more = "base_model: a/b\nadapter: lora\nlearning_rate: 1e-5\n"
    for line, named in {
        "zebra: 1": "zebra",
        "lora_modules_to_save: [embed_tokens]": "lora_modules_to_save",
        "early_stopping_patience: 3": "early_stopping_patience",
        "eval_steps: 0.1": "eval_steps",
        "load_in_8bit: true": "load_in_8bit",
        "fp16: true": "fp16",
        "dpo_label_smoothing: 0.1": "dpo_label_smoothing",
        "lr_scheduler: polynomial": "lr_scheduler",
        "train_on_inputs: true": "train_on_inputs",
        "dpo_beta: 0.2": "dpo_beta",
        "lr_scheduler_kwargs: {num_cycles: 2}": "lr_scheduler_kwargs.num_cycles",
    }.items():
        assert set(imported(more + line + "\n", tmp_path, shipped)[1]) == {named}, line
    capped, _ = imported(more + "max_steps: 7\nnum_epochs: 1\n", tmp_path, shipped)
    assert (capped.recipe.optimisation.max_steps, capped.recipe.optimisation.epochs) == (7, 100), "steps win there"


def test_the_keys_of_their_current_releases_are_carried(tmp_path: Path, shipped: Path) -> None:
    """As of July and August 2026, with the arguments of transformers 5."""
    text = (
        "base_model: a/b\nadapter: lora\nlearning_rate: 1e-5\nwarmup_steps: 0.1\nrl: dpo\ndpo_loss_type: [apo_zero]\n"
    )
    recipe = imported(text, tmp_path, shipped)[0].recipe
    assert (recipe.optimisation.warmup_steps, recipe.optimisation.warmup_share) == (None, 0.1), "a share, not 0 steps"
    assert recipe.dpo is not None and recipe.dpo.loss == "apo_zero"
    text = (
        "model_name_or_path: a/b\nstage: sft\nneat_packing: true\ndisable_gradient_checkpointing: true\n"
        "eval_steps: 20\nearly_stopping_steps: 3\ntrain_sampling_strategy: group_by_length\n"
    )
    resolved, rest = imported(text, tmp_path, shipped)
    wish = resolved.recipe.optimisation
    assert (rest, wish.packing, wish.gradient_checkpointing, wish.group_by_length) == ({}, True, False, True)
    assert (wish.evaluation_steps, wish.early_stopping_patience) == (20, 3)


def test_the_table_names_settings_that_recipes_have() -> None:
    table = importing._table()
    cases = [case for part in (table, *table.sources) for each in part.keys.values() for case in each]
    targets = {target for case in cases for target in [*case.put, *([case.to] if case.to else [])]}
    targets |= {target for part in (table, *table.sources) for target in part.defaults}
    targets |= {target for defaults in table.objectives.values() for target in defaults}
    for target in targets - {"OBJECTIVE.beta"}:
        model: Any = Recipe
        for part in target.split("."):
            assert part in model.model_fields, target
            kinds = (model.model_fields[part].annotation, *get_args(model.model_fields[part].annotation))
            model = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Settings)), None)
    # Of rollouts the others' files name reward functions of their own.
    assert set(table.objectives) == {name for name, each in OBJECTIVES.items() if not each.rolls_out}


@pytest.mark.parametrize("loss", get_args(DpoLoss))
def test_every_loss_is_carried_from_both(loss: str) -> None:
    start = "base_model: a/b\nrl: dpo\ndpo_loss_type: [", "model_name_or_path: a/b\nstage: dpo\npref_loss: "
    for text in (f"{start[0]}{loss}]", f"{start[1]}{loss}"):
        found = import_recipe(parse_mapping(text, "it"), "acme", "editor")
        assert f'loss: "{loss}"' in found.text and found.not_carried == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base_model: a/b\nrl: dpo\ndpo_loss_type: [sigmoid, bco_pair]", "dpo_loss_type: .* one of sigmoid"),
        ("epochs: 1", "neither base_model"),
        ("model_name_or_path: a/b\nstage: ppo", "stage: ppo cannot be trained"),
        ("base_model: a/b\nrl: kto", "rl: kto: only dpo, ipo, orpo and simpo"),
        ("base_model: ./model\n", "is a folder"),
        ("model_name_or_path: a/b\nfinetuning_type: freeze", "only lora, qlora and full"),
        ("model_name_or_path: a/b\nseed: often", "seed: often is not of type int"),
        ("base_model: a/b\npretraining_dataset: [{path: c4}]", "pretraining_dataset: .*kind pretraining"),
        ("base_model: a/b\nprocessor_type: AutoProcessor", "processor_type: pictures"),
        ("model_name_or_path: a/b\nfreeze_vision_tower: true", "freeze_vision_tower: pictures"),
    ],
)
def test_what_cannot_be_trained_here_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        import_recipe(parse_mapping(text, "it"), "acme", "editor")


def test_two_recipes_are_compared_with_origins(project: Path, shipped: Path) -> None:
    path = project / "examples" / "recipes" / "engineering.yaml"
    left, right = (load_recipe(path, [shipped], parse_overrides(each)) for each in ([], ["lora.r=8", "dpo.beta=0.5"]))
    assert differences(left, left) == []
    found = {each.key: each for each in differences(left, right)}
    assert set(found) == {"lora.r", "dpo.beta", "dpo.loss", "dpo.sft_weight"}
    assert (found["lora.r"].left, found["lora.r"].right, found["lora.r"].right_origin) == (16, 8, "--set")
    assert found["lora.r"].left_origin.endswith("base.yaml:17")


def test_the_commands(tmp_path: Path, project: Path) -> None:
    source = tmp_path / "axolotl.yml"
    source.write_text(AXOLOTL)
    here = ["--project", str(project), "recipe"]
    target = tmp_path / "made.yaml"
    arguments = ["import", str(source), "--tenant", "acme", "--role", "editor"]
    done = CliRunner().invoke(app, [*here, *arguments, "--out", str(target)])
    assert done.exit_code == 3, done.output
    assert "not carried: special_tokens: not known here" in done.output
    again = CliRunner().invoke(app, [*here, *arguments, "--out", str(target)])
    assert isinstance(again.exception, InputError) or again.exit_code == 2
    compared = CliRunner().invoke(app, [*here, "diff", "pointsav/engineering", str(target)])
    assert compared.exit_code == 0 and "lora.alpha: 32.0 (" in compared.output

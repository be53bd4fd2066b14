"""A tiny model and tiny datasets, on which a training takes a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_trainings import HELD_OUT, ROWS, WORDS, messages, run

from ec1.recipes.resolution import load_recipe
from ec1.recipes.schema import Recipe
from ec1.training.spec import TrainingSpec


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SFT and a DPO dataset and one of tasks in the layout of `ec1.corpus.dataset`; rows differ in length."""
    root = tmp_path_factory.mktemp("datasets")
    words = WORDS + HELD_OUT
    prompts = [messages("user", f"Say {word} {'again ' * (n % 3)}please.") for n, word in enumerate(words)]
    good = [messages("assistant", f"The word is {word}. " * (1 + n % 2)) for n, word in enumerate(words)]
    bad = [messages("assistant", f"I will not say {word[::-1]}.") for word in words]
    for name, columns in {
        "sft": {"prompt": prompts, "completion": good},
        "dpo": {"prompt": prompts, "chosen": good, "rejected": bad},
        "task": {
            "prompt": prompts,
            "checks": [messages("checks", '[{"check": "regex", "value": "^[a-mA-M]"}]') for _ in words],
        },
    }.items():
        table = pa.table({**columns, "group": words, "row": words})
        for side, part in (("train", table.slice(0, ROWS)), ("heldout", table.slice(ROWS))):
            (root / name / side).mkdir(parents=True)
            pq.write_table(part, root / name / side / "rows.parquet")
    return root


# Of a model of random weights about half of the answers pass it.
CHECKS = '[{"check": "regex", "value": "^[a-mA-M]"}]'
SPEC_KEYS = ("start_adapter", "resume", "budget_seconds", "tracking", "processes", "fsdp")


@pytest.fixture(scope="session")
def make(project: Path, tiny_model: Path, datasets: Path) -> Callable[..., TrainingSpec]:
    """A specification of the sample's own recipe with a few values replaced."""

    def made(role: str, output: Path, *, model: Path = tiny_model, **changes: Any) -> TrainingSpec:
        sample = load_recipe(project / "examples" / "recipes" / f"{role}.yaml", [project / "configs" / "recipes"])
        values = sample.recipe.model_dump(mode="json")
        values["optimisation"] |= {"batch_size": 2, "gradient_accumulation": 1, "learning_rate": 1e-3, "epochs": 1}
        values["lora"] |= {"r": 4, "target_modules": ["q_proj", "v_proj"]}
        values["data"]["max_length"] = 64
        if values["dpo"] is not None:
            # The loss of an untrained pair is ln 2 only where nothing is added to it.
            values["dpo"]["sft_weight"] = 0.0
        own = {key: changes.pop(key) for key in SPEC_KEYS if key in changes}
        for section, update in changes.items():
            values[section] = {**(values[section] or {}), **update} if isinstance(update, dict) else update
        recipe = Recipe.model_validate(values)
        dataset = datasets / recipe.rows
        return TrainingSpec(
            recipe=recipe,
            recipe_digest=recipe.digest(),
            dataset=dataset,
            dataset_digest="d" * 64,
            base_model=model,
            output=output,
            device="cpu",
            **{"budget_seconds": 600, **own},
        )

    return made


@pytest.fixture(scope="session")
def sft(make: Callable[..., TrainingSpec], tmp_path_factory: pytest.TempPathFactory) -> TrainingSpec:
    """One undisturbed SFT training of the tiny model, looked at by several tests."""
    spec = make("engineering", tmp_path_factory.mktemp("sft"))
    run(spec)
    return spec

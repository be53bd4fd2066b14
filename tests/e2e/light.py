"""A light night: the real Dagster runs, lease, wardens and trainer, on few rows and a tiny model, with a stand-in for
the engine.

For tests that need many nights. What a real engine and a whole sample do is tested in `test_night.py`.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from commandline import CommandLine

from ec1.home import Home

FAKE_ENGINE = Path(__file__).with_name("fake_engine")
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"

DEPLOYMENT = """
tenant: fernhollow
sample: {sample}
recipes: [recipes]
models:
  {model}: {{source: directory, path: {folder}}}
inference: {{kind: vllm, model: {model}, max_model_len: 2048}}
extraction: {{chunk_tokens: 400, overlap_tokens: 40, max_answer_tokens: 400}}
gpu: {{device: cpu, min_free_gib: 1, name: CPU, memory_gib: 12, tokens_per_second: 100}}
schedule: {{enabled: false, first_night: 2026-06-01}}
budgets: {{lease_wait_seconds: 600}}
"""
RECIPE = """
extends: pointsav/engineering
version: 1
tenant: fernhollow
role: engineering
base_model: {{id: {model}}}
lora: {{r: 4}}
optimisation: {{epochs: 1, batch_size: 4, gradient_accumulation: 1, gradient_checkpointing: false}}
data: {{max_length: 192, max_rows: 16, threshold: 20}}
hardware: {{device: cpu, memory_gib: 12}}
evaluation: {{sample_generations: 0}}
"""


@dataclass(frozen=True)
class LightCommandLine(CommandLine):
    """`ec1` with the stand-in for the engine."""

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "EC1_PROJECT": str(self.home.root.parent), "PYTHONPATH": str(FAKE_ENGINE)}


def light_project(folder: Path, checkout: Path, model: Path, *, train: bool = True) -> LightCommandLine:
    """A project in `folder` with one deployment, `light`, and at most one small recipe; its home is `folder/home`."""
    (folder / "configs" / "deployments").mkdir(parents=True)
    (folder / "recipes").mkdir()
    (folder / "configs" / "deployments" / "light.yaml").write_text(
        DEPLOYMENT.format(sample=checkout / "examples", model=MODEL, folder=model)
    )
    if train:
        (folder / "recipes" / "engineering.yaml").write_text(RECIPE.format(model=MODEL))
    return LightCommandLine(checkout, Home(folder / "home"), "light")


def wipe(ec1: CommandLine) -> None:
    """Forget everything but the sample's inputs, so that the next night has all its work before it."""
    for path in ec1.home.root.iterdir():
        if path.name not in ("documents", "training-corpus", "dagster"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

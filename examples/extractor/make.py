"""`make extractor`: trains the shipped extractor on `tuples.jsonl` and writes `ec1/extraction/shipped/`.

The ordinary way of a recipe: bucket, snapshot, dataset, trainer; all but the gate, which has no night here
(`python -m benchmarks.trained_extractor` measures it). The seed is the recipe's: the same machine makes the same
weights.
"""

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ec1.adapters.extractor import extractor_adapter
from ec1.adapters.manifest import CONFIG, WEIGHTS
from ec1.deployment import load_deployment
from ec1.extraction.naming.trained import SHIPPED
from ec1.files import read_json, sha256_file, staged_directory, write_atomic, write_json
from ec1.home import CHECKOUT, Home
from ec1.launch.environment import process_environment
from ec1.models import prepare_model
from ec1.night.steps.recipe_night import RecipeNight
from ec1.recipes.resolution import load_recipe
from ec1.training.spec import check_result

HERE = Path(__file__).parent
TUPLES = HERE / "tuples.jsonl"
_BUDGET_SECONDS = 3600.0


def main(target: Path = SHIPPED, tuples: Path = TUPLES) -> None:
    """Train on `tuples` and write the adapter; what was there is replaced. Needs two gigabytes of memory."""
    resolved = load_recipe(HERE / "recipe.yaml", [])
    recipe, embedded = resolved.recipe, load_deployment("embedded", CHECKOUT)
    # From the model itself: an extractor's training goes on from the adapter that its deployment names.
    deployment = embedded.model_copy(
        update={"extraction": embedded.extraction.model_copy(update={"adapter": None, "merge_adapter": False})}
    )
    models = Home(CHECKOUT / ".ec1").models
    prepare_model(recipe.base_model.id, recipe.base_model.revision, deployment.models, models)
    with tempfile.TemporaryDirectory(prefix="ec1-extractor-") as scratch:
        home = Home(Path(scratch))
        home.models.symlink_to(models)
        corpus = home.corpus / recipe.role / tuples.name
        corpus.parent.mkdir(parents=True)
        shutil.copyfile(tuples, corpus)
        now = dt.datetime.now(dt.UTC)
        night = RecipeNight(resolved, deployment, home, deployment.current_night(now))
        dataset = night.dataset(night.snapshot(now))
        print(f"{dataset.train_rows} rows to train on, {dataset.tokens} tokens", flush=True)
        spec = night.spec(dataset, budget_seconds=_BUDGET_SECONDS)
        path = spec.output / "spec.json"
        write_json(path, spec.model_dump(mode="json"))
        command = [sys.executable, "-m", "ec1.training", str(path)]
        subprocess.run(command, check=True, env=process_environment("cpu", os.environ), cwd=CHECKOUT)
        result = check_result(spec)
        _ship(spec.output / str(result.weights), target, tuples)
        adapter = extractor_adapter(target, recipe.base_model.id)
        print(
            f"{result.steps} steps in {result.training_seconds:.0f} s, loss {result.loss_first:.3f} to "
            f"{result.loss_last:.3f}; {adapter.name} in {target}"
        )


def _ship(trained: Path, target: Path, tuples: Path) -> None:
    """Keep the weights in 16 bits: half the size, and what an engine computes with."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.rmtree(target, ignore_errors=True)
    with staged_directory(target) as staging:
        weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(trained / WEIGHTS).items()}
        save_file(weights, staging / WEIGHTS, metadata={"format": "pt"})
        config = read_json(trained / CONFIG)
        # PEFT writes a set, in whatever order it has.
        write_atomic(
            staging / CONFIG, json.dumps({**config, "target_modules": sorted(config["target_modules"])}, indent=2)
        )
        write_json(staging / "origin.json", {"tuples": sha256_file(tuples)})


if __name__ == "__main__":
    main()

"""`make extractor`: trains the shipped extractor on `tuples.jsonl` and writes `adapter/`.

The ordinary way of a recipe: bucket, snapshot, dataset, trainer; all but the gate, which has no night here
(`python -m benchmarks.trained_extractor` measures it). The seed is the recipe's: the same machine makes the same
weights.
"""

import datetime as dt
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ec1.adapters.manifest import CONFIG, WEIGHTS
from ec1.corpus.buckets import bucket
from ec1.corpus.snapshots import take_snapshot
from ec1.deployment import load_deployment
from ec1.extraction.adapter import extractor_adapter
from ec1.files import sha256_file, staged_directory, write_json
from ec1.home import CHECKOUT, Home
from ec1.models import prepare_model
from ec1.night import training
from ec1.recipes.resolution import load_recipe
from ec1.training.spec import TrainingSpec, check_result

HERE = Path(__file__).parent
ADAPTER = HERE / "adapter"
_BUDGET_SECONDS = 3600.0


def main(target: Path = ADAPTER) -> None:
    resolved = load_recipe(HERE / "recipe.yaml", [])
    recipe, deployment = resolved.recipe, load_deployment("embedded", CHECKOUT)
    model = prepare_model(
        recipe.base_model.id, recipe.base_model.revision, deployment.models, Home(CHECKOUT / ".ec1").models
    )
    with tempfile.TemporaryDirectory(prefix="ec1-extractor-") as scratch:
        home = Home(Path(scratch))
        corpus = home.corpus / recipe.role / "tuples.jsonl"
        corpus.parent.mkdir(parents=True)
        shutil.copyfile(HERE / "tuples.jsonl", corpus)
        source = bucket(home.corpus, recipe.role, recipe.tenant)
        snapshot = take_snapshot(source, recipe.rows, as_of=dt.datetime.now(dt.UTC), home=home)
        dataset = training.dataset_of(recipe, snapshot, model, deployment, home)
        print(f"{dataset.train_rows} rows to train on, {dataset.tokens} tokens", flush=True)
        spec = TrainingSpec(
            recipe=recipe,
            recipe_digest=resolved.digest,
            dataset=dataset.path,
            dataset_digest=dataset.digest,
            base_model=model,
            output=home.root / "training",
            budget_seconds=_BUDGET_SECONDS,
            device="cpu",
        )
        spec.output.mkdir()
        path = spec.output / training.SPEC
        write_json(path, spec.model_dump(mode="json"))
        subprocess.run([sys.executable, "-m", "ec1.training", str(path)], check=True, env=os.environ, cwd=CHECKOUT)
        result = check_result(spec)
        _ship(spec.output / str(result.weights), target)
        print(
            f"{result.steps} steps in {result.training_seconds:.0f} s, loss {result.loss_first:.3f} to "
            f"{result.loss_last:.3f}; {extractor_adapter(target, recipe.base_model.id).name} in {target}"
        )


def _ship(trained: Path, target: Path) -> None:
    """Keep the weights in 16 bits: half the size, and what an engine computes with."""
    import torch
    from safetensors.torch import load_file, save_file

    shutil.rmtree(target, ignore_errors=True)
    with staged_directory(target) as staging:
        weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(trained / WEIGHTS).items()}
        save_file(weights, staging / WEIGHTS, metadata={"format": "pt"})
        shutil.copyfile(trained / CONFIG, staging / CONFIG)
        write_json(staging / "origin.json", {"tuples": sha256_file(HERE / "tuples.jsonl")})


if __name__ == "__main__":
    main()

"""How long a night takes in which nothing has to be done, and what loading the definitions costs as recipes gather.

A no-op night: `ec1 night` on a home without documents and tuples, with two recipes, as an operator runs it; and what it
leaves on the disk.
Definitions: loaded in a fresh process with so many recipes, over a year of nights. Both also as CPU seconds, which
other work on the machine changes least.

Run: python -m benchmarks.quick_night [--recipes 50] [--skip-night]
"""

import argparse
import datetime as dt
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ec1.deployment import load_deployment
from ec1.home import CHECKOUT, Home
from ec1.models import prepare_model
from ec1.night.operations.cleanup import size_of

DEPLOYMENT = """
tenant: acme
documents: {{root: documents}}
recipes: [recipes]
models:
  {id}: {{source: directory, path: {model}}}
inference: {{kind: vllm, model: {id}, max_model_len: 2048}}
extraction: {{chunk_tokens: 400, overlap_tokens: 40, max_answer_tokens: 400}}
gpu: {{device: cpu, min_free_gib: 1, name: CPU, memory_gib: 12, tokens_per_second: 100}}
schedule: {{enabled: false, first_night: {first}}}
"""
RECIPE = """
extends: pointsav/engineering
version: 1
tenant: acme
role: role-{number}
base_model: {{id: {id}}}
hardware: {{device: cpu, memory_gib: 12}}
"""
QUIET_NIGHTS = 3
LOAD = "import ec1_assets.definitions as module; module.defs.get_repository_def() if hasattr(module, 'defs') else None"


def project(folder: Path, recipes: int) -> dict[str, str]:
    """A project with so many recipes and a year of nights; returns the environment that chooses it."""
    embedded = load_deployment("embedded", CHECKOUT)
    settings = embedded.inference
    model = prepare_model(settings.model, settings.revision, embedded.models, Home(CHECKOUT / ".ec1").models)
    first = dt.date.today() - dt.timedelta(days=365)
    for name in ("configs/deployments", "recipes", "documents"):
        (folder / name).mkdir(parents=True)
    text = DEPLOYMENT.format(id=settings.model, model=model, first=first)
    (folder / "configs" / "deployments" / "quick.yaml").write_text(text)
    for number in range(recipes):
        (folder / "recipes" / f"role-{number}.yaml").write_text(RECIPE.format(number=number, id=settings.model))
    chosen = {"EC1_PROJECT": str(folder), "EC1_HOME": str(folder / "home"), "EC1_DEPLOYMENT": "quick"}
    return {**os.environ, **chosen}


def embedded_model() -> str:
    """The id of the sample's model."""
    return load_deployment("embedded", CHECKOUT).inference.model


def timed(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Seconds by the clock, and CPU seconds of the command and all that it waited for."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=CHECKOUT, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", type=int, default=50)
    parser.add_argument("--skip-night", action="store_true")
    arguments = parser.parse_args()
    for count in (2, arguments.recipes):
        with tempfile.TemporaryDirectory() as folder:
            seconds, cpu = timed([sys.executable, "-c", LOAD], project(Path(folder), count))
            print(f"definitions, {count:>3} recipes, 365 nights: {seconds:6.2f} s, {cpu:6.2f} CPU s", flush=True)
    if arguments.skip_night:
        return
    with tempfile.TemporaryDirectory() as folder:
        env = project(Path(folder), 2)
        home, left = Path(env["EC1_HOME"]), (0, 0)
        for back in range(QUIET_NIGHTS, -1, -1):
            date = (dt.date.today() - dt.timedelta(days=back)).isoformat()
            before = left
            seconds, cpu = timed([sys.executable, "-m", "ec1.cli", "night", "--date", date], env)
            left = size_of(home), sum(path.is_file() for path in home.rglob("*"))
            name = "first night, empty home" if back == QUIET_NIGHTS else "no-op night"
            grown = f"{(left[0] - before[0]) / 2**20:5.2f} MiB, {left[1] - before[1]:3} files"
            print(f"{name:<36}: {seconds:6.2f} s, {cpu:6.2f} CPU s, leaves {grown}", flush=True)


if __name__ == "__main__":
    main()

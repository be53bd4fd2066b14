"""How far a plan's time and memory are from what the training then takes: before a first one, and after each.

Real trainings of the sample's recipes on a home of their own, each with another length, as a corpus grows from night to
night; the plan of each is made as `ec1 plan` makes it, from the log book of those before. On a machine that does other
work the times of two trainings differ for that reason alone.

Run: python -m benchmarks.planned_training [--recipes engineering apprenticeship] [--rows 24 32 40 48]
"""

import argparse
import datetime as dt
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks._engine import embedded, model_of
from ec1.home import CHECKOUT, Home
from ec1.launch.process import inherited
from ec1.night.experiments.by_hand import prepare, run_by_hand
from ec1.night.operations.sample import install_sample
from ec1.night.steps.recipes import recipe_folders
from ec1.recipes.resolution import find_recipe


def main(recipes: Sequence[str] = ("engineering", "apprenticeship"), rows: Sequence[int] = (40, 24, 32, 48)) -> None:
    """Print a line per training: planned and taken seconds, GiB, and their ratios."""
    deployment, _ = embedded()
    assert deployment.sample is not None
    folders = recipe_folders(deployment, CHECKOUT)
    print("recipe           rows steps  planned s  taken s  ratio    GiB  taken  load")
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.create()
        install_sample(deployment.sample, home)
        home.models.symlink_to(model_of(deployment, Path(folder)).parents[1])
        for recipe in recipes:
            for count in rows:
                overrides: dict[str, Any] = {"data": {"max_rows": count}}
                resolved = find_recipe(str(CHECKOUT / "examples" / "recipes" / f"{recipe}.yaml"), folders, overrides)
                ready = prepare(resolved, deployment, home, dt.datetime.now(dt.UTC), 3600)
                log = Path(folder) / "log"
                result = run_by_hand(ready.spec, deployment, home, inherited(os.environ), log, "benchmark")
                plan = ready.plan
                print(
                    f"{recipe:<16}{plan.rows:>5}{plan.steps:>6}{plan.seconds:>11.1f}{result.seconds:>9.1f}"
                    f"{plan.seconds / result.seconds:>7.2f}{plan.peak_memory_gib:>7.2f}{result.peak_memory_gib:>7.2f}"
                    f"  {os.getloadavg()[0]:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", nargs="+", default=["engineering", "apprenticeship"])
    parser.add_argument("--rows", nargs="+", type=int, default=[40, 24, 32, 48])
    arguments = parser.parse_args()
    main(arguments.recipes, arguments.rows)

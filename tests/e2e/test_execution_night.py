"""Rejection sampling through Dagster: a night that learns from answers, and the next from its own right ones, on the
sample of `make learn`.

That GRPO goes the same way is shown by `make learn`, and how much both learn by benchmarks/expressions.py.
"""

import json
import shutil
from pathlib import Path

import pytest
from light import LightCommandLine
from ruamel.yaml import YAML

from ec1.adapters.scores import BASE, CANDIDATE
from ec1.home import Home
from ec1.night.records import OutcomeRecord, Records
from ec1.night.report.summary import night_report
from ec1.night.steps.recipe_night import RecipeNight
from ec1.queries.desk import open_desk

pytestmark = [pytest.mark.soak, pytest.mark.needs("bwrap")]
WARM, EXECUTED = "2026-06-01", "2026-06-02"


def expressions_project(folder: Path, checkout: Path) -> LightCommandLine:
    """The sample of `make learn` with `rft` in place of `grpo`, as a project of its own; its home is `folder/home`."""
    (folder / "configs" / "deployments").mkdir(parents=True)
    (folder / "recipes").mkdir()
    deployment = (checkout / "configs/deployments/expressions.yaml").read_text()
    deployment = deployment.replace("sample: examples", f"sample: {checkout}/examples")
    deployment = deployment.replace("[examples/expressions/recipes]", "[recipes]")
    (folder / "configs/deployments/expressions.yaml").write_text(deployment)
    recipes = checkout / "examples/expressions/recipes"
    shutil.copy(recipes / "expressions-warm.yaml", folder / "recipes")
    yaml, recipe_path = YAML(), folder / "recipes" / "expressions.yaml"
    recipe = yaml.load(recipes / "expressions.yaml")
    warm_start = recipe.pop("grpo")["warm_start"]
    recipe |= {"objective": "rft", "rft": {"max_tokens": 12, "answers": 8, "warm_start": warm_start}}
    recipe["optimisation"] |= {"learning_rate": 5e-4, "scheduler": "linear", "warmup_share": 0.03}
    yaml.dump(recipe, recipe_path)
    return LightCommandLine(checkout, Home(folder / "home"), "expressions")


def test_a_night_learns_from_its_own_right_answers(project: Path, tmp_path: Path) -> None:
    ec1 = expressions_project(tmp_path, project)
    first = ec1.run("night", "--date", WARM)
    assert first.returncode == 0, first.stdout
    outcomes = {recipe.recipe: recipe.outcome for recipe in night_report(ec1.home, WARM).recipes}
    assert outcomes["fernhollow/expressions-warm"] == "accepted" and outcomes["fernhollow/expressions"] != "accepted"

    second = ec1.run("night", "--date", EXECUTED)
    assert second.returncode == 0, second.stdout
    outcome = Records(ec1.home.run("fernhollow", "expressions", EXECUTED)).find(OutcomeRecord)
    assert outcome is not None
    desk = open_desk("expressions", ec1.home.root, tmp_path)
    (resolved,) = [each for each in desk.recipes() if each.recipe.role == "expressions"]
    step = RecipeNight(resolved, desk.deployment, desk.home, desk.deployment.night(EXECUTED))
    (kept,) = step.folder.rglob("own-answers.json")
    answers = json.loads(kept.read_text())["answers"]
    assert {len(mine) for mine in answers} == {8}
    assert 0 < sum(right for mine in answers for _, right in mine) < 8 * len(answers)
    means = step.judged().scores.means()
    assert (means[CANDIDATE] or 0.0) > (means[BASE] or 0.0) + 0.05, "what it writes is executed, and right more often"

    written = kept.stat().st_mtime_ns
    again = ec1.run("night", "--date", EXECUTED)
    assert again.returncode == 0 and kept.stat().st_mtime_ns == written, "nothing is answered again"

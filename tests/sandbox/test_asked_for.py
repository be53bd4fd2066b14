"""A recipe that needs the sandbox says so before anything is paid for: lint, doctor, plan and the trainer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ec1.deployment import Deployment
from ec1.errors import InputError, PermanentError
from ec1.home import Home
from ec1.launch.worker_launcher import WorkerLauncherSettings
from ec1.night.operations.doctor import examine_sandbox
from ec1.night.steps.recipe_night import RecipeNight
from ec1.recipes.lint import lint
from ec1.recipes.resolution import ResolvedRecipe, load_recipe
from ec1.sandbox.box import why_not

TASK = "evaluation:\n  tasks:\n    - {name: parses, prompt: Write a script, check: command, value: [/bin/sh, -n]}\n"


@pytest.fixture
def folders(project: Path) -> list[Path]:
    return [project / "configs" / "recipes", project / "examples" / "recipes"]


@pytest.fixture
def recipe(tmp_path: Path, folders: list[Path]) -> ResolvedRecipe:
    path = tmp_path / "x.yaml"
    path.write_text(f"extends: base\nversion: 1\ntenant: acme\nrole: engineering\n{TASK}")
    return load_recipe(path, folders)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")


@pytest.mark.needs("bwrap")
def test_it_is_found_where_it_works(recipe: ResolvedRecipe, embedded: Deployment) -> None:
    if (why := why_not()) is not None:
        pytest.skip(why)
    assert [each.level for each in examine_sandbox(embedded, [recipe])] == ["ok"]


@pytest.mark.usefixtures("without")
def test_lint_warns(recipe: ResolvedRecipe, folders: list[Path]) -> None:
    found = [each for each in lint([recipe.path], folders) if "evaluation.tasks" in each.message]
    assert [each.level for each in found] == ["warning"] and "apt-get install bubblewrap" in found[0].message


@pytest.mark.usefixtures("without")
def test_doctor_names_who_needs_it(recipe: ResolvedRecipe, embedded: Deployment) -> None:
    [here] = examine_sandbox(embedded, [recipe])
    assert here.level == "problem" and "bubblewrap" in here.detail and "acme/engineering" in here.detail
    elsewhere = embedded.model_copy(update={"launcher": WorkerLauncherSettings()})
    assert [each.level for each in examine_sandbox(elsewhere, [recipe])] == ["note"]
    plain = recipe.recipe.model_copy(update={"evaluation": recipe.recipe.evaluation.model_copy(update={"tasks": ()})})
    assert examine_sandbox(embedded, [replace(recipe, recipe=plain)]) == []


@pytest.mark.usefixtures("without")
def test_a_plan_and_a_training_are_refused(recipe: ResolvedRecipe, embedded: Deployment, home: Home) -> None:
    from ec1.training.spec import TrainingSpec
    from ec1.training.trainer import _check

    night: Any = None
    with pytest.raises(PermanentError, match="apt-get install bubblewrap"):
        RecipeNight(recipe, embedded, home, embedded.night("2026-06-05")).plan(night)
    spec = TrainingSpec(
        recipe=recipe.recipe,
        recipe_digest=recipe.digest,
        dataset=home.datasets,
        dataset_digest="d",
        base_model=home.models,
        output=home.runs,
        budget_seconds=1,
        device="cpu",
    )
    with pytest.raises(InputError, match="apt-get install bubblewrap"):
        _check(spec)

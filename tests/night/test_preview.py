"""What a night would do, told before it is done."""

import datetime as dt
from pathlib import Path

from ec1.deployment import Deployment
from ec1.home import Home
from ec1.night.operations.preview import plan_whole_night
from ec1.night.operations.sample import install_sample
from ec1.recipes.resolution import load_recipe

NIGHT = "2026-06-05"


def test_a_recipe_whose_base_cannot_be_had_is_refused_and_the_plan_goes_on(
    project: Path, embedded: Deployment, home: Home, tmp_path: Path
) -> None:
    install_sample(project / "examples", home)
    for document in home.documents.rglob("*.*"):
        # What is not read needs no model.
        document.unlink()
    text = (project / "examples" / "recipes" / "engineering.yaml").read_text()
    (misspelt := tmp_path / "x.yaml").write_text(text.replace("SmolLM2-135M-Instruct", "SmolLM2-135M-Instruckt"))
    recipe = load_recipe(misspelt, [project / "configs" / "recipes"])
    now = dt.datetime.now(dt.UTC)
    planned = plan_whole_night(embedded, home, embedded.night(NIGHT), [recipe, recipe], now, project)
    assert planned.extraction.documents == 0
    assert [(each.train, each.plan) for each in planned.recipes] == [(True, None)] * 2
    assert all("SmolLM2-135M-Instruckt" in (each.refused or "") for each in planned.recipes), planned.recipes

"""Which recipes a deployment's nights run, and where recipe names are looked up."""

from pathlib import Path

from ec1.deployment import Deployment
from ec1.home import CHECKOUT
from ec1.recipes.resolution import ResolvedRecipe, discover


def recipe_folders(deployment: Deployment, project: Path) -> list[Path]:
    """Where recipe names and `extends` are looked up: the project's recipes, the shipped ones, the deployment's own."""
    folders = [project / "configs" / "recipes", CHECKOUT / "configs" / "recipes", *deployment.recipes]
    return list(dict.fromkeys(folders))


def nightly_recipes(deployment: Deployment, project: Path) -> list[ResolvedRecipe]:
    """The recipes that a deployment runs at night. Raises InputError for a broken one.

    All that starts by itself (schedule, sensor, backfill) starts from these, so what is left out here, such as
    continued pre-training, can only be started by a person.
    """
    found = discover(deployment.recipes, recipe_folders(deployment, project))
    return [each for each in found if each.recipe.nightly]

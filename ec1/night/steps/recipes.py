"""Which recipes a deployment's nights run, and where recipe names are looked up."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

from ec1.deployment import Deployment
from ec1.recipes.resolution import SHIPPED, BrokenRecipe, ResolvedRecipe, survey


def recipe_folders(deployment: Deployment, project: Path) -> list[Path]:
    """Where recipe names and `extends` are looked up: the project's recipes, the shipped ones, the deployment's own."""
    own = project / "configs" / "recipes"
    return list(dict.fromkeys([*([own] if own.is_dir() else []), SHIPPED, *deployment.recipes]))


def nightly_recipes(deployment: Deployment, project: Path) -> list[ResolvedRecipe]:
    """The recipes that a deployment runs at night; a broken one is left out (`broken_recipes`).

    All that starts by itself (schedule, sensor, backfill) starts from these, so what is left out here, such as
    continued pre-training, can only be started by a person.
    """
    return sound_and_broken(deployment, project)[0]


def broken_recipes(deployment: Deployment, project: Path) -> list[BrokenRecipe]:
    """The recipes of a deployment that cannot be used, each with what `ec1 recipe lint` says of it."""
    return sound_and_broken(deployment, project)[1]


def sound_and_broken(deployment: Deployment, project: Path) -> tuple[list[ResolvedRecipe], list[BrokenRecipe]]:
    """`nightly_recipes` and `broken_recipes`, with each file read once."""
    found, broken = survey(deployment.recipes, recipe_folders(deployment, project))
    return [each for each in found if each.recipe.nightly], broken


def recipe_marks(settings: Sequence[Path], folders: Sequence[Path]) -> dict[str, tuple[int, int]]:
    """Size and time of each file that says what a night is: as soon as one comes, changes or goes, they differ.

    `settings` are the deployment and the first night, `folders` those of recipes.
    """
    files = [*settings, *(path for folder in folders for path in folder.rglob("*.yaml"))]
    marks = {}
    for path in files:
        with contextlib.suppress(OSError):
            stat = path.stat()
            marks[str(path)] = (stat.st_size, stat.st_mtime_ns)
    return marks

"""A recipe that cannot be used, as an asset: its check fails with the message of lint, and nothing else fails."""

import re
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from ec1.night.steps.recipes import broken_recipes
from ec1.recipes.resolution import BrokenRecipe
from ec1_assets import checks
from resources.project import ProjectResource

GROUP = "broken_recipes"
CHECK = "recipe_lint"


def broken_recipe_assets(
    broken: Sequence[BrokenRecipe], nights: dg.DailyPartitionsDefinition
) -> list[dg.AssetsDefinition]:
    """One asset `broken_recipe/<name>` for each, one partition per night."""
    assets: dict[dg.AssetKey, dg.AssetsDefinition] = {}
    for each in broken:
        # A file may be called what no asset may, and two files may then be called the same.
        parts = [re.sub(r"[^A-Za-z0-9_]", "_", part) for part in Path(each.name).parts]
        key = dg.AssetKey(["broken_recipe", *parts])
        while key in assets:
            key = dg.AssetKey([*key.path[:-1], f"{key.path[-1]}_"])
        assets[key] = _asset(key, each, nights)
    return list(assets.values())


def _asset(key: dg.AssetKey, broken: BrokenRecipe, nights: dg.DailyPartitionsDefinition) -> dg.AssetsDefinition:
    """The recipe is read again when its turn comes."""

    @dg.asset(
        key=key,
        partitions_def=nights,
        group_name=GROUP,
        owners=["team:training"],
        kinds={"yaml"},
        description=f"{broken.path} cannot be used: {broken.problem}",
        check_specs=[checks.spec(CHECK, key, nights, "The recipe can be used.")],
    )
    def asset(context: dg.AssetExecutionContext, project: ProjectResource) -> dg.MaterializeResult:
        still = broken_recipes(project.deployment(), Path(project.project_root))
        problem = next((each.problem for each in still if each.path == broken.path), None)
        if problem:
            context.log.error(f"this recipe is left out: {problem}")
        return dg.MaterializeResult(
            metadata={"problem": problem or "none any more: it joins the next run", "path": str(broken.path)},
            check_results=[
                dg.AssetCheckResult(check_name=CHECK, asset_key=key, passed=problem is None, description=problem)
            ],
        )

    return asset

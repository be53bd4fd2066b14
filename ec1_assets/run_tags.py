"""Tags of a Dagster run, so that the UI's list of runs can be filtered by recipe, tenant and verdict.

Belongs here: their names. One night trains several recipes, so each tag's name carries the role that it speaks of.
"""

from ec1.recipes.resolution import ResolvedRecipe


def run_tags(resolved: ResolvedRecipe, verdict: str | None = None) -> dict[str, str]:
    """What a run did with one recipe: `ec1/recipe.<tenant>.<role>` and so on."""
    recipe = resolved.recipe
    whose = f"{recipe.tenant}.{recipe.role}"
    tags = {
        f"ec1/tenant.{recipe.tenant}": "true",
        f"ec1/recipe.{whose}": f"{recipe.name.replace('/', '.')}-v{recipe.version}-{resolved.digest[:12]}",
    }
    return tags if verdict is None else {**tags, f"ec1/verdict.{whose}": verdict}

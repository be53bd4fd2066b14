"""Checks recipe files: errors, and settings that are allowed but rarely intended."""

from collections.abc import Sequence
from pathlib import Path

from ec1.errors import InputError
from ec1.recipes.resolution import Finding, RecipeFile, ResolvedRecipe, read_file, recipe_files, resolve, shown


def lint(folders: Sequence[Path], search: Sequence[Path]) -> list[Finding]:
    """Check every recipe file below `folders` (folders or files), abstract ones as far as they go."""
    cache: dict[Path, RecipeFile] = {}
    findings: list[Finding] = []
    owners: dict[tuple[str, str], Path] = {}
    for path in recipe_files(folders):
        try:
            abstract = read_file(path, cache).values.get("abstract") is True
            resolved, problems = resolve(path, search, cache, placeholders=abstract)
        except InputError as error:
            findings.append(Finding("error", str(path), str(error).removeprefix(f"{path}: ")))
            continue
        findings.extend(problems)
        if resolved is None:
            continue
        findings.extend(_advice(resolved))
        key = (resolved.recipe.tenant, resolved.recipe.role)
        if not abstract and key in owners:
            findings.append(Finding("error", str(path), f"{'/'.join(key)} has a recipe already: {owners[key]}"))
        elif not abstract:
            owners[key] = path
    return findings


def _advice(resolved: ResolvedRecipe) -> list[Finding]:
    """What is allowed and yet rarely meant."""
    recipe, origins, found = resolved.recipe, resolved.origins, []

    def say(key: str, message: str) -> None:
        where = origins.get(key, "default")
        found.append(Finding("warning", shown(resolved.path) if where == "default" else where, f"{key}: {message}"))

    rate = recipe.optimisation.learning_rate
    if recipe.objective == "dpo" and rate > 5e-5:
        say("optimisation.learning_rate", f"{rate:g} is high for DPO, which usually takes 5e-7 to 5e-5")
    if recipe.objective == "sft" and recipe.method != "full" and rate < 1e-5:
        say("optimisation.learning_rate", f"{rate:g} is low for LoRA, which usually takes 1e-5 to 1e-3")
    if recipe.method == "full" and rate > 1e-4:
        say("optimisation.learning_rate", f"{rate:g} is high for training all weights, which usually takes up to 1e-4")
    if recipe.lora is not None and recipe.lora.alpha < recipe.lora.r:
        say(
            "lora.alpha",
            f"{recipe.lora.alpha:g} is less than the rank {recipe.lora.r}: the adapter's effect is scaled down",
        )
    if not recipe.nightly:
        key = "kind" if recipe.kind == "pretraining" else "method"
        say(key, f"{getattr(recipe, key)} gives no adapter that a night could publish: start it with `ec1 train`")
    if recipe.method != "qlora" and recipe.quantization is not None:
        say("quantization.type", f"has no effect with method {recipe.method}; set the section to null")
    for section in ("dpo", "orpo", "simpo"):
        if section != recipe.objective and getattr(recipe, section) is not None:
            say(f"{section}.beta", f"has no effect with objective {recipe.objective}; set the section to null")
    return found

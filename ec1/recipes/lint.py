"""Checks recipe files: errors, and settings that are allowed but rarely intended."""

import difflib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from ec1.corpus.pii import check_recognizers
from ec1.errors import InputError
from ec1.recipes.objectives import OBJECTIVES, SECTIONS
from ec1.recipes.resolution import (
    LintFinding,
    RecipeFile,
    ResolvedRecipe,
    read_file,
    recipe_files,
    resolve,
    shadows,
    shown,
)
from ec1.recipes.schema import Recipe
from ec1.recipes.sharing import refusal


def lint(
    folders: Sequence[Path],
    search: Sequence[Path],
    max_lora_rank: int | None = None,
    models: Collection[str] = (),
    *,
    processes: int = 1,
    fsdp: bool = False,
) -> list[LintFinding]:
    """Check every recipe file below `folders` (folders or files), abstract ones as far as they go.

    `max_lora_rank`: the largest rank that the deployment's engine serves; `models`: the ids of the models it names;
    `processes`, `fsdp`: how it shares a training.
    """
    cache: dict[Path, RecipeFile] = {}
    findings: list[LintFinding] = []
    meant: dict[LintFinding, list[str]] = {}
    owners: dict[tuple[str, str], Path] = {}
    mixing: list[ResolvedRecipe] = []
    for path in recipe_files(folders):
        try:
            abstract = read_file(path, cache).values.get("abstract") is True
            resolved, problems = resolve(path, search, cache, placeholders=abstract)
        except InputError as error:
            findings.append(LintFinding("error", str(path), str(error).removeprefix(f"{path}: ")))
            continue
        findings.extend(problems)
        if resolved is None:
            continue
        for each in (*_advice(resolved), *_served(resolved, max_lora_rank), *_perhaps_misspelt(resolved, models)):
            meant.setdefault(each, []).extend([] if abstract else [f"{resolved.recipe.tenant}/{resolved.recipe.role}"])
        if not abstract and (why := refusal(resolved.recipe, processes, fsdp)) is not None:
            findings.append(LintFinding("error", shown(path), why))
        if (why := _why_not_scrubbed(resolved.recipe)) is not None:
            findings.append(LintFinding("error", resolved.origins.get("data.recognizers", shown(path)), why))
        key = (resolved.recipe.tenant, resolved.recipe.role)
        if resolved.recipe.data.mix and not abstract:
            mixing.append(resolved)
        if abstract or resolved.recipe.kind == "experiment":
            # An experiment publishes nothing, so it stands beside the role's own recipe.
            continue
        if key not in owners or shadows(path, owners[key]):
            owners[key] = path
        elif not shadows(owners[key], path):
            findings.append(LintFinding("error", str(path), f"{'/'.join(key)} has a recipe already: {owners[key]}"))
    for recipe in mixing:
        known = [role for tenant, role in owners if tenant == recipe.recipe.tenant]
        findings.extend(_perhaps_misspelt_roles(recipe, known))
    return findings + [_once(finding, recipes) for finding, recipes in meant.items()]


def _once(finding: LintFinding, recipes: list[str]) -> LintFinding:
    """A line that several recipes inherit is said once, with their names."""
    if len(recipes) < 2:
        return finding
    return LintFinding(finding.level, finding.where, f"{finding.message} (in {', '.join(recipes)})")


def usual_rates(recipe: Recipe) -> tuple[float, float]:
    """The learning rates that a method and an objective usually take.

    LoRA's matrices start at nothing and need ten times the rate of full training or more: torchtune's LoRA-DPO takes
    5e-4, Axolotl's 1e-4 to 2e-4. At 5e-6, a few dozen steps move nothing.
    """
    objective = OBJECTIVES[recipe.objective]
    return objective.full_rates if recipe.method == "full" else objective.lora_rates


def _advice(resolved: ResolvedRecipe) -> list[LintFinding]:
    """What is allowed and yet rarely meant."""
    recipe, origins, found = resolved.recipe, resolved.origins, []

    def add(key: str, message: str) -> None:
        where = origins.get(key, "default")
        found.append(LintFinding("warning", shown(resolved.path) if where == "default" else where, f"{key}: {message}"))

    rate = recipe.optimisation.learning_rate
    low, high = usual_rates(recipe)
    if not low <= rate <= high:
        how = "training all weights" if recipe.method == "full" else "LoRA"
        what = OBJECTIVES[recipe.objective].learns
        far = "high" if rate > high else "low"
        add(
            "optimisation.learning_rate",
            f"{rate:g} is {far} for {how} on {what}, which usually takes {low:g} to {high:g}",
        )
    if recipe.lora is not None and recipe.lora.alpha < recipe.lora.r:
        add(
            "lora.alpha",
            f"{recipe.lora.alpha:g} is less than the rank {recipe.lora.r}: the adapter's effect is scaled down",
        )
    if not recipe.nightly and recipe.kind != "experiment":
        key = "kind" if recipe.kind == "pretraining" else "method"
        add(key, f"{getattr(recipe, key)} gives no adapter that a night could publish: start it with `ec1 train`")
    if recipe.method != "qlora" and recipe.quantization is not None:
        add("quantization.type", f"has no effect with method {recipe.method}; set the section to null")
    for section in SECTIONS:
        if section != OBJECTIVES[recipe.objective].section and getattr(recipe, section) is not None:
            first = next(iter(type(getattr(recipe, section)).model_fields))
            add(f"{section}.{first}", f"has no effect with objective {recipe.objective}; set the section to null")
    if (why := recipe.why_unchecked()) is not None:
        key, _, why = why.partition(": ")
        add(key.partition(" ")[0], f"{why}; it must work where trainings and evaluations run")
    return found


def _perhaps_misspelt(resolved: ResolvedRecipe, models: Collection[str]) -> list[LintFinding]:
    """A base model that is nearly one of the deployment's."""
    named = resolved.recipe.base_model.id
    near = [] if named in models else difflib.get_close_matches(named, sorted(models), n=1, cutoff=0.9)
    if not near:
        return []
    where = resolved.origins.get("base_model.id", "default")
    message = f"base_model.id: the deployment names no {named}; did you mean {near[0]}?"
    return [LintFinding("warning", shown(resolved.path) if where == "default" else where, message)]


def _perhaps_misspelt_roles(resolved: ResolvedRecipe, roles: Collection[str]) -> Iterator[LintFinding]:
    """Roles in `data.mix` that are nearly a recipe's. A role with rows and no recipe may be mixed in, too."""
    for role in resolved.recipe.data.mix:
        if role not in roles and (near := difflib.get_close_matches(role, sorted(roles), n=1, cutoff=0.8)):
            where = resolved.origins.get(f"data.mix.{role}", shown(resolved.path))
            yield LintFinding("warning", where, f"data.mix: no recipe has the role {role}; did you mean {near[0]}?")


def _why_not_scrubbed(recipe: Recipe) -> str | None:
    try:
        check_recognizers(recipe.data.recognizers)
    except InputError as error:
        return str(error)
    return None


def _served(resolved: ResolvedRecipe, max_lora_rank: int | None) -> list[LintFinding]:
    """Whether the engine can serve what the recipe trains."""
    recipe = resolved.recipe
    if max_lora_rank is None or recipe.lora is None or not recipe.nightly or recipe.lora.r <= max_lora_rank:
        return []
    where = resolved.origins.get("lora.r", "default")
    message = (
        f"lora.r: the engine serves ranks up to {max_lora_rank}, not {recipe.lora.r}: raise the deployment's "
        "inference.max_lora_rank"
    )
    return [LintFinding("warning", shown(resolved.path) if where == "default" else where, message)]

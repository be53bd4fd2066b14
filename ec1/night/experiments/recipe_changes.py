"""Which recipes changed since a revision of version control, and what each would have cost then and costs now.

Belongs here: the recipes of an earlier revision, the comparison, and its text for a pull request. Does not: submitting
what changed (`jobs/submit.py`).
"""

import contextlib
import datetime as dt
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from ec1.deployment import Deployment
from ec1.errors import EC1Error, InputError
from ec1.git import ENVIRONMENT, git_command, what_git_said
from ec1.home import Home
from ec1.night.operations.preview import RecipePlan
from ec1.night.steps.recipe_night import RecipeNight
from ec1.night.steps.recipes import recipe_folders
from ec1.nights import Night
from ec1.recipes.compare import KeyDifference, differences
from ec1.recipes.resolution import BrokenRecipe, ResolvedRecipe, survey

Key = tuple[str, str, str]


class ChangedValue(BaseModel):
    """One key of a recipe; None where a side does not have it."""

    key: str
    before: object
    after: object


class RecipeChange(BaseModel):
    """One recipe that is not what it was. A side that is not there, or is broken, has no plan."""

    recipe: str
    tenant: str
    role: str
    change: Literal["new", "changed", "removed", "broken"]
    problem: str | None = None
    """Why it is broken."""
    nightly: bool
    values: list[ChangedValue] = []
    before: RecipePlan | None = None
    after: RecipePlan | None = None


def changed_recipes(deployment: Deployment, project: Path, base: str) -> list[tuple[RecipeChange, "Sides"]]:
    """The deployment's recipes that differ from those of the git revision `base`, by tenant and role.

    A recipe differs if any of its resolved values does, so a changed base changes all that extend it. Raises
    InputError where there is no repository or no such revision.
    """
    with _earlier(deployment, project, base) as (folders, search):
        then, _ = survey(folders, search)
    now, broken = survey(deployment.recipes, recipe_folders(deployment, project))
    left, right = _by_key(then), _by_key(now)
    # Sorted out by its file's name: one that cannot be read has neither tenant nor role.
    names = {each.name: each for each in broken}
    found = []
    for key in sorted({*left, *right}):
        sides = Sides(left.get(key), right.get(key))
        if (change := _change(sides, names)) is not None:
            found.append((change, sides))
    known = {change.recipe for change, _ in found}
    for each in broken:
        if each.name not in known:
            found.append((_broken(each), Sides(None, None)))
    return found


class Sides:
    """A recipe as it was and as it is."""

    def __init__(self, before: ResolvedRecipe | None, after: ResolvedRecipe | None) -> None:
        self.before = before
        self.after = after


def plan_changes(
    deployment: Deployment, home: Home, project: Path, base: str, night: Night, now: dt.datetime
) -> list[RecipeChange]:
    """What changed, each with its plan before and after, on today's corpus, deployment and hardware."""
    planned = []
    for change, sides in changed_recipes(deployment, project, base):
        before, after = (
            None if each is None else _plan(RecipeNight(each, deployment, home, night), now)
            for each in (sides.before, sides.after)
        )
        planned.append(change.model_copy(update={"before": before, "after": after}))
    return planned


def as_markdown(base: str, changes: Sequence[RecipeChange]) -> str:
    """The text of a pull request's comment."""
    if not changes:
        return f"No recipe differs from `{base}`.\n"
    lines = [f"### Recipes that differ from `{base}`", ""]
    for each in changes:
        lines += [f"**{_text(each.recipe)}**: {each.change}" + ("" if each.nightly else " (no night runs it)"), ""]
        if each.problem is not None:
            lines += [f"> {_text(each.problem)}", ""]
        if each.change != "broken" and (each.before or each.after):
            lines += ["| | tokens | steps | time | memory | cost | tonight |", "|---|--:|--:|--:|--:|--:|---|"]
            lines += [_row(name, plan) for name, plan in (("before", each.before), ("after", each.after)) if plan]
            lines.append("")
        if each.values:
            lines += ["| key | before | after |", "|---|---|---|"]
            lines += [f"| `{value.key}` | {_value(value.before)} | {_value(value.after)} |" for value in each.values]
            lines.append("")
    return "\n".join(lines)


def _row(name: str, planned: RecipePlan) -> str:
    decision = f"{'train' if planned.train else 'skip'}: {planned.reason}"
    if planned.plan is None:
        return f"| {name} | | | | | | refused: {_text(planned.refused or planned.reason)} |"
    plan = planned.plan
    return (
        f"| {name} | {plan.tokens:,} | {plan.steps:,} | {plan.seconds:,.0f} s | {plan.peak_memory_gib:.1f} GiB | "
        f"{plan.cost:.2f} USD | {_text(decision)} |"
    )


def _value(value: object) -> str:
    return "" if value is None else f"`{_text(str(value)).replace('`', '')}`"


def _text(text: str) -> str:
    """One line that neither ends a table's cell nor becomes a tag."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _plan(step: RecipeNight, now: dt.datetime) -> RecipePlan:
    """Decision and plan, the plan also where tonight's decision is not to train. `refused` says what is against it."""
    try:
        snapshot = step.snapshot(now)
        decision = step.decision(snapshot)
        planned = RecipePlan(recipe=step.name, train=decision.train, reason=decision.reason)
    except EC1Error as error:
        return RecipePlan(recipe=step.name, train=False, reason="", refused=str(error))
    try:
        planned.plan = step.plan(step.dataset(snapshot))
    except EC1Error as error:
        planned.refused = str(error)
    return planned


def _by_key(found: Sequence[ResolvedRecipe]) -> dict[Key, ResolvedRecipe]:
    return {
        (each.recipe.tenant, each.recipe.role, each.recipe.name if each.recipe.kind == "experiment" else ""): each
        for each in found
    }


def _change(sides: Sides, broken: dict[str, BrokenRecipe]) -> RecipeChange | None:
    before, after = sides.before, sides.after
    one = after or before
    assert one is not None
    recipe = one.recipe
    change = RecipeChange(
        recipe=recipe.name, tenant=recipe.tenant, role=recipe.role, change="changed", nightly=recipe.nightly
    )
    if before is None:
        return change.model_copy(update={"change": "new"})
    if after is None:
        if (problem := broken.get(recipe.name)) is not None:
            return change.model_copy(update={"change": "broken", "problem": problem.problem})
        return change.model_copy(update={"change": "removed"})
    values = [_changed(each) for each in differences(before, after)]
    return change.model_copy(update={"values": values}) if values else None


def _changed(each: KeyDifference) -> ChangedValue:
    return ChangedValue(key=each.key, before=each.left, after=each.right)


def _broken(each: BrokenRecipe) -> RecipeChange:
    return RecipeChange(recipe=each.name, tenant="", role="", change="broken", problem=each.problem, nightly=False)


@contextlib.contextmanager
def _earlier(deployment: Deployment, project: Path, base: str) -> Iterator[tuple[list[Path], list[Path]]]:
    """The folders of recipes as they were at `base`: the deployment's own, and all in which names are looked up.

    What lies outside of the project's repository is not under its version control, and taken as it is.
    """
    top = Path(_git(project, "rev-parse", "--show-toplevel").decode().strip())
    revision = (
        _git(project, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}").decode().strip()
    )
    search = recipe_folders(deployment, project)
    inside = {
        folder: folder.resolve().relative_to(top.resolve())
        for folder in [*deployment.recipes, *search]
        if folder.resolve().is_relative_to(top.resolve())
    }
    with tempfile.TemporaryDirectory(prefix="ec1-recipes-") as name:
        for place in set(inside.values()):
            (Path(name) / place).mkdir(parents=True, exist_ok=True)
            if _git(top, "ls-tree", revision, "--", str(place)):
                # With an index of its own: the repository's stays what it is.
                there = {"GIT_WORK_TREE": name, "GIT_INDEX_FILE": f"{name}/.index"}
                _git(top, "checkout", "--quiet", revision, "--", str(place), there=there)

        def then(folder: Path) -> Path:
            return Path(name) / inside[folder] if folder in inside else folder

        yield [then(folder) for folder in deployment.recipes], [then(folder) for folder in search]


def _git(folder: Path, *arguments: str, there: Mapping[str, str] = {}) -> bytes:
    try:
        done = subprocess.run(git_command(folder, *arguments), capture_output=True, env={**ENVIRONMENT, **there})
    except OSError as error:
        raise InputError(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        unknown = "there is no such revision; name one that the repository has, such as origin/main"
        why = what_git_said(done.stderr) if done.stderr else unknown
        raise InputError(f"git {arguments[0]} in {folder}: {why}")
    return done.stdout

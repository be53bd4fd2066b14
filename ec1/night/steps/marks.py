"""What the log book says about a role's high-water mark: one that a disk damaged, or that an earlier release wrote.

Does not belong here: the mark itself (`ec1/corpus/threshold.py`).
"""

from ec1.corpus.threshold import HighWaterMark
from ec1.errors import DamagedError, EC1Error, InputError
from ec1.files import read_json
from ec1.home import Home
from ec1.night.records import OutcomeRecord, Records
from ec1.night.steps.log_book import TRAINING, runs
from ec1.recipes.resolution import ResolvedRecipe
from ec1.training.spec import RUN, spec_in


def marked_as(home: Home, resolved: ResolvedRecipe) -> str:
    """The digest under which the mark knows a recipe. A release that knew fewer keys gave the same one another digest.

    Raises DamagedError if the mark cannot be read.
    """
    recipe = resolved.recipe
    history = HighWaterMark(home, recipe.tenant, recipe.role).history()
    nights = {entry.get("recipe", ""): entry["night"] for entry in history}
    if resolved.digest not in nights:
        for digest, night in reversed(nights.items()):
            try:
                earlier = spec_in(read_json(home.run(recipe.tenant, recipe.role, night) / TRAINING / RUN))
            except (EC1Error, OSError, ValueError, KeyError):
                # Its run was cleaned up.
                continue
            if (earlier.recipe_digest, earlier.recipe) == (digest, recipe):
                return digest
    return resolved.digest


def mend_mark(home: Home, tenant: str, role: str) -> None:
    """Write a damaged mark again; a sound one stays as it is. What no record names any more counts as new tuples."""
    mark = HighWaterMark(home, tenant, role)
    try:
        mark.history()
    except DamagedError:
        recipes = {run.folder: run.spec.recipe_digest for run in runs(home)}
        history = []
        for night in sorted((home.runs / tenant / role).glob("*")):
            try:
                settled = Records(night).all(OutcomeRecord)
            except InputError:
                continue
            digest = next((recipe for folder, recipe in recipes.items() if folder.is_relative_to(night)), "")
            history += [
                {"digest": each.snapshot, "night": night.name, "run": each.run, "recipe": digest} for each in settled
            ]
        mark.rewrite(history)

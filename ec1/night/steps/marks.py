"""A role's high-water mark that a disk damaged, written again from what its nights left in the log book.

Does not belong here: the mark itself (`ec1/corpus/threshold.py`).
"""

from ec1.corpus.threshold import HighWaterMark
from ec1.errors import DamagedError, InputError
from ec1.home import Home
from ec1.night.records import OutcomeRecord, Records
from ec1.night.steps.log_book import runs


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

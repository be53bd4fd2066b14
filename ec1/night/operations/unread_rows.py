"""What lies in the corpus and no recipe of the deployment reads, as sentences with the command that mends it.

Belongs here: which roles are read, and the words. Does not: looking through the corpus (`ec1.corpus.unread`).
"""

from pathlib import Path

from ec1.corpus.unread import unread_rows
from ec1.deployment import Deployment
from ec1.documents.unread import by_suffix
from ec1.home import Home
from ec1.night.steps.recipes import recipe_folders
from ec1.plural import counted
from ec1.recipes.resolution import survey


def unread_notes(deployment: Deployment, home: Home, project: Path) -> list[str]:
    """One sentence per role without a recipe, and one about files that are not rows; none if all is read."""
    corpus = deployment.corpus_root(home)
    found, _ = survey(deployment.recipes, recipe_folders(deployment, project))
    read = {each.recipe.role for each in found if each.recipe.tenant == deployment.tenant}
    read |= {role for each in found for role in each.recipe.data.mix}
    unread = unread_rows(corpus, read)
    notes = []
    for role, files in sorted(unread.files.items()):
        many = counted(files, "file")
        many = f"{counted(unread.rows[role], 'row')} in {many}" if unread.complete else many
        notes.append(f"no recipe of {deployment.tenant} reads {role} ({many}): ec1 recipe new --role {role}")
    if unread.others:
        notes.append(
            f"{by_suffix(unread.others)} in {corpus} that no bucket takes: rows are .jsonl in the folder of a role; "
            "`ec1 corpus import` brings other formats"
        )
    return notes

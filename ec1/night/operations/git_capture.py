"""Capturing a repository for a deployment: tuples as long as the recipe's base model reads them.

Belongs here: which model counts, and where tuples go. Does not: how a commit becomes tuples (`ec1.corpus.from_git`).
"""

import logging
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ec1.corpus.from_git import GitCapture, Tokens, capture, estimated_tokens
from ec1.corpus.options import DataOptions
from ec1.corpus.preview import row_tokens
from ec1.corpus.tombstones import Tombstones
from ec1.deployment import Deployment
from ec1.errors import EC1Error, RejectedError
from ec1.home import Home
from ec1.models import prepare_tokenizer
from ec1.night.operations.new_recipe import OF_A_COMMIT, base_model
from ec1.recipes.resolution import ResolvedRecipe

log = logging.getLogger(__name__)

ROLE = "engineering"


def capture_repository(
    deployment: Deployment,
    home: Home,
    recipes: Iterable[ResolvedRecipe],
    repo: Path,
    *,
    since: str | None = None,
    until: str | None = None,
    cluster: str | None = None,
    tenant: str | None = None,
    max_tokens: int | None = None,
) -> GitCapture:
    """Write a repository's tuples into the corpus, each within `max_tokens`: by default the `max_length` of the
    tenant's engineering recipe, whose base model counts. Raises as `capture`."""
    owner = tenant or deployment.tenant
    reading = [each.recipe for each in recipes if (each.recipe.tenant, each.recipe.role) == (owner, ROLE)]
    if reading:
        base, data = reading[0].base_model, reading[0].data
        (model, revision), most = (base.id, base.revision), data.max_length
    else:
        data, most = DataOptions(), OF_A_COMMIT[deployment.gpu.device]
        model, revision = base_model(deployment)
    slug = re.sub(r"[^a-z0-9]+", "-", repo.resolve().name.removesuffix(".git").lower()).strip("-")
    return capture(
        repo,
        since,
        until,
        cluster or f"project-{slug}"[:64],
        owner,
        deployment.corpus_root(home) / ROLE,
        max_tokens=max_tokens or most,
        tokens=_counter(deployment, home, model, revision, data),
        is_removed=Tombstones(home).refuses_commit,
    )


def _counter(deployment: Deployment, home: Home, model: str, revision: str, data: DataOptions) -> Tokens:
    from transformers import AutoTokenizer

    try:
        folder = prepare_tokenizer(model, revision, deployment.models, home.models)
    except EC1Error as error:
        log.warning("tokens are estimated: %s", error)
        return estimated_tokens
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    def count(record: Mapping[str, Any]) -> int:
        try:
            return row_tokens(tokenizer, record, "sft", data)
        except RejectedError:
            # No row of a dataset either, which says why.
            return estimated_tokens(record)

    return count

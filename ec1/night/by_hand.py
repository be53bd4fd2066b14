"""A training that a person starts: one recipe, planned, its cost confirmed, trained. No gate, nothing is published.

Belongs here: what stands between a recipe's name and its training when no night is involved. Does not: asking the
person (`ec1.commands.train`).
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ec1.corpus.buckets import bucket
from ec1.corpus.snapshots import take_snapshot
from ec1.deployment import Deployment
from ec1.gpu.lease import GpuLease
from ec1.home import Home
from ec1.night import training as nightly
from ec1.night.log_book import BY_HAND
from ec1.recipes.resolution import ResolvedRecipe
from ec1.training.plan import Plan
from ec1.training.spec import TrainingResult, TrainingSpec


@dataclass(frozen=True)
class Prepared:
    """A training that is ready to start, and what it will take."""

    plan: Plan
    spec: TrainingSpec


def prepare(
    resolved: ResolvedRecipe, deployment: Deployment, home: Home, now: dt.datetime, budget_seconds: float
) -> Prepared:
    """Take a snapshot of the recipe's bucket, make its dataset and plan. Starts nothing.

    Raises PermanentError for what cannot fit the machine or the budget.
    """
    from ec1.night.stores import open_registry

    recipe = resolved.recipe
    deployment = deployment.model_copy(
        update={"budgets": deployment.budgets.model_copy(update={"training_seconds": budget_seconds})}
    )
    source = bucket(deployment.corpus_root(home), recipe.role, recipe.tenant)
    snapshot = take_snapshot(source, recipe.rows, as_of=now, home=home)
    model = nightly.base_model(recipe, deployment, home)
    dataset = nightly.dataset_of(recipe, snapshot, model, deployment, home)
    plan = nightly.plan_of(recipe, dataset, deployment, model)
    night = deployment.current_night(now).date
    spec = nightly.spec_of(resolved, dataset, deployment, home, night, open_registry(deployment, home))
    output = home.run(recipe.tenant, recipe.role, night) / BY_HAND
    return Prepared(plan, spec.model_copy(update={"output": output}))


def run_by_hand(
    spec: TrainingSpec, deployment: Deployment, home: Home, env: Mapping[str, str], log: Path, holder: str
) -> TrainingResult:
    """Train as specified, in a process of its own under the GPU lease. Raises BusyError if the GPU stays taken."""
    lease = GpuLease(deployment.gpu_lock(home), device=deployment.gpu.device, min_free_gib=deployment.gpu.min_free_gib)
    night = deployment.current_night(dt.datetime.now(dt.UTC)).date
    wait = deployment.budgets.lease_wait_seconds
    with lease.hold("training", night=night, holder=holder, wait_seconds=wait) as grant:
        return nightly.launch(spec, grant, env, log)

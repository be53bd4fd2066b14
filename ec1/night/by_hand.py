"""A training that is started manually: one recipe, planned, its cost confirmed, trained. No gate, nothing is published.

Belongs here: what stands between a recipe's name and its training when no night is involved. Does not: asking the
person (`ec1.commands.train`).
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ec1.deployment import Deployment
from ec1.gpu.lease import GpuLease
from ec1.home import Home
from ec1.launch.launcher import open_launcher
from ec1.night.candidate import run_training
from ec1.night.log_book import BY_HAND
from ec1.night.recipe_night import RecipeNight
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
    step = RecipeNight(resolved, deployment, home, deployment.current_night(now))
    dataset = step.dataset(step.snapshot(now))
    plan = step.plan(dataset, budget_seconds)
    return Prepared(plan, step.spec(dataset, step.folder / BY_HAND, budget_seconds))


def run_by_hand(
    spec: TrainingSpec, deployment: Deployment, home: Home, env: Mapping[str, str], log: Path, holder: str
) -> TrainingResult:
    """Train as specified, where the deployment says. Raises BusyError if the GPU stays taken."""
    lease = GpuLease(deployment.gpu_lock(home), device=deployment.gpu.device, min_free_gib=deployment.gpu.min_free_gib)
    night = deployment.current_night(dt.datetime.now(dt.UTC)).date
    wait = deployment.budgets.lease_wait_seconds
    launcher = open_launcher(
        deployment.launcher, lambda: lease.hold("training", night=night, holder=holder, wait_seconds=wait)
    )
    return run_training(spec, launcher, env, log)

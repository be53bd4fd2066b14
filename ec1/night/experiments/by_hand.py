"""A training that is started manually: one recipe, planned, its cost confirmed, trained, and evaluated if wanted.

Nothing is published: the log book is all that it fills. Belongs here: what stands between a recipe's name and its
training when no night is involved. Does not: asking the person (`ec1.commands.train`), many trainings (`sweep.py`).
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ec1.corpus.dataset import Dataset
from ec1.corpus.inner_split import inner_split
from ec1.corpus.row_kinds import TEXTS
from ec1.deployment import Deployment
from ec1.errors import InputError, PermanentError
from ec1.home import Home
from ec1.launch.launcher import Launcher, Subject
from ec1.night.launchers import open_launcher
from ec1.night.records import EvaluationRecord, Records
from ec1.night.steps.candidate import (
    BY_HAND,
    EVALUATION_FOLDER,
    CandidateVerdict,
    TrainedCandidate,
    judged_in,
    run_evaluation,
    run_training,
    tell_trackers,
)
from ec1.night.steps.recipe_night import RecipeNight
from ec1.recipes.objectives import OBJECTIVES
from ec1.recipes.resolution import ResolvedRecipe
from ec1.training.plan import TrainingPlan
from ec1.training.spec import ADAPTER, TrainingResult, TrainingSpec, finished


@dataclass(frozen=True)
class Prepared:
    """A training that is ready to start, and what it will take."""

    step: RecipeNight
    dataset: Dataset
    plan: TrainingPlan
    spec: TrainingSpec

    @property
    def evaluation(self) -> Path:
        return self.spec.output / EVALUATION_FOLDER

    def judged(self) -> CandidateVerdict | None:
        """What an evaluation of this same training has left, or None if there is none yet."""
        if finished(self.spec) is None or Records(self.spec.output).find(EvaluationRecord) is None:
            return None
        return judged_in(self.evaluation, self.step.recipe.evaluation)


def prepare(
    resolved: ResolvedRecipe,
    deployment: Deployment,
    home: Home,
    now: dt.datetime,
    budget_seconds: float,
    seed: int | None = None,
    *,
    inner: bool = False,
) -> Prepared:
    """Take a snapshot of the recipe's bucket, make its dataset and plan. Starts nothing. `inner`: train on a part of
    the training side, and evaluate on the rest of it; what the gate holds out is not looked at.

    The same recipe, dataset and seed have the same folder, also on a later day, so what was interrupted goes on there.
    Raises PermanentError for what cannot fit the machine or the budget.
    """
    step = RecipeNight(resolved, deployment, home, deployment.current_night(now))
    dataset = step.dataset(step.snapshot(now))
    if inner:
        dataset = inner_split(dataset, resolved.recipe.data.heldout_share, home=home)
    plan = step.plan(dataset, budget_seconds)
    spec = step.spec(dataset, budget_seconds=budget_seconds, seed=seed)
    name = spec.identity[:12]
    earlier = sorted(step.folder.parent.glob(f"*/{BY_HAND}/{name}"))
    return Prepared(
        step,
        dataset,
        plan,
        spec.model_copy(update={"output": earlier[-1] if earlier else step.folder / BY_HAND / name}),
    )


def run_by_hand(
    spec: TrainingSpec, deployment: Deployment, home: Home, env: Mapping[str, str], log: Path, holder: str
) -> TrainingResult:
    """Train as specified, where the deployment says. Raises BusyError if the GPU stays taken."""
    night = deployment.current_night(dt.datetime.now(dt.UTC)).date
    subject = Subject(spec.recipe.tenant, spec.recipe.role, night)
    return run_training(spec, subject, launcher_by_hand("training", deployment, home, holder), env, log)


def evaluate_by_hand(prepared: Prepared, env: Mapping[str, str], log: Path, holder: str) -> CandidateVerdict:
    """Score what was trained as a night would, and let the gate judge; the verdict has no consequence.

    Each candidate that is evaluated counts as a look at the held-out examples.
    Raises InputError for a training that left no adapter.
    """
    return score_by_hand(prepared.step, prepared.dataset, prepared.spec, env, log, holder)


def score_by_hand(
    step: RecipeNight, dataset: Dataset, spec: TrainingSpec, env: Mapping[str, str], log: Path, holder: str
) -> CandidateVerdict:
    """As `evaluate_by_hand`, of a training that was not prepared here."""
    result, output = finished(spec), spec.output / EVALUATION_FOLDER
    if result is None or result.weights != ADAPTER:
        how = "has not finished" if result is None else f"ended as {result.status} and left no adapter"
        raise InputError(f"{spec.output} cannot be evaluated: its training {how}")
    candidate = TrainedCandidate(spec.output, result)
    if problems := candidate.problems():
        raise PermanentError(f"{spec.output} cannot be evaluated: {'; '.join(problems)}")
    evaluation = step.evaluation_spec(dataset, candidate.adapter, output, candidate.trained(step.recipe))
    launcher = launcher_by_hand("evaluation", step.deployment, step.home, holder)
    run_evaluation(evaluation, step.subject, launcher, env, log)
    judged = judged_in(output, step.recipe.evaluation)
    Records(spec.output).write(BY_HAND, judged.record())
    tell_trackers(spec, judged, env)
    return judged


def check_evaluable(resolved: ResolvedRecipe) -> None:
    """Raises InputError for a recipe whose result cannot be held against the base."""
    if resolved.recipe.method == "full":
        raise InputError(f"recipe {resolved.recipe.name} trains all weights: only adapters are evaluated")
    if OBJECTIVES[resolved.recipe.objective].rows is TEXTS:
        raise InputError(f"recipe {resolved.recipe.name} learns texts: there are no answers to evaluate")


def launcher_by_hand(
    phase: Literal["training", "evaluation"], deployment: Deployment, home: Home, holder: str
) -> Launcher:
    """A launcher for what a person starts: it takes the lease as a night does."""
    if deployment.machine is not None:
        raise InputError("a machine that is booted for nights trains in nights only: choose another deployment")
    lease = deployment.gpu_lease(home, processes=deployment.gpu.processes)
    night = deployment.current_night(dt.datetime.now(dt.UTC)).date
    wait = deployment.budgets.lease_wait_seconds
    return open_launcher(deployment, home, lambda: lease.hold(phase, night=night, holder=holder, wait_seconds=wait))

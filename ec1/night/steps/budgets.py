"""How long each phase of a night may work. The clock of a phase starts when its machine is ready.

Belongs here: the bounds that follow from settings, from what the run has used, and from what a booted machine may still
run. Does not: how a phase keeps to them (`ec1.extraction.reading.loop`, `ec1.training.monitor`).
"""

from ec1.errors import DeferredError, SkippedError
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.home import Home
from ec1.night.records import CandidateRecord, PostponedRecord, Records
from ec1.night_settings import BudgetSettings
from ec1.training.plan import TrainingPlan


def extraction_seconds(budgets: BudgetSettings, machine_left: float | None = None) -> float:
    """Phase 1's budget. `machine_left`: seconds that a booted machine may still run; None: no bound."""
    floor = budgets.training_floor_seconds
    bounds = [budgets.extraction_seconds]
    bounds += [bound - floor for bound in (budgets.night_seconds, machine_left) if bound is not None]
    return max(0.0, min(bounds))


def training_seconds(
    budgets: BudgetSettings, home: Home, night: str, run: str, machine_left: float | None = None
) -> float:
    """One training's budget: its own, and what is left of the run's."""
    bounds = [budgets.training_seconds]
    if budgets.night_seconds is not None:
        bounds.append(budgets.night_seconds - worked(home, night, run))
    if machine_left is not None:
        bounds.append(machine_left)
    return max(0.0, min(bounds))


def too_late(plan: TrainingPlan, left: float, budgets: BudgetSettings) -> PostponedRecord | None:
    """That a training no longer fits into what is left; None if it does. Begun it would end in the middle, and a later
    night has room for it: the plan was held against the whole budget."""
    if plan.seconds <= left or left >= budgets.training_seconds:
        return None
    return PostponedRecord(
        needs_seconds=round(plan.seconds, 1),
        left_seconds=round(left, 1),
        reason=f"the night ran out: the training needs about {plan.seconds:.0f} s, {left:.0f} s are left; it waits for "
        "a later night",
    )


def no_machine(error: DeferredError, plan: TrainingPlan, left: float) -> PostponedRecord:
    """That a training, or the evaluation after it, has no machine tonight, or lost it."""
    return PostponedRecord(
        needs_seconds=round(plan.seconds, 1),
        left_seconds=round(left, 1),
        reason=f"{error}; the training waits for a later night",
        switched_off=isinstance(error, SkippedError),
    )


def worked(home: Home, night: str, run: str) -> float:
    """Seconds that a run's extraction and trainings took so far."""
    extracted = Records(home.night(night)).find(ExtractionRecord, run)
    seconds = extracted.seconds if extracted is not None else 0.0
    for folder in home.runs.glob(f"*/*/{night}"):
        trained = Records(folder).find(CandidateRecord, run)
        seconds += trained.result.seconds if trained is not None else 0.0
    return seconds

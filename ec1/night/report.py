"""The report of a night: what `ec1 night` prints at its end, put together from the records that the steps wrote."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from ec1.adapters.gate import VerdictName
from ec1.home import Home
from ec1.night.failure import Failure, find_failure
from ec1.night.records import DecisionRecord, ExtractionRecord, GraphRecord, OutcomeRecord, Records
from ec1.recipes.resolution import BrokenRecipe

Outcome = VerdictName | Literal["skipped", "unfinished", "broken"]


class Work(BaseModel):
    """What a run did, or all runs of a night together. None: not reached."""

    documents_read: int | None = None
    documents_rejected: int | None = None
    documents_vanished: int | None = None
    llm_calls: int | None = None
    entities_found: dict[str, int] | None = None


class RecipeReport(BaseModel):
    """What one recipe came to on this night, whichever of its runs did it."""

    recipe: str
    outcome: Outcome
    detail: str
    version: int | None = None
    path: str | None = None
    run: str | None = None
    """The run that settled or decided it."""


class NightReport(BaseModel):
    """One night. `done` is the total of its runs, `this_run` the last one; the rest describes how things stand now."""

    night: str
    run: str
    runs: int = 0
    """How many runs wrote records of phase 1."""
    done: Work = Work()
    this_run: Work = Work()
    documents_deferred: int | None = None
    deferred_because: str | None = None
    """Why work was deferred: what stopped the extraction, or what most documents' problems have in common."""
    graph_entities: int | None = None
    recipes: list[RecipeReport] = []
    failure: Failure | None = None
    """Why this run failed."""

    @property
    def partial(self) -> bool:
        """True if work was deferred to a later night, or a recipe could not be used."""
        return bool(self.documents_deferred) or any(each.outcome == "broken" for each in self.recipes)


def night_report(
    home: Home, night: str, run: str, recipes: Sequence[tuple[str, str]], broken: Sequence[BrokenRecipe] = ()
) -> NightReport:
    """Put the report of a night together after the run `run`; `recipes` are (tenant, role) pairs."""
    records = Records(home.night(night))
    applied = records.total(GraphRecord)
    report = NightReport(
        night=night,
        run=run,
        runs=len({record.run for kind in (ExtractionRecord, GraphRecord) for record in records.all(kind)}),
        done=_work(records.total(ExtractionRecord), applied),
        this_run=_work(records.find(ExtractionRecord, run), records.find(GraphRecord, run)),
    )
    if applied is not None:
        report.documents_deferred = applied.deferred + applied.missing
        report.graph_entities = applied.entities_after
    if report.documents_deferred:
        report.deferred_because = _why(records.find(ExtractionRecord, run))
    report.failure = find_failure(home, night, run)
    for tenant, role in recipes:
        report.recipes.append(_recipe_report(Records(home.run(tenant, role, night)), f"{tenant}/{role}", run))
    report.recipes += [RecipeReport(recipe=each.name, outcome="broken", detail=each.problem) for each in broken]
    return report


def _why(extraction: ExtractionRecord | None) -> str | None:
    if extraction is None:
        return None
    if extraction.stopped:
        return extraction.stopped
    reasons = Counter(row["reason"] for row in extraction.problems if "reason" in row)
    return reasons.most_common(1)[0][0] if reasons else None


def _work(extraction: ExtractionRecord | None, applied: GraphRecord | None) -> Work:
    work = Work()
    if extraction is not None:
        work.llm_calls, work.entities_found = extraction.llm_calls, extraction.entities
    if applied is not None:
        work.documents_read = applied.applied
        work.documents_rejected = applied.rejected
        work.documents_vanished = applied.vanished
    return work


def _recipe_report(records: Records, name: str, run: str) -> RecipeReport:
    """The night's outcome if it has one; else what the run `run` decided, or that it did not get this far."""
    decided = records.find(DecisionRecord, run)
    decision = decided.decision if decided is not None else None
    outcome = records.find(OutcomeRecord)
    training_again = decision is not None and decision.train and outcome is not None and outcome.run != run
    if outcome is not None and not training_again:
        return RecipeReport(
            recipe=name,
            outcome=outcome.verdict,
            detail=outcome.detail if outcome.run == run else f"{outcome.detail} (in an earlier run of this night)",
            version=outcome.version,
            path=str(outcome.path),
            run=outcome.run,
        )
    if decision is None:
        return RecipeReport(recipe=name, outcome="unfinished", detail="not reached")
    if not decision.train:
        return RecipeReport(recipe=name, outcome="skipped", detail=decision.reason, run=run)
    return RecipeReport(recipe=name, outcome="unfinished", detail="training or evaluation did not finish", run=run)

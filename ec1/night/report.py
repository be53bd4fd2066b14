"""The report of a night: what `ec1 night` prints at its end, put together from the records that the steps wrote."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ec1.errors import InputError
from ec1.home import Home
from ec1.night.records import Records


class RecipeReport(BaseModel):
    """What one recipe came to. `outcome` is accepted, review, rejected, skipped or unfinished."""

    recipe: str
    outcome: str
    detail: str
    version: int | None = None
    path: str | None = None


class NightReport(BaseModel):
    """One run of one night. Counts are of this run only; `graph_*` describe the graph as it is now."""

    night: str
    run: str
    documents_read: int = 0
    documents_deferred: int = 0
    documents_rejected: int = 0
    documents_vanished: int = 0
    llm_calls: int = 0
    entities_found: dict[str, int] = {}
    graph_entities: int = 0
    recipes: list[RecipeReport] = []

    @property
    def partial(self) -> bool:
        """True if work was deferred to a later night."""
        return self.documents_deferred > 0


def night_report(home: Home, night: str, run: str, recipes: Sequence[tuple[str, str]]) -> NightReport:
    """Put the report of one run together; `recipes` are (tenant, role) pairs."""
    records = Records(home.night(night))
    report = NightReport(night=night, run=run)
    if extraction := records.find("extraction", run):
        report.llm_calls = extraction["llm_calls"]
        report.entities_found = extraction["entities"]
    if applied := records.find("graph_mutations", run):
        report.documents_read = applied["applied"]
        report.documents_deferred = applied["deferred"] + applied["missing"]
        report.documents_rejected = applied["rejected"]
        report.documents_vanished = applied["vanished"]
        report.graph_entities = applied["entities_after"]
    for tenant, role in recipes:
        report.recipes.append(_recipe_report(Records(home.run(tenant, role, night)), f"{tenant}/{role}", run))
    return report


def _recipe_report(records: Records, name: str, run: str) -> RecipeReport:
    if outcome := records.find("adapter", run):
        return RecipeReport(
            recipe=name,
            outcome=outcome["verdict"],
            detail=outcome["detail"],
            version=outcome["version"],
            path=outcome["path"],
        )
    decision = records.find("threshold_check", run)
    if decision is None:
        return RecipeReport(recipe=name, outcome="unfinished", detail="the night did not get this far")
    if not decision["train"]:
        return RecipeReport(recipe=name, outcome="skipped", detail=decision["reason"])
    return RecipeReport(recipe=name, outcome="unfinished", detail="training or evaluation did not finish")


def latest_failure(home: Home, night: str, run: str) -> dict[str, Any] | None:
    """The failure record of a run, if the night wrote one."""
    path = Path(home.night(night)) / f"failure-{run[:8]}.json"
    try:
        record: dict[str, Any] = Records(path.parent).read(path.stem)
    except InputError:
        return None
    return record

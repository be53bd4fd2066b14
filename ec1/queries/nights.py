"""What faces ask of nights and trainings: one night's report, a range of nights, the log book.

Belongs here: which of them, and what a list says of each. Does not: putting a report together
(`ec1.night.report.summary`), reading run folders (`ec1.night.steps.log_book`).
"""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from ec1.errors import InputError
from ec1.home import Home
from ec1.night.report import text
from ec1.night.report.summary import NightReport, night_report, nights_since
from ec1.night.report.totals import Totals, totals_of
from ec1.night.steps.log_book import Run, find_run
from ec1.night.steps.log_book import runs as all_runs
from ec1.queries.page import Page, page_of
from ec1.training.provenance import LOCK
from ec1.training.spec import TrainingResult, TrainingSpec


@dataclass(frozen=True)
class Nights:
    """The reports of a range of nights, the oldest first, and what they came to per tenant."""

    nights: tuple[NightReport, ...]
    tenants: dict[str, Totals]


@dataclass(frozen=True)
class RunSummary:
    """One line of the log book. `loss_first` and `loss_last` are means of the first and last steps."""

    run: str
    started: str | None
    status: str
    verdict: str | None
    adapter: str | None
    tenant: str
    role: str
    recipe: str
    recipe_version: int
    recipe_digest: str
    dataset_digest: str
    seed: int
    git_commit: str | None
    git_dirty: bool | None
    steps: int | None
    loss_first: float | None
    loss_last: float | None
    gain: float | None
    """Over the base, of the evaluation; None if there was none."""


@dataclass(frozen=True)
class RunDetails(RunSummary):
    """All that is known of one training; `package_lock` is a file."""

    spec: TrainingSpec
    provenance: dict[str, Any]
    package_lock: str
    result: TrainingResult | None


def report_of(home: Home, night: str | None = None) -> NightReport:
    """The report of a night (YYYY-MM-DD), by default of the last one. Raises InputError if it has not run."""
    if night is None:
        nights = nights_since(home, dt.date.min)
        if not nights:
            raise InputError(f"no night has run in {home.root}: `ec1 night` runs one")
        night = nights[-1]
    day_of(night)
    return night_report(home, night)


def nights_page(home: Home, limit: int, cursor: str | None = None) -> Page[NightReport]:
    """The nights, the newest first; only the records of the page are read."""
    page = page_of(nights_since(home, dt.date.min)[::-1], limit, cursor)
    return Page(tuple(_report_or_nothing(home, night) for night in page.items), page.next)


def reports_since(home: Home, since: str, tenant: str) -> Nights:
    """All nights from a day (YYYY-MM-DD) on; phase 1 counts for `tenant`. Raises InputError for another text."""
    found = [_report_or_nothing(home, night) for night in nights_since(home, day_of(since))]
    return Nights(tuple(found), totals_of(found, tenant))


def _report_or_nothing(home: Home, night: str) -> NightReport:
    try:
        return night_report(home, night)
    except InputError:
        # A night that was begun and left nothing, such as one that was interrupted while it listed documents.
        return NightReport(night=night, run="")


def report_rows(report: NightReport) -> list[tuple[str, str]]:
    """A report in rows of (name, text): what came of it, and the time, memory and cost that it took."""
    return [*text.summary(report), *text.machine(report)]


def day_of(night: str) -> dt.date:
    """The day of a night's name. Raises InputError."""
    try:
        return dt.date.fromisoformat(night)
    except ValueError:
        raise InputError(f"{night!r} is not a night: use a date such as 2026-06-01") from None


def runs(
    home: Home,
    recipe: str | None = None,
    tenant: str | None = None,
    verdict: str | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[RunSummary]:
    """The log book by name, or those runs of one recipe, tenant or verdict."""
    wanted = [(key, value) for key, value in (("recipe", recipe), ("tenant", tenant), ("verdict", verdict)) if value]
    found = [RunSummary(**_summary(run)) for run in all_runs(home)]
    return page_of([run for run in found if all(getattr(run, key) == value for key, value in wanted)], limit, cursor)


def run_details(home: Home, name: str) -> RunDetails:
    """One training. Raises InputError if there is none of that name."""
    run = find_run(home, name)
    return RunDetails(
        **_summary(run),
        spec=run.spec,
        provenance=run.provenance,
        package_lock=str(run.folder / LOCK),
        result=run.result,
    )


def _summary(run: Run) -> dict[str, Any]:
    recipe, result, git = run.spec.recipe, run.result, run.provenance.get("git") or {}
    return {
        "run": run.name,
        "started": run.started,
        "status": run.status,
        "verdict": run.verdict,
        "adapter": run.adapter,
        "tenant": recipe.tenant,
        "role": recipe.role,
        "recipe": recipe.name,
        "recipe_version": recipe.version,
        "recipe_digest": run.spec.recipe_digest,
        "dataset_digest": run.spec.dataset_digest,
        "seed": run.spec.effective_seed,
        "git_commit": git.get("commit"),
        "git_dirty": git.get("dirty"),
        "steps": result.steps if result else None,
        "loss_first": result.loss_first if result else None,
        "loss_last": result.loss_last if result else None,
        "gain": run.gain,
    }

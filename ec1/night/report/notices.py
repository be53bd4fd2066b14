"""Which notices a night gives rise to: failure, partial night, quarantine, new version, recovery, and no night at
all; and the end of a trial while serving.

Belongs here: the choice and the words. Does not: how they reach anybody (`outgoing.py`).
"""

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.home import Home
from ec1.night.health.preflight import why_not
from ec1.night.health.starting import why_unstarted
from ec1.night.report.first import first_night
from ec1.night.report.outgoing import Notice, State, deliver, ping, remembered
from ec1.night.report.summary import ACK, NightReport, is_done, night_report
from ec1.night.report.text import headline, summary
from ec1.night_settings import NotifyEvent
from ec1.plural import counted

FAILED = ("failed", "did not begin")
"""How a night ends that somebody has to mend."""


def tell(report: NightReport, deployment: Deployment, home: Home, environment: Mapping[str, str]) -> None:
    """Tell what a night came to, each thing once however often it is run, and ping. Raises OSError."""
    settings = deployment.notify
    if not settings.urls and settings.ping_url is None:
        return
    with remembered(home) as state:
        deliver(home, state, notices_of(report, state), settings, environment)
        if settings.ping_url is not None and (report.succeeded or report.status in FAILED):
            state.ping_problem = ping(settings.ping_url, environment, succeeded=report.succeeded)


def notices_of(report: NightReport, state: State) -> list[Notice]:
    """The notices of a night as it stands. Marks in `state` that a failure was told, or made good."""
    night, found = report.night, []
    if report.succeeded and state.failing is not None and night >= state.failing:
        for event in ("failure", "missing"):
            # It may fail again, and that would be news.
            state.told.pop(f"{state.failing} {event}", None)
        state.told.pop(f"{night} recovery", None)
        found.append(
            _notice(report, "recovery", "", f"EC1: night {night} is done after the trouble of {state.failing}")
        )
        state.failing = None
    if report.status in FAILED:
        found.append(_notice(report, "failure", "", f"EC1: night {night} {report.status}"))
        state.failing = max(night, state.failing or night)
    if report.status == "interrupted":
        found.append(_notice(report, "interrupted", report.run[:8], f"EC1: night {night} was interrupted"))
    if report.status == "partial":
        found.append(_notice(report, "partial", "", f"EC1: night {night} left work for a later night"))
    if news := [each for each in report.storage if each.news not in state.told]:
        state.told |= dict.fromkeys((each.news for each in news), dt.datetime.now(dt.UTC))
        title = f"EC1: the disk damaged {counted(len(news), 'thing')}"
        body = "\n".join([*(each.what for each in news), f"Look, then: {ACK}"])
        found.append(_notice(report, "storage", news[-1].news, title, body))
    for each in report.recipes:
        if each.outcome == "accepted":
            title = f"EC1: {each.recipe}@v{each.version} is new"
            found.append(_notice(report, "version", f"{each.recipe}@v{each.version}", title, each.detail))
        elif each.outcome in ("rejected", "review", "no_effect"):
            title = f"EC1: {each.recipe} of night {night} is in quarantine ({each.outcome})"
            found.append(_notice(report, "quarantine", each.recipe, title, each.detail))
    return found


def _notice(report: NightReport, event: NotifyEvent, what: str, title: str, body: str | None = None) -> Notice:
    if body is None:
        lines = [headline(report), *(f"{name}: {text}" for name, text in summary(report))]
        body = "\n".join([*lines, *map(str, report.advice())])
    key = what if event == "version" else f"{report.night} {event} {what}".strip()
    return Notice(key=key, event=event, night=report.night, title=title, body=body)


def tell_of_trial(
    deployment: Deployment, home: Home, environment: Mapping[str, str], role: str, title: str, text: str
) -> None:
    """Tell that an arm was taken out of a role's trial while it served."""
    now = dt.datetime.now(dt.UTC)
    night = now.astimezone(deployment.zone).date().isoformat()
    notice = Notice(key=f"{role} trial {now.isoformat()}", event="trial", night=night, title=title, body=text)
    with remembered(home) as state:
        deliver(home, state, [notice], deployment.notify, environment)


@dataclass(frozen=True)
class Watched:
    """What the dead man's check found. `night` is None where none is due yet."""

    night: str | None
    done: bool
    sentence: str


def due_night(deployment: Deployment, home: Home, now: dt.datetime) -> str | None:
    """The newest night that should be done by now: yesterday's from `notify.by` on, before that the one before."""
    local = now.astimezone(deployment.zone)
    back = 1 if f"{local:%H:%M}" >= deployment.notify.by else 2
    night = local.date() - dt.timedelta(days=back)
    return None if night < first_night(deployment, home, now) else night.isoformat()


def watch(deployment: Deployment, home: Home, environment: Mapping[str, str], now: dt.datetime) -> Watched:
    """Whether the night that is due is done; tells once if not, and tries again what could not be told before.

    Reads files only, so it works while Dagster, its daemon and the code location are down, and on a full disk.
    """
    found = look_at_due(deployment, home, now)
    settings = deployment.notify
    if not settings.urls and settings.ping_url is None:
        return found
    with remembered(home) as state:
        notices = []
        # A failure that was told is the same trouble.
        if not found.done and found.night is not None and f"{found.night} failure" not in state.told:
            title = f"EC1: no night {found.night} by {deployment.notify.by}"
            notices.append(
                Notice(
                    key=f"{found.night} missing", event="missing", night=found.night, title=title, body=found.sentence
                )
            )
            state.failing = max(found.night, state.failing or found.night)
        deliver(home, state, notices, settings, environment)
        if not found.done and settings.ping_url is not None:
            state.ping_problem = ping(settings.ping_url, environment, succeeded=False)
    return found


def look_at_due(deployment: Deployment, home: Home, now: dt.datetime) -> Watched:
    """Whether the night that is due is done; of one that did not run, what stops a night now."""
    night = due_night(deployment, home, now)
    if night is None:
        return Watched(None, True, "no night is due yet")
    again = f"look with `ec1 doctor`, then run `ec1 night --date {night}`"
    due = f"due by {deployment.notify.by}"
    try:
        report = night_report(home, night)
    except (InputError, OSError):
        why = why_not(deployment, home, now) or why_unstarted(deployment, home)
        return Watched(night, False, f"night {night} did not run ({due}): {why}; {again}")
    if report.succeeded:
        return Watched(night, True, headline(report))
    if is_done(home, night):
        # As for the planner: a later run, perhaps of a part, does not undo it.
        return Watched(night, True, f"night {night} is done; of its last run: {headline(report)}")
    return Watched(night, False, f"{headline(report)} ({due}); {again}")

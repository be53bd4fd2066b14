"""The nightly schedule, with catch-up of missed nights."""

import datetime as dt
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import dagster as dg

from ec1.deployment import Deployment
from ec1.home import Home
from resources.schedule import check_schedule
from schedules.planning import NightDecision, missed_nights, plan_night

if TYPE_CHECKING:
    from resources.dagster_private import UnresolvedAssetJobDefinition

CATCH_UP_LOOK_BACK = 7
CATCH_UP_LIMIT = 3


def nightly_schedule(
    deployment: Deployment, home: Home, nights: dg.DailyPartitionsDefinition, job: "UnresolvedAssetJobDefinition"
) -> dg.ScheduleDefinition:
    """Run the night of the day that has just ended, after the nights that were missed, oldest first.

    After an outage Dagster evaluates only the last tick, at once and perhaps in office hours: a tick that comes more
    than `grace_minutes` late is skipped, and the nights it stood for are caught up by the next one.

    Raises InputError for a cron line that Dagster does not take.
    """
    check_schedule(deployment)
    settings = deployment.schedule

    @dg.schedule(
        name="nightly_schedule",
        job=job,
        cron_schedule=settings.cron,
        execution_timezone=settings.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING if settings.enabled else dg.DefaultScheduleStatus.STOPPED,
        description=f"Every night at {settings.cron} ({settings.timezone}); catches up {CATCH_UP_LIMIT} missed nights.",
    )
    def _schedule(context: dg.ScheduleEvaluationContext) -> dg.SkipReason | list[dg.RunRequest]:
        return requests_of_tick(
            context.instance,
            home,
            nights,
            context.scheduled_execution_time,
            dt.datetime.now(dt.UTC),
            settings.grace_minutes,
        )

    return _schedule


def requests_of_tick(
    instance: dg.DagsterInstance,
    home: Home,
    nights: dg.DailyPartitionsDefinition,
    scheduled: dt.datetime,
    now: dt.datetime,
    grace_minutes: int,
) -> dg.SkipReason | list[dg.RunRequest]:
    """What one tick asks for: missed nights, then last night; or why it asks for nothing."""
    late = dt.timedelta(seconds=now.timestamp() - scheduled.timestamp())
    if late > dt.timedelta(minutes=grace_minutes):
        return dg.SkipReason(f"this tick is {late} late, more than {grace_minutes} minutes: the next one catches up")
    night = (scheduled.astimezone(ZoneInfo(nights.timezone)).date() - dt.timedelta(days=1)).isoformat()
    tonight = plan_night(instance, home, night)
    plans = missed_nights(instance, home, nights, night, look_back=CATCH_UP_LOOK_BACK, limit=CATCH_UP_LIMIT)
    if tonight.run and nights.has_partition_key(night):
        plans.append(tonight)
    return [request_of(plan) for plan in plans] or dg.SkipReason(tonight.reason)


def request_of(plan: NightDecision) -> dg.RunRequest:
    # The key says why: which attempt it is, and what grew.
    return dg.RunRequest(run_key=plan.run_key, partition_key=plan.night)

"""Whether a night should be started now. Schedule and sensor both use this.

A Dagster `run_key` can be used only once, even by a failed run, and is not shared between a schedule and a
sensor. So the decision looks at the runs themselves, and the key carries the attempt.
"""

import datetime as dt
from dataclasses import dataclass

import dagster as dg

from jobs.nightly import NIGHTLY_JOB

PARTITION_TAG = "dagster/partition"
IN_FLIGHT = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


@dataclass(frozen=True)
class NightDecision:
    """`run` says whether to start the night; `run_key` is unique to this attempt; `reason` is for people."""

    night: str
    run: bool
    reason: str
    run_key: str


def plan_night(
    instance: dg.DagsterInstance, night: str, *, max_attempts: int = 3, again: str | None = None
) -> NightDecision:
    """Decide about one night from its runs so far.

    A night that succeeded is not repeated unless `again` names a reason (such as a corpus that grew since), which
    becomes part of the key, so that one reason starts one run.
    """
    runs = instance.get_runs(dg.RunsFilter(job_name=NIGHTLY_JOB, tags={PARTITION_TAG: night}))
    failed = sum(run.status == dg.DagsterRunStatus.FAILURE for run in runs)
    done = any(run.status == dg.DagsterRunStatus.SUCCESS for run in runs)
    key = f"night-{night}-{again or 'first'}-attempt-{failed + 1}"
    if any(run.status in IN_FLIGHT for run in runs):
        return NightDecision(night, False, f"night {night} is in flight", key)
    if done and again is None:
        return NightDecision(night, False, f"night {night} is done", key)
    if failed >= max_attempts:
        return NightDecision(night, False, f"night {night} failed {failed} times; it needs a person", key)
    return NightDecision(night, True, f"night {night}, attempt {failed + 1}" + (f", {again}" if again else ""), key)


def missed_nights(
    instance: dg.DagsterInstance, nights: dg.DailyPartitionsDefinition, before: str, *, look_back: int, limit: int
) -> list[NightDecision]:
    """Nights before `before` that never succeeded and are not in flight, oldest first, at most `limit`.

    Looks back `look_back` nights and not past the first night that ever ran: a new installation has missed nothing.
    """
    day = dt.date.fromisoformat(before)
    candidates = [(day - dt.timedelta(days=back)).isoformat() for back in range(look_back, 0, -1)]
    first = instance.get_runs(dg.RunsFilter(job_name=NIGHTLY_JOB), limit=1, ascending=True)
    began = first[0].tags.get(PARTITION_TAG) if first else None
    plans = [
        plan_night(instance, night)
        for night in candidates
        if began is not None and night > began and nights.has_partition_key(night)
    ]
    return [plan for plan in plans if plan.run][:limit]

"""Whether a night should be started now. Schedule and sensor both use this.

A Dagster `run_key` can be used only once, even by a failed run, and is not shared between a schedule and a
sensor. So the decision looks at the night itself (`jobs/nights.py`), and the key carries the attempt.
"""

import datetime as dt
from dataclasses import dataclass

import dagster as dg

from ec1.home import Home
from jobs.nights import state_of


@dataclass(frozen=True)
class NightDecision:
    """`run` says whether to start the night; `run_key` is unique to this attempt; `reason` is for people."""

    night: str
    run: bool
    reason: str
    run_key: str


def plan_night(
    instance: dg.DagsterInstance, home: Home, night: str, *, max_attempts: int = 3, again: str | None = None
) -> NightDecision:
    """Decide about one night as it stands.

    A night that is done is not repeated unless `again` names a reason (such as a corpus that grew since), which
    becomes part of the key, so that one reason starts one run.
    """
    found = state_of(instance, home, night)
    key = f"night-{night}-{again or 'first'}-attempt-{found.failed + 1}"
    if found.state in ("going", "queued"):
        return NightDecision(night, False, f"night {night} is in flight", key)
    if found.state == "done" and again is None:
        return NightDecision(night, False, f"night {night} is done", key)
    if found.failed >= max_attempts:
        return NightDecision(night, False, f"night {night} failed {found.failed} times; it needs a person", key)
    return NightDecision(
        night, True, f"night {night}, attempt {found.failed + 1}" + (f", {again}" if again else ""), key
    )


def missed_nights(
    instance: dg.DagsterInstance,
    home: Home,
    nights: dg.DailyPartitionsDefinition,
    before: str,
    *,
    look_back: int,
    limit: int,
) -> list[NightDecision]:
    """Nights before `before` that are not done and not in flight, oldest first, at most `limit`.

    Looks back `look_back` nights and not past the first night, with which the partitions begin.
    """
    day = dt.date.fromisoformat(before)
    candidates = [(day - dt.timedelta(days=back)).isoformat() for back in range(look_back, 0, -1)]
    plans = [plan_night(instance, home, night) for night in candidates if nights.has_partition_key(night)]
    return [plan for plan in plans if plan.run][:limit]

"""A sensor that asks for a night when a training corpus has grown and then been quiet for a while."""

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from ec1.corpus.buckets import Bucket, watermark
from ec1.deployment import Deployment
from ec1.home import Home
from schedules.nightly import request_of
from schedules.planning import plan_night

if TYPE_CHECKING:
    from resources.dagster_private import UnresolvedAssetJobDefinition


def corpus_growth_sensor(
    deployment: Deployment, home: Home, job: "UnresolvedAssetJobDefinition", buckets: Sequence[Bucket]
) -> dg.SensorDefinition:
    """Watch every bucket's watermark (a few `stat` calls, never a listing: sensors run under a time-out)."""
    settings = deployment.schedule

    @dg.sensor(
        name="corpus_growth_sensor",
        job=job,
        minimum_interval_seconds=60,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Asks for tonight when a corpus grew and was then quiet for {settings.debounce_seconds} s.",
    )
    def _sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now = dt.datetime.now(dt.UTC)
        marks = {bucket.name: watermark(bucket) for bucket in buckets}
        night = deployment.current_night(now).date
        return evaluate(
            context.instance, home, context.cursor, marks, night, now.timestamp(), settings.debounce_seconds
        )

    return _sensor


def evaluate(
    instance: dg.DagsterInstance,
    home: Home,
    cursor: str | None,
    marks: Mapping[str, str],
    night: str,
    now: float,
    debounce_seconds: float,
) -> dg.SensorResult:
    """One tick. The cursor holds the marks that were acted on, and the newest ones with the time they were first seen.

    `acted` advances only together with a request, so that growth is never forgotten; the first tick only remembers.
    """
    state: dict[str, Any] = json.loads(cursor) if cursor else {"acted": dict(marks), "seen": dict(marks), "since": now}
    if state["seen"] != marks:
        state = {**state, "seen": dict(marks), "since": now}
    grown = sorted(name for name, mark in marks.items() if state["acted"].get(name) != mark)
    quiet = now - state["since"]
    if not grown:
        return _wait(state, "no corpus has grown")
    if quiet < debounce_seconds:
        return _wait(
            state, f"{', '.join(grown)} grew {quiet:.0f} s ago; asking after {debounce_seconds:.0f} s of quiet"
        )
    plan = plan_night(instance, home, night, again=f"growth-{state['since']:.0f}")
    if not plan.run:
        return _wait(state, plan.reason)
    return dg.SensorResult([request_of(plan)], cursor=json.dumps({**state, "acted": dict(marks)}))


def _wait(state: dict[str, object], reason: str) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=reason, cursor=json.dumps(state))

"""Reads from a run's events why it failed: the innermost error that means something, in steps and outside of them."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from ec1.home import Home
from ec1.night.report.failure import ON_PURPOSE, Failure, one_line, path_of, write_failure

PARTITION_TAG = "dagster/partition"
CRASHED = "ChildProcessCrashException"
"""What Dagster records of a step whose process ended without a word."""


def failure_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> Failure:
    """Why a run failed, from all its events: a worker that never began has no failed step, only engine events."""
    steps: dict[str, str] = {}
    outside: list[str] = []
    ended = ""
    for entry in instance.all_logs(run.run_id):
        event = entry.dagster_event
        if event is None:
            continue
        error = getattr(event.event_specific_data, "error", None)
        if event.event_type == dg.DagsterEventType.STEP_FAILURE and event.step_key:
            steps[event.step_key.replace("__", "/")] = _cause(error)
        elif event.event_type == dg.DagsterEventType.ENGINE_EVENT and error is not None:
            outside.append(_cause(error))
        elif event.event_type == dg.DagsterEventType.RUN_FAILURE:
            ended = _cause(error) if error is not None else event.message or ""
    first = next(iter(steps.items()), None)
    cause = f"{first[0]}: {first[1]}" if first else (outside[0] if outside else ended or "no error was recorded")
    return failure_with(run, cause, steps)


def failure_with(run: dg.DagsterRun, cause: str, steps: Mapping[str, str] = MappingProxyType({})) -> Failure:
    """The failure of a run of a night with this cause."""
    night = run.tags.get(PARTITION_TAG, "")
    return Failure(
        night=night,
        run=run.run_id,
        job=run.job_name,
        cause=cause,
        steps=dict(steps),
        again=f"ec1 night --date {night}",
    )


def record_failure(instance: dg.DagsterInstance, home: Home, run_id: str) -> Path | None:
    """Write down why a run failed, unless it is done. None for what is not a failed run of a night."""
    run = instance.get_run_by_id(run_id)
    if run is None or run.status != dg.DagsterRunStatus.FAILURE or PARTITION_TAG not in run.tags:
        return None
    path = path_of(home, run.tags[PARTITION_TAG], run_id)
    return path if path.exists() else write_failure(home, failure_of(instance, run))


def _cause(error: Any) -> str:
    """One line: the innermost error that EC1 raised on purpose, or else the innermost of all."""
    if error is None:
        return "no error was recorded"
    if error.cls_name == CRASHED:
        return "its process was killed: by a signal, or because memory ran out (`dmesg` says so); run the night again"
    innermost = error
    while innermost.cause is not None:
        innermost = innermost.cause
    meant, each = None, error
    while each is not None:
        meant = each if each.cls_name in ON_PURPOSE else meant
        # Without `raise ... from`, what was being handled is only perhaps the cause.
        each = each.cause or each.context
    told = meant or innermost
    return one_line(told.cls_name or "", told.message)

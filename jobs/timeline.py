"""Reads from a run's events how its parts spent the time: queued, waiting for the lease, working."""

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import dagster as dg

from ec1.night.records import Part, RunRecord
from resources.dagster_private import RunStepKeyStatsSnapshot, StepEventStatus
from resources.gpu import CARDS_COST, LEASE_HELD, LEASE_WAIT

_STATUS: Mapping[StepEventStatus, Literal["done", "failed", "skipped"]] = {
    StepEventStatus.SUCCESS: "done",
    StepEventStatus.FAILURE: "failed",
    StepEventStatus.SKIPPED: "skipped",
}


class _Used(NamedTuple):
    """Seconds for which a step waited for the lease and held it, and USD of cards that have a price of their own."""

    waited: float = 0.0
    held: float = 0.0
    usd: float = 0.0


def run_record(
    instance: dg.DagsterInstance,
    run_id: str,
    *,
    recipes: Iterable[str] = (),
    broken: Mapping[str, str] | None = None,
    cost_per_hour: float = 0.0,
    cost_per_card_hour: float = 0.0,
) -> RunRecord:
    """The record of a run that has ended, or is being ended. Raises KeyError for an unknown one."""
    stored = instance.get_run_record_by_id(run_id)
    if stored is None:
        raise KeyError(run_id)
    run = stored.dagster_run
    statuses: Mapping[dg.DagsterRunStatus, Literal["done", "failed"]] = {
        dg.DagsterRunStatus.SUCCESS: "done",
        dg.DagsterRunStatus.FAILURE: "failed",
    }
    began = stored.start_time
    return RunRecord(
        job=run.job_name,
        status=statuses.get(run.status, "interrupted"),
        asked=stored.create_timestamp.astimezone(dt.UTC),
        began=_time(began),
        ended=_time(stored.end_time) or dt.datetime.now(dt.UTC),
        parts=_parts(instance, run, began),
        recipes=sorted(recipes),
        broken=dict(broken or {}),
        cost_per_hour=cost_per_hour,
        cost_per_card_hour=cost_per_card_hour,
    )


def _parts(instance: dg.DagsterInstance, run: dg.DagsterRun, began: float | None) -> list[Part]:
    """The steps of a run's plan: those that began in that order, then the others in the plan's."""
    if run.execution_plan_snapshot_id is None:
        return []
    stats = {each.step_key: each for each in instance.get_run_step_stats(run.run_id)}
    lease = _lease(instance, run.run_id)
    parts = []
    for step in instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).steps:
        if run.step_keys_to_execute is not None and step.key not in run.step_keys_to_execute:
            continue
        needs = {key for each in step.inputs for key in each.upstream_step_keys}
        parts.append(_part(step.key, stats, lease.get(step.key, _Used()), needs, began))
    never = dt.datetime.max.replace(tzinfo=dt.UTC)
    return sorted(parts, key=lambda part: part.began or never)


def _part(
    key: str,
    stats: Mapping[str, RunStepKeyStatsSnapshot],
    used: _Used,
    needs: set[str],
    began: float | None,
) -> Part:
    name, mine = key.replace("__", "/"), stats.get(key)
    if mine is None or mine.start_time is None:
        skipped = mine is not None and mine.status == StepEventStatus.SKIPPED
        return Part(name=name, status="skipped" if skipped else "not reached")
    ready = max((each.end_time for need in needs if (each := stats.get(need)) and each.end_time), default=began)
    return Part(
        name=name,
        # A step that was interrupted has no end of its own.
        status=_STATUS.get(mine.status, "failed") if mine.status else "failed",
        began=_time(mine.start_time),
        waited=max(0.0, mine.start_time - ready) if ready is not None else None,
        worked=max(0.0, mine.end_time - mine.start_time - used.waited) if mine.end_time else None,
        lease_waited=used.waited,
        gpu=used.held,
        usd=used.usd,
    )


def _lease(instance: dg.DagsterInstance, run_id: str) -> dict[str, _Used]:
    """What each step used of cards."""
    found: dict[str, _Used] = {}
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_OBSERVATION):
        event = entry.dagster_event
        if event is None or event.step_key is None:
            continue
        metadata = event.asset_observation_data.asset_observation.metadata
        if LEASE_HELD in metadata:
            before = found.get(event.step_key, _Used())
            said = (metadata.get(name) for name in (LEASE_WAIT, LEASE_HELD, CARDS_COST))
            more = (0.0 if each is None else float(str(each.value)) for each in said)
            found[event.step_key] = _Used(*(one + other for one, other in zip(before, more, strict=True)))
    return found


def _time(seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)

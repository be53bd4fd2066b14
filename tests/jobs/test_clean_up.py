"""Dagster's runs of old nights go, with their events and logs, and its storage stays as large as the kept nights."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ec1.home import Home
from jobs.failure import PARTITION_TAG
from jobs.instance import prepare_instance
from jobs.retention import compact, prune_runs


@dg.asset
def thing(context: dg.AssetExecutionContext) -> None:
    context.log.info("made")


@dg.asset(check_specs=[dg.AssetCheckSpec("sound", asset="first")])
def first() -> dg.MaterializeResult:  # type: ignore[type-arg]
    return dg.MaterializeResult(check_results=[dg.AssetCheckResult(passed=True)], metadata={"many": 3})


@dg.asset(deps=[first])
def second() -> dg.MaterializeResult:  # type: ignore[type-arg]
    return dg.MaterializeResult()


@dg.asset
def broken() -> None:
    raise ValueError("no")


CHAIN = dg.Definitions([first, second], jobs=[dg.define_asset_job("chain")], executor=dg.in_process_executor)


def chain() -> dg.JobDefinition:
    return CHAIN.resolve_job_def("chain")


@pytest.fixture
def instance(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
    with prepare_instance(home) as instance:
        yield instance


def work_on(instance: dg.DagsterInstance, night: str | None) -> str:
    tags = {} if night is None else {PARTITION_TAG: night}
    return dg.materialize([thing], instance=instance, tags=tags).run_id


UNASKED = {
    dg.DagsterEventType.RESOURCE_INIT_STARTED,
    dg.DagsterEventType.RESOURCE_INIT_SUCCESS,
    dg.DagsterEventType.STEP_WORKER_STARTING,
    dg.DagsterEventType.STEP_WORKER_STARTED,
    dg.DagsterEventType.STEP_OUTPUT,
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
}
"""What the log of a run that succeeded does not keep."""


def said(entry: dg.EventLogEntry) -> dg.DagsterEventType | None:
    return entry.dagster_event.event_type if entry.dagster_event is not None else None


def files(home: Home) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in home.dagster.rglob("*") if path.is_file()}


def test_old_nights_leave_nothing_and_new_ones_lose_nothing(instance: dg.DagsterInstance, home: Home) -> None:
    by_hand = work_on(instance, None)
    first = [work_on(instance, f"2026-06-0{day}") for day in range(1, 4)]
    assert prune_runs(instance, 3) == []
    at_work = instance.create_run_for_job(
        dg.Definitions([thing], jobs=[dg.define_asset_job("job")]).resolve_job_def("job"),
        status=dg.DagsterRunStatus.STARTED,
        tags={PARTITION_TAG: "2026-06-01"},
    )
    second = [work_on(instance, f"2026-06-0{day}") for day in range(4, 7)]
    # A backfill: old by its date, new by when it was worked on.
    backfilled = work_on(instance, "2026-05-20")
    removed = prune_runs(instance, 2)
    left = {run.run_id for run in instance.get_runs()}
    assert left == {*second[-2:], backfilled, at_work.run_id}
    assert len(removed) == 5 and all(each.bytes > 0 for each in removed)
    gone = {by_hand, *first, second[0]}
    assert not [path for path in home.dagster.rglob("*") if any(run in path.name for run in gone)]
    made = instance.fetch_materializations(dg.AssetKey("thing"), limit=50).records
    assert {record.run_id for record in made} == {*second[-2:], backfilled}
    assert instance.all_logs(second[-1]) and instance.all_logs(backfilled)
    assert instance.get_latest_materialization_event(dg.AssetKey("thing")) is not None
    assert prune_runs(instance, 2) == []


def test_the_log_of_an_ended_run_loses_its_empty_space(instance: dg.DagsterInstance, home: Home) -> None:
    before = work_on(instance, "2026-06-01")
    run_id = work_on(instance, "2026-06-02")
    (runs,) = home.dagster.glob("history/runs")
    sizes, events = files(home), instance.all_logs(run_id)
    asked = [each for each in events if said(each) not in UNASKED]
    # Who reads the log sees all of it as long as they read; it keeps its empty space then.
    with contextlib.closing(sqlite3.connect(runs / f"{run_id}.db")) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT COUNT(*) FROM event_logs").fetchone() == (len(events),)
        compact(instance, run_id)
        assert reader.execute("SELECT COUNT(*) FROM event_logs").fetchone() == (len(events),)
    assert files(home)[f"{run_id}.db"] >= sizes[f"{run_id}.db"]
    compact(instance, run_id)
    assert files(home)[f"{run_id}.db"] < 0.6 * sizes[f"{run_id}.db"]
    assert files(home)["index.db"] < sizes["index.db"]
    assert instance.all_logs(run_id) == asked
    compact(instance, run_id)
    # What comes after it is written as before, into both.
    run = instance.get_run_by_id(run_id)
    assert run is not None
    instance.report_engine_event("afterwards", run)
    assert len(instance.all_logs(run_id)) == len(asked) + 1
    after = work_on(instance, "2026-06-03")
    made = instance.fetch_materializations(dg.AssetKey("thing"), limit=50).records
    assert {record.run_id for record in made} == {before, run_id, after}


def test_a_run_that_succeeded_shows_what_it_showed_before(instance: dg.DagsterInstance, home: Home) -> None:
    assert chain().execute_in_process(instance=instance, tags={PARTITION_TAG: "2026-06-01"}).success
    run_id = instance.get_runs()[0].run_id
    check = dg.AssetCheckKey(dg.AssetKey("first"), "sound")

    def shown() -> list[object]:
        storage = instance.event_log_storage
        (result,) = storage.get_asset_check_execution_history(check, limit=5)
        made = instance.fetch_materializations(dg.AssetKey("first"), limit=5).records
        return [
            (result.status, result.event),
            made,
            storage.get_latest_planned_materialization_info(dg.AssetKey("first")),
            [
                (step.step_key, step.status, step.start_time, step.end_time)
                for step in instance.get_run_step_stats(run_id)
            ],
            instance.get_run_stats(run_id).materializations,
        ]

    before = shown()
    compact(instance, run_id)
    assert shown() == before
    assert not {said(each) for each in instance.all_logs(run_id)} & UNASKED
    # A part of it can be run again.
    again = dg.execute_job(
        dg.reconstructable(chain),
        instance=instance,
        reexecution_options=dg.ReexecutionOptions(run_id, step_selection=["second"]),
    )
    assert again.success


def test_the_log_of_a_run_that_failed_keeps_every_event(instance: dg.DagsterInstance) -> None:
    run_id = dg.materialize([broken], instance=instance, raise_on_error=False).run_id
    events = instance.all_logs(run_id)
    compact(instance, run_id)
    assert instance.all_logs(run_id) == events


@pytest.mark.parametrize("printed", [b"", b"a line"])
def test_what_a_step_printed_stays_and_empty_files_go(printed: bytes, instance: dg.DagsterInstance, home: Home) -> None:
    with dg.execute_job(dg.reconstructable(chain), instance=instance) as result:
        assert result.success
    (out,) = home.dagster.glob("storage/*/compute_logs/*.out")
    out.write_bytes(printed)
    compact(instance, result.run_id)
    left = list(home.dagster.glob("storage/*/compute_logs/*"))
    told = [each for each in instance.all_logs(result.run_id) if said(each) is dg.DagsterEventType.LOGS_CAPTURED]
    assert (len(left), len(told)) == ((3, 1) if printed else (0, 0))


def test_the_storage_stays_as_large_as_the_nights_that_are_kept(instance: dg.DagsterInstance, home: Home) -> None:
    sizes = []
    for day in range(1, 9):
        work_on(instance, f"2026-06-{day:02d}")
        prune_runs(instance, 3)
        sizes.append(sum(files(home).values()))
    assert len(instance.get_runs()) == 3
    assert max(sizes[5:]) <= sizes[4] * 1.1, "after the kept nights it does not grow"
    (shards,) = home.dagster.glob("history/runs")
    assert len([path for path in Path(shards).glob("*.db") if path.stem != "index"]) == 3

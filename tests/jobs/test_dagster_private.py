"""What EC1 relies on for each of Dagster's private names (`resources.dagster_private`): here a new Dagster fails first.

`ec1 ui`, whole nights and the launcher have tests of their own, which are slow and say less about what it was.
"""

import inspect
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from ec1.home import CHECKOUT, Home
from jobs.instance import prepare_instance
from jobs.launcher import ProcessLauncher
from resources import dagster_private as private

TINY = """
import dagster as dg

@dg.asset
def first():
    print("said by the step")

@dg.asset(deps=[first])
def second():
    pass

jobs = [dg.define_asset_job("tiny_job")]
defs = dg.Definitions(assets=[first, second], jobs=jobs, executor=dg.in_process_executor)
"""


@pytest.fixture
def instance(home: Home) -> Iterator[dg.DagsterInstance]:
    with prepare_instance(home) as instance:
        yield instance


@pytest.fixture
def repository(tmp_path: Path) -> private.ReconstructableRepository:
    (tmp_path / "tiny_of_contract.py").write_text(TINY)
    return private.ReconstructableRepository.for_module("tiny_of_contract", "defs", working_directory=str(tmp_path))


def tiny_run(
    instance: dg.DagsterInstance, repository: private.ReconstructableRepository, **changes: object
) -> dg.DagsterRun:
    job = repository.get_definition().get_job("tiny_job")
    code = repository.get_reconstructable_job("tiny_job").get_python_origin()
    return instance.create_run_for_job(job, job_code_origin=code, **changes)  # type: ignore[arg-type]


def test_every_name_is_used_and_comes_from_here_alone() -> None:
    files = [
        path for room in ("ec1_assets", "resources", "jobs", "schedules") for path in (CHECKOUT / room).glob("*.py")
    ]
    texts = {path: path.read_text() for path in files if path.name != "dagster_private.py"}
    users = "\n".join(texts.values()) + (CHECKOUT / "tests/jobs/test_failure.py").read_text()
    unused = {name for name in private.__all__ if not re.search(rf"\b{name}\b", users)}
    assert unused == set()
    assert [
        str(path)
        for path, text in texts.items()
        if re.search(r"^\s*(?:from|import) dagster(?:\._|_shared)", text, re.M)
    ] == []


def test_a_job_of_assets_is_not_resolved_where_it_is_defined() -> None:
    assert isinstance(dg.define_asset_job("night"), private.UnresolvedAssetJobDefinition)


def test_the_next_time_of_a_schedule() -> None:
    assert private.is_valid_cron_string("0 2 * * 1#2") and not private.is_valid_cron_string("0 0 * foo *")
    zone = ZoneInfo("Europe/Berlin")
    now = datetime(2026, 6, 5, 12, tzinfo=zone).timestamp()
    times = private.schedule_execution_time_iterator(now, "0 2 * * *", zone.key, ascending=True)
    assert next(times) == datetime(2026, 6, 6, 2, tzinfo=zone)
    with pytest.raises(ValueError):
        next(private.schedule_execution_time_iterator(now, "0 2 31 4 *", zone.key, ascending=True))


def test_the_steps_of_a_run_are_processes_of_the_executor_that_is_loaded_beforehand() -> None:
    assert private.multiprocess.MultiprocessExecutor.__module__ == private.multiprocess.__name__
    assert "MultiprocessExecutor" in inspect.getsource(inspect.getmodule(dg.multiprocess_executor.executor_creation_fn))  # type: ignore[arg-type]


def test_a_run_in_this_process_its_times_and_its_files(
    instance: dg.DagsterInstance, repository: private.ReconstructableRepository
) -> None:
    run = tiny_run(instance, repository)
    job = repository.get_reconstructable_job("tiny_job")
    events = list(private.core_execute_run(job, run, instance, inject_env_vars=False))
    assert events[-1].event_type == dg.DagsterEventType.RUN_SUCCESS
    stats = {each.step_key: each for each in instance.get_run_step_stats(run.run_id)}
    first, second = stats["first"], stats["second"]
    assert isinstance(first, private.RunStepKeyStatsSnapshot) and first.status == private.StepEventStatus.SUCCESS
    assert first.start_time and first.end_time and second.start_time
    assert first.start_time <= first.end_time <= second.start_time <= time.time()
    assert {each.name for each in private.StepEventStatus} >= {"SUCCESS", "FAILURE", "SKIPPED"}
    storage, logs = instance.event_log_storage, instance.compute_log_manager
    assert isinstance(storage, private.SqliteEventLogStorage) and Path(storage.path_for_shard(run.run_id)).is_file()
    assert isinstance(logs, private.LocalComputeLogManager)
    printed = Path(logs.get_captured_local_path([run.run_id, "compute_logs", "any"], "out"))
    assert "".join(path.read_text() for path in printed.parent.glob("*.out")) == "said by the step\n"
    # Dagster leaves the files behind: the clean-up removes them.
    instance.delete_run(run.run_id)
    assert printed.parent.is_dir()


def test_a_run_is_planned_again_and_its_record_replaced(
    instance: dg.DagsterInstance, repository: private.ReconstructableRepository
) -> None:
    run = tiny_run(instance, repository)
    part = repository.get_reconstructable_job("tiny_job").get_subset(asset_selection={dg.AssetKey("first")})
    plan = private.create_execution_plan(part, run_config=run.run_config, step_keys_to_execute=None, tags=run.tags)
    assert list(plan.step_keys_to_execute) == ["first"]
    snapshot = part.get_definition().get_job_snapshot()
    planned = private.snapshot_from_execution_plan(plan, snapshot.snapshot_id)
    planned_id = private.create_execution_plan_snapshot_id(planned)
    storage = instance.run_storage
    assert isinstance(storage, private.SqlRunStorage)
    storage.add_job_snapshot(snapshot)
    storage.add_execution_plan_snapshot(planned)
    changed = private.copy(run, job_snapshot_id=snapshot.snapshot_id, execution_plan_snapshot_id=planned_id)
    table = private.RunsTable
    with storage.connect() as connection:
        connection.execute(
            table.update()
            .where(table.c.run_id == run.run_id)
            .values(run_body=dg.serialize_value(changed), snapshot_id=snapshot.snapshot_id)
        )
    found = instance.get_run_by_id(run.run_id)
    assert found == changed and found.execution_plan_snapshot_id == planned_id
    assert [step.key for step in instance.get_execution_plan_snapshot(planned_id).steps] == ["first"]


def test_the_instance_makes_our_launcher_and_its_monitor_asks_it(instance: dg.DagsterInstance) -> None:
    launcher = instance.run_launcher
    assert isinstance(launcher, ProcessLauncher) and isinstance(launcher, private.RunLauncher)
    assert isinstance(launcher, private.ConfigurableClass)
    assert isinstance(launcher.inst_data, private.ConfigurableClassData)
    assert launcher.supports_check_run_worker_health
    health = private.CheckRunHealthResult(private.WorkerStatus.NOT_FOUND, "gone")
    assert (health.status, health.msg) == (private.WorkerStatus.NOT_FOUND, "gone")
    assert len({private.WorkerStatus.RUNNING, private.WorkerStatus.NOT_FOUND}) == 2
    assert "dagster_run" in inspect.signature(private.LaunchRunContext).parameters


def test_the_arguments_of_a_pod(instance: dg.DagsterInstance, repository: private.ReconstructableRepository) -> None:
    origin = repository.get_reconstructable_job("tiny_job").get_python_origin()
    arguments = private.ExecuteRunArgs(origin, "a-run", instance.get_ref()).get_command_args()
    assert arguments[-3:-1] == ["api", "execute_run"]
    assert dg.deserialize_value(arguments[-1], private.ExecuteRunArgs).run_id == "a-run"


def test_the_queue_takes_a_run_that_says_where_it_comes_from(
    instance: dg.DagsterInstance, repository: private.ReconstructableRepository
) -> None:
    (location,) = private.WorkspaceFileTarget([str(CHECKOUT / "workspace.yaml")]).create_origins()
    origin = private.RemoteJobOrigin(private.RemoteRepositoryOrigin(location, "__repository__"), "tiny_job")
    run = tiny_run(instance, repository, remote_job_origin=origin, tags={"night": "x"})
    instance.submit_run(run.run_id, workspace=None)  # type: ignore[arg-type]
    queued = instance.get_run_by_id(run.run_id)
    assert queued is not None and queued.status == dg.DagsterRunStatus.QUEUED
    limits = [{"key": "night", "limit": 1}]
    assert private.TagConcurrencyLimitsCounter(limits, [queued]).is_blocked(queued)
    assert not private.TagConcurrencyLimitsCounter(limits, []).is_blocked(queued)


def test_what_is_written_beside_the_steps_of_a_run(
    instance: dg.DagsterInstance, repository: private.ReconstructableRepository
) -> None:
    run = tiny_run(instance, repository)
    error = private.SerializableErrorInfo("OSError: no space\n", [], "OSError")
    instance.report_engine_event("it broke", run, private.EngineEventData.engine_error(error))
    shown = dg.AssetMaterialization("night_report", metadata={"status": "done"})
    event = dg.DagsterEvent(
        event_type_value=dg.DagsterEventType.ASSET_MATERIALIZATION.value,
        job_name=run.job_name,
        event_specific_data=private.StepMaterializationData(shown, []),
    )
    instance.report_dagster_event(event, run_id=run.run_id)
    (told,) = (
        each.dagster_event.event_specific_data.error  # type: ignore[union-attr]
        for each in instance.all_logs(run.run_id)
        if each.dagster_event and each.dagster_event.event_type == dg.DagsterEventType.ENGINE_EVENT
    )
    assert told is not None and (told.cls_name, told.message, told.cause) == ("OSError", "OSError: no space\n", None)
    latest = instance.get_latest_materialization_event(dg.AssetKey("night_report"))
    assert latest is not None and latest.run_id == run.run_id


def test_the_ui_and_the_daemon_in_one_process(instance: dg.DagsterInstance) -> None:
    daemons = private.create_daemons_from_instance(instance)
    assert {"QUEUED_RUN_COORDINATOR", "SCHEDULER", "SENSOR", "MONITORING"} <= {each.daemon_type() for each in daemons}
    assert callable(private.DagsterDaemonController.check_daemon_loop)
    context = private.WorkspaceProcessContext
    assert {"version", "read_only"} <= set(inspect.signature(context).parameters)
    assert callable(context.reload_code_location)
    assert {"formatter", "log_level"} <= set(inspect.signature(private.configure_loggers).parameters)


def test_a_step_opens_the_instance_with_what_the_fork_server_loaded(home: Home) -> None:
    prepare_instance(home).dispose()
    program = (
        "import sys, dagster as dg; from ec1.launch.libraries import load_libraries; "
        "from resources.dagster_private import LOADED_BY_EVERY_STEP; load_libraries(*LOADED_BY_EVERY_STEP); "
        "before = set(sys.modules); dg.DagsterInstance.get().dispose(); "
        "print(*(name for name in set(sys.modules) - before if name.startswith(('dagster', 'upath', 'fsspec'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=CHECKOUT,
        env={**os.environ, "DAGSTER_HOME": str(home.dagster)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.split()) <= 8, done.stdout

"""The instance is set up so that pools hold on the first dequeue, and a killed night gives its slot back."""

import os
import subprocess
import sys
from collections.abc import Iterator

import dagster as dg
import pytest

from ec1.home import Home
from jobs.instance import prepare_instance, reconcile
from jobs.launcher import ProcessLauncher
from jobs.mark import LIVING_RUN
from jobs.workers import PROCESS_TAG, WorkerProcess, is_gone, worker_of


@dg.op
def nothing() -> None:
    """A job needs an op."""


@dg.job
def some_job() -> None:
    nothing()


def status_of(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


@pytest.fixture
def instance(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
    with prepare_instance(home) as instance:
        yield instance


def a_run(
    instance: dg.DagsterInstance, worker: int | None, status: dg.DagsterRunStatus = dg.DagsterRunStatus.STARTED
) -> dg.DagsterRun:
    """A run whose worker is the process `worker`."""
    run = instance.create_run_for_job(some_job, status=status)
    if worker is not None:
        instance.add_run_tags(run.run_id, WorkerProcess.of(run.run_id, worker).tag)
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found


def a_sleeper(**environment: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={**os.environ, **environment})


def test_the_limit_of_the_gpu_pool_is_explicit(instance: dg.DagsterInstance) -> None:
    assert {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()} == {"gpu": 1}
    granularity = instance.get_concurrency_config().pool_config.pool_granularity
    assert granularity is not None and granularity.value == "op"
    assert isinstance(instance.run_launcher, ProcessLauncher)


def test_nothing_is_sent_home_and_no_invitation_covers_the_first_page(instance: dg.DagsterInstance) -> None:
    assert not instance.telemetry_enabled and not instance.nux_enabled


def test_an_edited_configuration_is_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
    home.dagster.mkdir(parents=True)
    (home.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    prepare_instance(home).dispose()
    assert (home.dagster / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"


def test_a_killed_run_is_ended_and_its_slot_freed(instance: dg.DagsterInstance) -> None:
    with a_sleeper() as process:
        killed = a_run(instance, process.pid)
        process.kill()
    alive = a_run(instance, None)
    instance.add_run_tags(alive.run_id, WorkerProcess.of(alive.run_id).tag)
    claim = instance.event_log_storage.claim_concurrency_slot("gpu", killed.run_id, "step")
    assert claim.is_claimed
    assert not instance.event_log_storage.claim_concurrency_slot("gpu", alive.run_id, "step").is_claimed
    assert reconcile(instance) == [killed.run_id]
    assert status_of(instance, killed) == dg.DagsterRunStatus.FAILURE
    assert status_of(instance, alive) == dg.DagsterRunStatus.STARTED
    assert instance.event_log_storage.claim_concurrency_slot("gpu", alive.run_id, "step").is_claimed


def test_the_steps_of_a_killed_run_end_too(instance: dg.DagsterInstance) -> None:
    with a_sleeper() as worker:
        run = a_run(instance, worker.pid)
        with a_sleeper(**{LIVING_RUN: run.run_id}) as step, a_sleeper(**{LIVING_RUN: "another"}) as another:
            worker.kill()
            worker.wait()
            reconcile(instance)
            assert step.wait(300) < 0
            assert another.poll() is None
            another.kill()


def test_a_killed_worker_that_nobody_waited_for_is_gone(instance: dg.DagsterInstance) -> None:
    with a_sleeper() as process:
        run = a_run(instance, process.pid)
        assert not is_gone(instance, run)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(instance, run), "a zombie works on nothing"


def test_a_process_id_that_was_given_away_again_is_not_the_worker(instance: dg.DagsterInstance) -> None:
    """After the restart of a container process ids start again at 1, and the boot time is still the host's."""
    run = a_run(instance, None)
    mark = WorkerProcess.of(run.run_id)
    instance.add_run_tags(run.run_id, {PROCESS_TAG: mark.tag[PROCESS_TAG].replace(str(mark.started), "1.5")})
    assert reconcile(instance) == [run.run_id]


def test_a_mark_that_a_re_execution_copied_names_nobody(instance: dg.DagsterInstance) -> None:
    first = a_run(instance, None)
    instance.add_run_tags(first.run_id, WorkerProcess.of(first.run_id).tag)
    marked = instance.get_run_by_id(first.run_id)
    assert marked is not None and worker_of(marked) is not None
    again = instance.create_run_for_job(some_job, tags=marked.tags)
    assert worker_of(again) is None


def test_of_another_machine_nothing_is_known(instance: dg.DagsterInstance) -> None:
    run = a_run(instance, None)
    instance.add_run_tags(run.run_id, WorkerProcess(run.run_id[:8], "elsewhere", 1, 1.0).tag)
    assert reconcile(instance) == []


def test_the_monitor_asks_the_launcher(instance: dg.DagsterInstance) -> None:
    with a_sleeper() as process:
        run = a_run(instance, process.pid)
        assert instance.run_launcher.check_run_worker_health(run).status.value == "RUNNING"
        process.kill()
    assert instance.run_launcher.check_run_worker_health(run).status.value == "NOT_FOUND"


def test_two_processes_may_set_up_the_same_instance_at_once(home: Home) -> None:
    code = (
        "import sys; from pathlib import Path; from ec1.home import Home; from jobs.instance import prepare_instance; "
    )
    code += "prepare_instance(Home(Path(sys.argv[1]))).dispose()"
    both = [subprocess.Popen([sys.executable, "-c", code, str(home.root)]) for _ in range(3)]
    assert [process.wait() for process in both] == [0, 0, 0]


def test_a_home_is_its_owners_alone(instance: dg.DagsterInstance, home: Home) -> None:
    assert home.root.stat().st_mode & 0o777 == 0o700

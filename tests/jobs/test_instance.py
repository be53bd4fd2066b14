"""The instance is set up so that pools hold on the first dequeue, and a killed night gives its slot back."""

import subprocess
import sys
from collections.abc import Iterator

import dagster as dg
import pytest

from ec1.home import Home
from jobs.instance import PROCESS_TAG, own_process, prepare_instance, reconcile


@dg.op
def nothing() -> None:
    """A job needs an op."""


@dg.job
def some_job() -> None:
    nothing()


@pytest.fixture
def instance(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
    with prepare_instance(home) as instance:
        yield instance


def test_the_limit_of_the_gpu_pool_is_explicit(instance: dg.DagsterInstance) -> None:
    assert {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()} == {"gpu": 1}
    assert instance.get_concurrency_config().pool_config.pool_granularity.value == "op"


def test_an_edited_configuration_is_kept(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
    home.dagster.mkdir(parents=True)
    (home.dagster / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    prepare_instance(home).dispose()
    assert (home.dagster / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"


def test_a_killed_run_is_ended_and_its_slot_freed(instance: dg.DagsterInstance) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        tag = own_process().split(":")[1]
        process.kill()
    killed = instance.create_run_for_job(
        some_job, status=dg.DagsterRunStatus.STARTED, tags={PROCESS_TAG: f"{process.pid}:{tag}"}
    )
    alive = instance.create_run_for_job(some_job, status=dg.DagsterRunStatus.STARTED, tags={PROCESS_TAG: own_process()})
    claim = instance.event_log_storage.claim_concurrency_slot("gpu", killed.run_id, "step")
    assert claim.is_claimed
    assert not instance.event_log_storage.claim_concurrency_slot("gpu", alive.run_id, "step").is_claimed
    assert reconcile(instance) == [killed.run_id]
    assert instance.get_run_by_id(killed.run_id).status == dg.DagsterRunStatus.FAILURE
    assert instance.get_run_by_id(alive.run_id).status == dg.DagsterRunStatus.STARTED
    assert instance.event_log_storage.claim_concurrency_slot("gpu", alive.run_id, "step").is_claimed


def test_two_processes_may_set_up_the_same_instance_at_once(home: Home) -> None:
    code = (
        "import sys; from pathlib import Path; from ec1.home import Home; from jobs.instance import prepare_instance; "
    )
    code += "prepare_instance(Home(Path(sys.argv[1]))).dispose()"
    both = [subprocess.Popen([sys.executable, "-c", code, str(home.root)]) for _ in range(3)]
    assert [process.wait() for process in both] == [0, 0, 0]

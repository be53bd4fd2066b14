"""Trainings on the booted machine: a fake cloud, a real sshd, a real worker on a light piece of work."""

import shlex
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from cloud_machines import NIGHT, A, Cloud
from fake_compute import PROJECT
from patience import until
from ssh_server import SshServer
from worker_parts import HERE, light_work

from ec1.corpus.threshold import TrainingDecision
from ec1.deployment import Deployment
from ec1.errors import DeferredError, PermanentError, ServiceError, SkippedError
from ec1.home import Home
from ec1.night.machines import machine_launcher, stop_if_done
from ec1.night.records import DecisionRecord, EvaluationRecord, PostponedRecord, Records

pytestmark = pytest.mark.slow
RECIPES = [("acme", "clerk"), ("acme", "scribe")]
RUN = "run-1"


@pytest.fixture
def deployment(cloud: Cloud, ssh_server: SshServer, tmp_path: Path) -> Deployment:
    """One whose machine is behind the sshd, with a stand-in for its Python that knows the light work."""
    there = tmp_path / "there"
    there.mkdir()
    parts = [sys.executable, HERE / "worker_parts.py", there / "store", there / "home", "there", "20", "0.2"]
    (there / "python").write_text(f'#!/bin/sh\nexec {shlex.join(map(str, parts))} "$@"\n')
    (there / "python").chmod(0o755)
    cloud.compute.vm(A)
    cloud.compute.host_keys = [ssh_server.host_key]
    user = ssh_server.address.split("@")[0]
    values: dict[str, Any] = {
        "name": "mine",
        "tenant": "acme",
        "recipes": [],
        "inference": {"kind": "vllm", "model": "acme/model"},
        "gpu": {"device": "cpu", "cost_per_hour": 1},
        "machine": {"kind": "gce", "project": PROJECT, "zones": [A], "daily_cost": 5},
        "launcher": {
            **{"kind": "ssh", "options": ["-l", user, *ssh_server.login], "python": str(there / "python")},
            **{"folder": str(there), "follow_seconds": 0.2, "wait_seconds": 120},
        },
    }
    return Deployment.model_validate(values)


def begin(cloud: Cloud, deployment: Deployment, home: Home) -> Any:
    home.create()
    machine = cloud.machine(beat_seconds=0.1)
    return machine_launcher(deployment, home, machine, "training", NIGHT, cloud.tell)


def test_work_boots_the_machine_goes_there_and_comes_back(
    cloud: Cloud, deployment: Deployment, home: Home, tmp_path: Path
) -> None:
    work = light_work(tmp_path / "night")
    assert deployment.trains_on_machine and not cloud.compute.calls
    with begin(cloud, deployment, home) as launcher:
        launcher.run(work, {}, tmp_path / "log.txt")
        cloud.now += 100
    assert (work.output / "steps.txt").read_text() == "0\n1\n2\n"
    assert len(cloud.compute.running()) == 1, "the evaluation comes next"
    with begin(cloud, deployment, home) as launcher, pytest.raises(PermanentError, match="as it should"):
        launcher.run(light_work(tmp_path / "bad", fail="as it should"), {}, tmp_path / "log.txt")
    assert len(cloud.compute.running()) == 1, "it is not the machine's fault"
    (session,) = cloud.machine().ledger.read().sessions
    assert session.phases["training"] >= 100
    assert cloud.machine().stop_unused() and not cloud.compute.running()


def test_a_machine_with_another_key_gets_nothing_and_is_stopped(
    cloud: Cloud, deployment: Deployment, home: Home, tmp_path: Path
) -> None:
    cloud.compute.host_keys = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"]
    with pytest.raises(ServiceError, match="Host key verification failed"), begin(cloud, deployment, home) as launcher:
        launcher.run(light_work(tmp_path / "night"), {}, tmp_path / "log.txt")
    assert not cloud.compute.running() and not (tmp_path / "there" / "store").exists()


def test_a_machine_that_is_taken_away_defers_and_the_next_one_goes_on(
    cloud: Cloud, deployment: Deployment, home: Home, tmp_path: Path
) -> None:
    work = light_work(tmp_path / "night", steps=3000, seconds=0.1)
    log = tmp_path / "log.txt"

    def take_away() -> None:
        until(lambda: log.exists() and "step 1" in log.read_text())
        with cloud.compute.lock:
            (vm,) = cloud.compute.running()
            cloud.compute.halt(vm, cloud.now, "preempted")

    thread = threading.Thread(target=take_away)
    thread.start()
    with pytest.raises(DeferredError, match="preempted, or stopped"), begin(cloud, deployment, home) as launcher:
        launcher.run(work, {}, log)
    thread.join()
    assert cloud.machine().ledger.open_session() is None, "its books are closed"
    other = light_work(tmp_path / "other")
    with begin(cloud, deployment, home) as launcher:
        launcher.run(other, {}, log)
    steps = list((tmp_path / "there").rglob("steps.txt"))
    assert (other.output / "steps.txt").is_file()
    assert all(len(each.read_text().split()) < 3000 for each in steps), "what was left there was withdrawn"
    assert len(cloud.machine().ledger.read().sessions) == 2


def test_no_machine_tonight_is_no_failure(cloud: Cloud, deployment: Deployment, home: Home, tmp_path: Path) -> None:
    cloud.compute.stock_out = {A}
    with pytest.raises(DeferredError, match="later night"), begin(cloud, deployment, home):
        pass
    (tmp_path / "machine-off").write_text("closed")
    with pytest.raises(SkippedError, match="closed"), begin(cloud, deployment, home):
        pass
    assert not cloud.compute.running()


def test_it_is_stopped_when_the_last_recipe_is_done_and_not_before(
    cloud: Cloud, deployment: Deployment, home: Home
) -> None:
    machine = cloud.machine()
    clerk, scribe = (Records(home.run(*each, NIGHT)) for each in RECIPES)

    def still_runs() -> bool:
        with machine.reserved():
            stop_if_done(machine, home, NIGHT, RUN, RECIPES, cloud.tell)
        return bool(cloud.compute.running())

    def decide(records: Records, train: bool) -> None:
        decision = TrainingDecision(train, "", trainable=1, new=1, threshold=1, snapshot="a", trained_snapshot=None)
        records.write(RUN, DecisionRecord(decision=decision))

    with machine.up("inference", NIGHT, keep=True, progress=cloud.tell):
        pass
    assert still_runs(), "nobody has decided"
    decide(clerk, True)
    assert still_runs(), "one has not"
    decide(scribe, True)
    assert still_runs()
    clerk.write(RUN, EvaluationRecord(verdict="accepted"))
    assert still_runs(), "one is still to be trained"
    scribe.write(RUN, PostponedRecord(reason="no time", needs_seconds=1, left_seconds=0))
    assert not still_runs()

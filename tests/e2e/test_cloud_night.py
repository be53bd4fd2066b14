"""Nights of a deployment whose GPU is in a booted machine: real runs of Dagster, a fake of Google's API."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fake_compute import PROJECT, FakeCompute, fake_compute
from light import DEPLOYMENT, MODEL, RECIPE, LightCommandLine
from ssh_server import SshServer

from ec1.extraction.reading.progress import ExtractionRecord
from ec1.home import Home
from ec1.night.records import HandoverRecord, MachineRecord, OutcomeRecord, PostponedRecord, Records
from ec1.night.report.summary import night_report

pytestmark = pytest.mark.system
NIGHT = "2026-06-05"
ZONE = "us-central1-a"
ROLE = ("fernhollow", "engineering")
MACHINE = """
machine:
  kind: gce
  project: {project}
  zones: [{zone}]
  engine_port: {port}
  endpoint: {address}
  poll_seconds: 0.2
  dead_man_seconds: 60
  daily_cost: 5
  daily_starts: 50
"""


@pytest.fixture
def compute() -> Iterator[FakeCompute]:
    with fake_compute() as fake:
        fake.vm(ZONE)
        yield fake


@pytest.fixture
def ec1(small_model: Path, project: Path, tmp_path: Path, compute: FakeCompute) -> LightCommandLine:
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    text = DEPLOYMENT.format(sample=project / "examples", model=MODEL, folder=small_model)
    text = text.replace("recipes: [recipes]", "recipes: []").replace("tokens_per_second: 100", "cost_per_hour: 1.0")
    text += MACHINE.format(project=PROJECT, zone=ZONE, port=compute.engine_port, address=compute.address)
    (tmp_path / "configs" / "deployments" / "light.yaml").write_text(text)
    return LightCommandLine(project, Home(tmp_path / "home"), "light")


@pytest.fixture
def trains(
    ec1: LightCommandLine, small_model: Path, tiny_model: Path, compute: FakeCompute, ssh_server: SshServer
) -> LightCommandLine:
    """The same with a recipe. What runs on the machine is here, behind a real sshd, and ends when the machine does."""
    folder = ec1.home.root.parent
    deployment = folder / "configs" / "deployments" / "light.yaml"
    other = DEPLOYMENT.format(sample="nowhere", model=MODEL, folder=tiny_model).replace("sample: nowhere\n", "")
    launcher = way_there(folder, other, ssh_server)
    text = deployment.read_text().replace("recipes: []", "recipes: [recipes]")
    text = text.replace(str(small_model), str(tiny_model))
    deployment.write_text(f"{text}launcher: {json.dumps(launcher)}\n")
    (folder / "recipes").mkdir()
    (folder / "recipes" / "engineering.yaml").write_text(RECIPE.format(model=MODEL))
    compute.host_keys = [ssh_server.host_key]
    compute.halted = lambda: end_all_of(folder / "there")
    return ec1


def way_there(folder: Path, deployment: str, server: SshServer) -> dict[str, object]:
    """The launcher to a machine behind `server`, which works in `folder/there` by a deployment of its own."""
    worker = "worker: {beat_seconds: 1, expire_seconds: 20}\n"
    (folder / "configs" / "deployments" / "there.yaml").write_text(deployment + worker)
    user = server.address.split("@")[0]
    way = {"kind": "ssh", "options": ["-l", user, *server.login], "python": sys.executable, "deployment": "there"}
    return {**way, "folder": str(folder / "there"), "project": str(folder), "follow_seconds": 1, "wait_seconds": 300}


def end_all_of(folder: Path) -> None:
    """End whatever runs in a folder, as a machine that stops does."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in each for each in process.cmdline()) and process.name() != "ssh":
                process.kill()


def _records(ec1: LightCommandLine) -> Records:
    return Records(ec1.home.night(NIGHT))


def test_a_night_boots_its_machine_and_stops_it(ec1: LightCommandLine, compute: FakeCompute) -> None:
    _done(ec1, compute, boots=1)


@pytest.mark.soak
def test_nights_in_the_cloud(ec1: LightCommandLine, compute: FakeCompute) -> None:
    """One home, one situation after the other: each ends with a reason, and never does a machine stay."""
    _stock_out(ec1, compute)
    _switched_off(ec1, compute)
    _killed(ec1, compute)
    _done(ec1, compute, boots=2)
    _nothing_to_do(ec1, compute)


def test_a_night_trains_on_the_machine_that_it_booted(trains: LightCommandLine, compute: FakeCompute) -> None:
    _trained(trains, compute, boots=1)
    costs = night_report(trains.home, NIGHT).costs
    assert costs["extraction"] > 0 and costs["/".join(ROLE)] > 0, "who used it pays"
    there = trains.home.root.parent / "there"
    assert not list(there.glob("home/runs/*")) and "completed" in (there / "worker.log").read_text()


@pytest.mark.soak
def test_trainings_in_the_cloud(trains: LightCommandLine, compute: FakeCompute) -> None:
    """One home again: a night without a machine, one that is switched off, one whose machine is taken away while it
    trains, one that is killed then, and at last one with nothing to read, whose training boots the machine."""
    compute.stock_out = {ZONE}
    night = trains.run("night", "--date", NIGHT)
    assert night.returncode == 3, night.stdout
    _waits(trains, "partial", "no zone has a machine now")
    compute.stock_out = set()

    trains.home.machine_off.write_text("closed for the fair")
    assert trains.run("night", "--date", NIGHT).returncode == 3
    _waits(trains, "skipped", "closed for the fair")
    trains.home.machine_off.unlink()

    with trains.start("night", "--date", NIGHT, own_group=True) as process:
        _until_it_trains(trains, process)
        # Taken away by Google, not by us.
        with compute.lock:
            (vm,) = compute.running()
            compute.halt(vm, time.time(), "preempted")
        process.communicate(timeout=600)
    assert process.returncode == 3 and not compute.running()
    _waits(trains, "partial", "preempted, or stopped")
    assert night_report(trains.home, NIGHT).documents_deferred == 0

    boots = len(compute.vms[ZONE, "ec1-gpu"].ran)
    with trains.start("night", "--date", NIGHT, own_group=True) as process:
        _until_it_trains(trains, process)
        for number in (*(each.pid for each in trains.processes()), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    assert compute.running(), "nobody has come by yet"
    assert trains.run("doctor", "--reconcile").stdout.count("ec1-gpu: stopped") == 1
    assert not compute.running()

    _trained(trains, compute, boots=boots + 2)
    last = Records(trains.home.night(NIGHT)).all(ExtractionRecord)[-1]
    assert last.llm_calls == 0, "it was booted for the training alone"


def _until_it_trains(ec1: LightCommandLine, process: "subprocess.Popen[str]") -> None:
    work = ec1.home.root.parent / "there" / "home" / "cache" / "worker" / "orders"
    before = {path: path.stat().st_mtime for path in work.glob("*/reports/*/log.txt")}
    deadline = time.monotonic() + 600
    while not any(path not in before for path in work.glob("*/reports/*/log.txt")):
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.2)


def _waits(ec1: LightCommandLine, status: str, reason: str) -> None:
    report = night_report(ec1.home, NIGHT)
    (recipe,) = report.recipes
    assert (report.status, recipe.outcome) == (status, "postponed") and reason in recipe.detail, recipe.detail
    assert report.failure is None
    late = Records(ec1.home.run(*ROLE, NIGHT)).find(PostponedRecord)
    assert late is not None and late.switched_off == (status == "skipped")


def _trained(ec1: LightCommandLine, compute: FakeCompute, boots: int) -> None:
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode == 0, night.stdout
    assert not compute.running()
    used = _records(ec1).find(MachineRecord)
    assert used is not None and used.boots == boots and used.seconds == pytest.approx(compute.seconds(), abs=2)
    assert used.phases["training"] > 0 and used.phases["evaluation"] > 0
    outcome = Records(ec1.home.run(*ROLE, NIGHT)).find(OutcomeRecord)
    assert outcome is not None and outcome.path.is_dir()
    report = night_report(ec1.home, NIGHT)
    assert report.status == "done" and sum(report.costs.values()) == pytest.approx(used.cost)


def _stock_out(ec1: LightCommandLine, compute: FakeCompute) -> None:
    compute.stock_out = {ZONE}
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode == 3, night.stdout
    report = night_report(ec1.home, NIGHT)
    assert report.status == "partial" and "later night" in (report.deferred_because or "")
    assert report.machine is not None and report.machine.refused == ["stock-out"] and report.cost == 0
    compute.stock_out = set()


def _switched_off(ec1: LightCommandLine, compute: FakeCompute) -> None:
    ec1.home.machine_off.write_text("closed for the fair")
    calls = len(compute.calls)
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode == 3 and len(compute.calls) == calls, night.stdout
    report = night_report(ec1.home, NIGHT)
    assert report.status == "skipped" and "closed for the fair" in (report.deferred_because or "")
    ec1.home.machine_off.unlink()


def _killed(ec1: LightCommandLine, compute: FakeCompute) -> None:
    """The night is killed with all that it started while the machine boots; the next command finds the machine."""
    compute.boot_seconds = 3600
    with ec1.start("night", "--date", NIGHT, own_group=True) as process:
        deadline = time.monotonic() + 300
        while not compute.running():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        for number in (*(each.pid for each in ec1.processes()), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    assert compute.running(), "nobody has come by yet"
    compute.boot_seconds = 0
    assert ec1.run("doctor", "--reconcile").stdout.count("ec1-gpu: stopped") == 1
    assert not compute.running()


def _done(ec1: LightCommandLine, compute: FakeCompute, boots: int) -> None:
    compute.engine_seconds = 2
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode == 0, night.stdout
    assert not compute.running() and compute.serves() is None
    done = _records(ec1).total(ExtractionRecord)
    assert done is not None and done.documents > 5 and done.entities["Person"] > 5
    used, handover = _records(ec1).find(MachineRecord), _records(ec1).find(HandoverRecord)
    assert used is not None and handover is not None and "stopped" in handover.device
    assert used.seconds == pytest.approx(compute.seconds(), abs=2) and used.boots == boots
    report = json.loads(ec1.run("report", "--date", NIGHT, "--json").stdout)
    assert report["status"] == "done" and report["machine"]["zones"] == [ZONE]
    assert night_report(ec1.home, NIGHT).costs == pytest.approx({"extraction": used.cost})
    text = ec1.run("report", "--date", NIGHT).stdout
    assert f"in {ZONE}, {boots} boot" in text and "(extraction " in text
    log = "".join(path.read_text(errors="replace") for path in ec1.home.logs.glob("*"))
    assert "ec1-engine-key" not in log


def _nothing_to_do(ec1: LightCommandLine, compute: FakeCompute) -> None:
    """Nothing boots, and Google is not even asked; the switch does not matter then."""
    calls = len(compute.calls)
    ec1.home.machine_off.write_text("")
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode == 0 and len(compute.calls) == calls, night.stdout
    assert night_report(ec1.home, NIGHT).status == "done"

"""A month of nights on a booted machine, with all that goes wrong: a clock that the test moves, a real instance of
Dagster, the schedule's own decisions, and a fake of Google's API.

The month is October in Berlin, when clocks go back. Time passes only by what the machine does: booting, loading,
answering, training. So the seconds that were paid for can be compared with those that were needed. Trainings are real
ones of a tiny model, on a worker behind a real sshd, whose processes end when the machine does.
"""

import datetime as dt
import errno
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from cloud_machines import Cloud
from fake_compute import PROJECT, FakeCompute, fake_compute
from light import DEPLOYMENT, MODEL, RECIPE
from ssh_server import SshServer
from test_cloud_night import end_all_of, way_there

from ec1.documents.ledger import Status
from ec1.extraction.reading.outbox import Outbox
from ec1.graph.reader import GraphReader, published_ledger
from ec1.home import Home
from ec1.launch.launcher import DeviceWork, Launcher
from ec1.launch.ssh_launcher import SshLauncherSettings
from ec1.machines.machine import Machine
from ec1.night.records import CandidateRecord, MachineRecord, OutcomeRecord, Records
from ec1.night.report.summary import night_report
from ec1_assets.definitions import build_defs
from jobs import conclusion
from jobs.nightly import NIGHTLY_JOB
from resources.environment import DeploymentChoice
from resources.project import ProjectResource
from schedules.nightly import requests_of_tick

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = ("us-central1-a", "us-east4-c")
A, B = ZONES
OCTOBER = [dt.date(2026, 10, day) for day in range(1, 32)]
A_DAY = 6
"""Documents a day."""
BOOT, LOAD, ANSWER, DAILY_COST = 403.0, 207.0, 60.0, 2.0
TICK, TICKS = 10.0, 60
"""A training or an evaluation moves the clock so often, at most: it takes a little real time, whatever the machine."""
TUPLES = (3, 9, 28)
"""Days on which enough came to train."""
RECIPES = {"fernhollow/clerk"}
OUTAGE = (10, 11, 12, 13)
"""Days whose tick did not come: the daemon was down."""
FIRST = ("Maria", "Jonas", "Priya", "Chen", "Amara", "Luca", "Sofia", "Omar", "Ingrid", "Pablo", "Keiko", "Viktor")
LAST = (
    *("Alvarez", "Becker", "Chandra", "Dubois", "Eriksen", "Fontana", "Goldman", "Haddad", "Ivanov", "Jansen"),
    *("Kowalski", "Lindgren", "Moreau", "Novak", "Okafor", "Petrov"),
)
NAMES = [f"{first} {last}" for last, first in itertools.product(LAST, FIRST)]


class Month:
    """The deployment, its home, and the fake cloud under the month's clock."""

    def __init__(self, cloud: Cloud, home: Home, choice: DeploymentChoice) -> None:
        self.cloud = cloud
        self.home = home
        self.defs = build_defs(choice)
        self.needed = 0.0
        """Machine seconds: of a start that served, boot, load and answers; of one that was lost, what it ran."""
        self.answers: list[float] = []
        self.counted = 0
        self.names: list[str] = []
        self.ticks: list[float] = []
        self.tuples = 0
        self.take_away = False
        """Whether the machine is preempted as soon as it trains."""

    @property
    def compute(self) -> FakeCompute:
        return self.cloud.compute

    def machine(self) -> Machine:
        machine = self.cloud.machine(
            owner="light@here", beat_seconds=0.05, daily_cost=DAILY_COST, daily_starts=6, max_lifetime_seconds=14400
        )
        return machine

    def write_documents(self, day: dt.date) -> None:
        """The day's documents, of noon."""
        noon = dt.datetime.combine(day, dt.time(12), BERLIN).timestamp()
        folder = self.home.documents / "service-minutebook" / "assets"
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(A_DAY):
            name = NAMES[len(self.names)]
            self.names.append(name)
            path = folder / f"{day}-{len(self.names)}.md"
            path.write_text(f"We met in the office. {name} explained what is left to do until the end of the week.\n")
            os.utime(path, (noon, noon))

    def write_tuples(self, day: dt.date) -> None:
        """Enough to train, of noon."""
        path = self.home.corpus / "clerk" / f"{day}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = []
        for number in range(self.tuples, self.tuples + 24):
            what = f"What is the number of {NAMES[number % len(NAMES)]} in file {number}?"
            rows.append({"prompt": what, "completion": f"It is {number * 7919 % 10007}, as file {number} says."})
        self.tuples += len(rows)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        noon = dt.datetime.combine(day, dt.time(12), BERLIN).timestamp()
        os.utime(path, (noon, noon))

    def working(self, inner: Launcher) -> Launcher:
        """A launcher whose work takes time of the month."""
        month = self

        class Slow:
            def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> None:
                done = threading.Event()

                def pass_time() -> None:
                    for _ in range(TICKS):
                        # Slower than the beats, which are in real time.
                        if done.wait(0.2):
                            return
                        with month.compute.lock:
                            for vm in month.compute.running():
                                month.cloud.now += TICK
                                month.ticks.append(month.cloud.now)
                                if month.take_away:
                                    month.take_away = False
                                    month.compute.halt(vm, month.cloud.now, "preempted")

                clock = threading.Thread(target=pass_time)
                clock.start()
                try:
                    inner.run(work, env, log)
                finally:
                    done.set()
                    clock.join()

        return Slow()

    def count_needed(self) -> None:
        """Count the starts that are new since the last time."""
        sessions = self.machine().ledger.read().sessions
        for each in sessions[self.counted :]:
            ran = each.seconds(self.cloud.now)
            # One start may begin in the second in which the one before ended.
            served = sum((each.running or 0) < at <= (each.ended or 0) for at in self.answers)
            trained = sum((each.running or 0) < at <= (each.ended or 0) for at in self.ticks)
            least = self.compute.boot_seconds + (LOAD if served else 0) + served * ANSWER + trained * TICK
            self.needed += least if each.end == "stopped" and (served or trained) else ran
        self.counted = len(sessions)

    def run(self, instance: dg.DagsterInstance, night: str) -> None:
        """One run of a night, and what follows every run."""
        job = self.defs.get_job_def(NIGHTLY_JOB)
        machine = self.machine()
        with machine.reserved():
            done = job.execute_in_process(instance=instance, partition_key=night, raise_on_error=False)
        conclusion.conclude(instance, self.home, done.run_id)


@pytest.fixture
def month(
    tiny_model: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ssh_server: SshServer
) -> Iterator[Month]:
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    home = Home(tmp_path / "home")
    home.create()
    with fake_compute() as compute:
        text = DEPLOYMENT.format(sample="nowhere", model=MODEL, folder=tiny_model).replace("sample: nowhere\n", "")
        (tmp_path / "recipes").mkdir()
        recipe = RECIPE.format(model=MODEL).replace("role: engineering", "role: clerk")
        (tmp_path / "recipes" / "clerk.yaml").write_text(recipe)
        text += f"launcher: {json.dumps(way_there(tmp_path, text, ssh_server))}\n"
        text = text.replace("tokens_per_second: 100", "cost_per_hour: 1.0")
        text = text.replace("first_night: 2026-06-01", "first_night: 2026-10-01, timezone: Europe/Berlin")
        text = text.replace("max_answer_tokens: 400", "max_answer_tokens: 400, max_in_flight: 2, quarantine_after: 20")
        text += f"machine: {{kind: gce, project: {PROJECT}, zones: [{A}], daily_cost: {DAILY_COST}}}\n"
        (tmp_path / "configs" / "deployments" / "light.yaml").write_text(text)
        for name, value in (("DEPLOYMENT", "light"), ("HOME", str(home.root)), ("PROJECT", str(tmp_path))):
            monkeypatch.setenv(f"EC1_{name}", value)
        cloud = Cloud(compute, home.root, BERLIN)
        compute.vm(A)
        compute.vm(B)
        compute.boot_seconds, compute.engine_seconds, compute.end_engine_seconds = BOOT, LOAD, 20.0
        found = Month(cloud, home, DeploymentChoice("light", home.root, tmp_path))
        compute.host_keys = [ssh_server.host_key]
        compute.halted = lambda: end_all_of(tmp_path / "there")

        def answered() -> None:
            # Slower than the beats, which are in real time.
            time.sleep(0.05)
            with compute.lock:
                cloud.now += ANSWER
                found.answers.append(cloud.now)

        compute.answered = answered
        # All that is replaced: where the machine's clock comes from, and what work does to it.

        launcher = SshLauncherSettings.launcher

        def slow(*given: Any, **named: Any) -> Launcher:
            return found.working(launcher(*given, **named))

        monkeypatch.setattr(SshLauncherSettings, "launcher", slow)
        monkeypatch.setattr(ProjectResource, "machine", lambda self: found.machine())
        monkeypatch.setattr(conclusion, "machine_of", lambda deployment, home: found.machine())
        yield found


@pytest.mark.soak
@pytest.mark.timeout(5400)  # seven real trainings and evaluations
def test_a_month(month: Month, monkeypatch: pytest.MonkeyPatch) -> None:
    compute, cloud, home = month.compute, month.cloud, month.home
    nights = dg.DailyPartitionsDefinition(start_date="2026-10-01", timezone="Europe/Berlin")
    instance = dg.DagsterInstance.ephemeral()
    put = Outbox.put
    statuses: dict[str, str] = {}
    for day in OCTOBER:
        month.write_documents(day)
        number = day.day
        if number in TUPLES:
            month.write_tuples(day)
        tick = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(2), BERLIN)
        cloud.now = max(cloud.now, tick.timestamp())
        assert compute.running() == []
        if number in OUTAGE:
            continue
        # What goes wrong today.
        compute.stock_out = {3: {A, B}, 4: {A}, 17: {A, B}, 18: {A, B}, 22: {A}}.get(number, set())
        compute.quota = {A, B} if number == 6 else set()
        compute.forbidden = number == 8
        taken: dict[int, list[float | None]] = {5: [700.0], 15: [0.0], 20: [900.0], 25: [100.0]}
        compute.preempt_after = taken.get(number, [])
        month.take_away = number == 28
        compute.boot_seconds = {7: 4500.0, 21: 9999.0}.get(number, BOOT)
        compute.cuda = "a product of matrices is wrong" if number == 23 else "ok"
        compute.faults = [503, 0, 500, 503] if number == 24 else []
        home.machine_off.unlink(missing_ok=True)
        if number in (9, 27):
            home.machine_off.write_text("the invoice is under review")
        if number == 26:
            monkeypatch.setattr(Outbox, "put", _full_disk)
        asked = requests_of_tick(instance, home, nights, tick, dt.datetime.fromtimestamp(cloud.now, dt.UTC), 120)
        assert isinstance(asked, list)
        for request in asked:
            assert request.partition_key is not None
            month.run(instance, request.partition_key)
        monkeypatch.setattr(Outbox, "put", put)
        month.count_needed()
        machine = month.machine()
        assert compute.running() == [] and machine.ledger.open_session() is None, f"left running on {day}"
        assert machine.ledger.cost_of_day(cloud.now) <= DAILY_COST
        report = night_report(home, day.isoformat())
        statuses[day.isoformat()] = report.status
        if report.status != "done":
            waits = [each.detail for each in report.recipes if each.outcome == "postponed"]
            told = report.deferred_because or report.failure or any(waits)
            assert told, f"{day}: {report.status} without a reason"

    _every_night_ended(home, statuses)
    _every_document_counted_once(month)
    _the_machine_ran_no_longer_than_needed(month)
    _every_training_ended(home)


def _full_disk(self: Outbox, *arguments: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _every_night_ended(home: Home, statuses: dict[str, str]) -> None:
    final = {day.isoformat(): night_report(home, day.isoformat()).status for day in OCTOBER}
    print("as first run:", statuses)
    print("in the end:", final)
    assert set(final.values()) <= {"done", "partial", "skipped", "failed"}
    for number, expected in {3: "partial", 9: "skipped", 27: "skipped", 17: "partial", 21: "partial"}.items():
        assert statuses[f"2026-10-{number:02}"] == expected
    assert {statuses[f"2026-10-{number:02}"] for number in (6, 8, 23)} == {"failed"}
    # What failed and what the outage left out was caught up; after the eighth on a day that was switched off.
    assert all(final[f"2026-10-{number:02}"] == "done" for number in (6, 10, 11, 12, 13, 23))
    assert final["2026-10-08"] == "skipped"
    assert final["2026-10-31"] == "done"


def _every_training_ended(home: Home) -> None:
    """What was due was trained on its night or on a later one, and no training failed."""
    found = {day.day: Records(home.run("fernhollow", "clerk", day.isoformat())) for day in OCTOBER}
    settled = [number for number, records in found.items() if records.find(OutcomeRecord)]
    trained = [number for number, records in found.items() if records.find(CandidateRecord)]
    print("trained on", trained, "settled on", settled)
    reports = {day.day: night_report(home, day.isoformat()) for day in OCTOBER}
    waited = [
        number for number, report in reports.items() if any(each.outcome == "postponed" for each in report.recipes)
    ]
    print("postponed on", waited)
    # No machine, switched off, taken away in the middle: each time the next night that can makes up for it.
    assert waited[:2] == [3, 9] and 28 in waited
    assert len(settled) == 3 and settled[0] == 4 and 10 <= settled[1] <= 14 and settled[2] == 29
    assert all(report.failure is None for number, report in reports.items() if number in (*waited, *settled))
    for number in settled:
        assert RECIPES & set(reports[number].costs), f"the machine of {number} was for the recipe too"


def _every_document_counted_once(month: Month) -> None:
    ledger = published_ledger(month.home.published_graph)
    assert len(ledger) == len(month.names) == A_DAY * len(OCTOBER)
    assert {entry.status for entry in ledger.values()} == {Status.APPLIED}
    with GraphReader(month.home.published_graph) as reader:
        rows = reader.query("MATCH (:Document)-[m:MENTIONS]->(:Entity) RETURN m.name AS name")
    assert sorted(row["name"] for row in rows) == sorted(month.names), "one mention of each document's one person"


def _the_machine_ran_no_longer_than_needed(month: Month) -> None:
    paid, needed = month.compute.seconds(), month.needed
    booked = sum(each.seconds(month.cloud.now) for each in month.machine().ledger.read().sessions)
    print(f"paid {paid:.0f} s, booked {booked:.0f} s, needed {needed:.0f} s, ratio {paid / needed:.3f}")
    assert booked == pytest.approx(paid, abs=60)
    assert paid <= 1.1 * needed
    records = [Records(month.home.night(day.isoformat())).find(MachineRecord) for day in OCTOBER]
    assert sum(each.seconds for each in records if each) == pytest.approx(paid, abs=60)

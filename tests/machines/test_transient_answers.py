"""Google's transient answers are waited for within the night's bound: no night fails by them, nothing is paid twice.

Each call may be refused (429, 503, `rateLimitExceeded`, `resourceNotReady`), each accepted change may fail afterwards
(`RESOURCE_NOT_READY`, `RATE_LIMIT_EXCEEDED`, …), and now and then everything does for minutes.
"""

import contextlib
import datetime as dt
import random

import pytest
from cloud_machines import NIGHT, A, Cloud
from fake_compute import TEMPLATE

from ec1.errors import DeferredError, PermanentError
from ec1.machines.cloud import NotNowError
from ec1.machines.machine import Machine
from ec1.machines.running import Running

CALLS = ("rateLimitExceeded", "userRateLimitExceeded", "backendError", "resourceNotReady")
CHANGES = ("RESOURCE_NOT_READY", "RATE_LIMIT_EXCEEDED", "RESOURCE_OPERATION_RATE_EXCEEDED", "INTERNAL_ERROR")
ARGUMENTS = ["--served-model-name", "olmo"]


class Weather:
    """What the API refuses, by a seed: single calls and changes, and outages of some minutes."""

    def __init__(self, cloud: Cloud, seed: int) -> None:
        self.cloud = cloud
        self.rng = random.Random(seed)
        self.outage_until = 0.0
        self.refused = 0

    def __call__(self, call: str) -> str | None:
        if self.cloud.now > self.outage_until + 600 and self.rng.random() < 0.02:
            self.outage_until = self.cloud.now + self.rng.uniform(30, 240)
        reasons = CHANGES if call.startswith("operation ") else CALLS
        if self.cloud.now < self.outage_until or self.rng.random() < 0.08:
            self.refused += 1
            return self.rng.choice(reasons)
        return None


def night(machine: Machine, cloud: Cloud, date: str) -> None:
    """Both phases, as a night has them."""
    with machine.reserved():
        with (
            machine.up("inference", date, keep=True, progress=cloud.tell) as running,
            running.engine(ARGUMENTS, "olmo", cloud.tell),
        ):
            work(running, cloud, 600)
        machine.handover(cloud.tell)
        with machine.up("training", date, keep=False, progress=cloud.tell) as running:
            work(running, cloud, 900)


def work(running: Running, cloud: Cloud, seconds: float) -> None:
    """Use the machine for so long, while it is looked after as in the background of a night."""
    end = cloud.now + seconds
    while cloud.now < end:
        with contextlib.suppress(NotNowError):
            running.beat()
        cloud.now += 60
    assert running.lost() is None


@pytest.mark.parametrize("nights", [10, pytest.param(120, marks=pytest.mark.soak)])
def test_all_nights_are_done_whatever_passes_by_itself(cloud: Cloud, nights: int) -> None:
    weather = Weather(cloud, nights)
    cloud.compute.vm(A)
    cloud.compute.boot_seconds, cloud.compute.engine_seconds = 200, 100
    cloud.compute.transient = weather
    first = dt.datetime.fromtimestamp(cloud.now, cloud.zone)
    machine = cloud.machine(daily_cost=4.0, daily_starts=6)
    for number in range(nights):
        begin = first + dt.timedelta(days=number)
        cloud.now = begin.timestamp()
        night(machine, cloud, begin.date().isoformat())
        machine.stop_unused()
    assert weather.refused > 3 * nights, "many a night met it"
    assert not cloud.compute.running()
    booked = sum(each.seconds(cloud.now) for each in machine.ledger.read().sessions)
    assert booked == pytest.approx(cloud.compute.seconds(), abs=2 * nights)
    done = {each.night for each in machine.ledger.read().sessions if set(each.phases) == {"inference", "training"}}
    assert len(done) == nights
    print(f"{nights} of {nights} nights done; {weather.refused} answers refused; {booked / nights:.0f} s paid a night")


def test_what_does_not_pass_defers_when_the_time_to_get_ready_is_over(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    cloud.compute.transient = lambda call: "RESOURCE_NOT_READY" if call == "operation start" else None
    begin = cloud.now
    with (
        pytest.raises(DeferredError, match=r"RESOURCE_NOT_READY.*; so for .* s: it is tried again on a later night"),
        cloud.machine(ready_timeout_seconds=1800).up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass
    assert 1600 < cloud.now - begin <= 1900
    assert cloud.compute.seconds() == 0 and cloud.machine().ledger.cost_of_day(cloud.now) == 0


def test_a_machine_whose_creation_was_answered_by_an_error_is_not_made_twice(cloud: Cloud) -> None:
    lost = ["once"]

    def transient(call: str) -> str | None:
        # The change took effect, and what asks for its state is refused for longer than one call tries.
        created = (A, "ec1-gpu") in cloud.compute.vms
        if created and lost and "/operations/" in call:
            return "backendError"
        if created and "GET" in call and "/operations/" not in call:
            lost.clear()
        return None

    cloud.compute.transient = transient
    cloud.compute.operation_seconds = 1
    with cloud.machine(template=TEMPLATE).up("inference", NIGHT, keep=False, progress=cloud.tell):
        assert len(cloud.compute.vms[A, "ec1-gpu"].ran) == 1


def test_no_phase_begins_on_a_machine_that_would_not_end_by_itself(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    cloud.compute.dead_man_says = "ec1-dead-man.timer is inactive"
    with (
        pytest.raises(PermanentError, match=r"would not power itself off .*\(ec1-dead-man.timer is inactive\)"),
        cloud.machine().up("inference", NIGHT, keep=True, progress=cloud.tell),
    ):
        raise AssertionError("work was begun there")
    assert vm.status == "TERMINATED"
    (session,) = cloud.machine().ledger.read().sessions
    assert session.phases == {}


def test_one_that_never_reports_is_told_from_a_slow_one(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    cloud.compute.boot_seconds = 10**6
    with (
        pytest.raises(DeferredError, match=r"has not reported within .* \(1200 s\); .*without the startup-script"),
        cloud.machine(ready_timeout_seconds=1200).up("inference", NIGHT, keep=True, progress=cloud.tell),
    ):
        pass


def test_a_time_that_is_none_in_the_metadata_is_named(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    vm.metadata |= {"ec1-owner": "somebody@else", "ec1-keep-until": "soon"}
    with (
        pytest.raises(PermanentError, match="ec1-keep-until of ec1-gpu in us-central1-a is 'soon', not seconds"),
        cloud.machine().up("inference", NIGHT, keep=True, progress=cloud.tell),
    ):
        pass

"""A machine that is booted for a phase: started, kept and stopped, against the API's real answers over HTTP."""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from cloud_machines import NIGHT, A, B, Cloud
from fake_compute import PROJECT, TEMPLATE

from ec1.errors import BusyError, DeferredError, PermanentError, ServiceError, SkippedError
from ec1.machines.cloud import QuotaError, StockOutError

HOUR = 3600.0
ARGUMENTS = ["--served-model-name", "olmo", "--max-model-len", "4096"]


def test_it_is_started_where_it_is_used_for_the_phase_and_stopped(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    cloud.compute.boot_seconds = 300
    with cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell) as running:
        assert (running.zone, running.address) == (A, "127.0.0.1")
        assert vm.status == "RUNNING" and vm.metadata["ec1-owner"] == "gce@control"
        cloud.now += 500
    assert vm.status == "TERMINATED" and cloud.compute.asked("/start") == 1
    (session,) = cloud.machine().ledger.read().sessions
    assert session.night == NIGHT and session.end == "stopped" and session.phases == {"inference": 500.0}
    assert session.seconds(cloud.now) == pytest.approx(cloud.compute.seconds(), abs=1)
    assert cloud.compute.seconds() < 500 + 300 + 30


def test_nothing_to_do_asks_google_nothing(cloud: Cloud) -> None:
    machine = cloud.machine()
    with machine.reserved():
        assert machine.stop_unused() and machine.handover(cloud.tell).free_gib == 0.0
    assert machine.seconds_left() is None and cloud.compute.calls == []


def test_an_existing_machine_keeps_its_metadata_and_gets_a_lifetime(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    vm.metadata["startup-script"] = "#!/bin/sh"
    with cloud.machine(max_lifetime_seconds=7200).up("inference", NIGHT, keep=False, progress=cloud.tell):
        assert vm.metadata["startup-script"] == "#!/bin/sh"
        assert vm.scheduling["maxRunDuration"] == {"seconds": "7200"}
        assert vm.scheduling["instanceTerminationAction"] == "STOP"
        assert vm.scheduling["provisioningModel"] == "SPOT" and not vm.scheduling["automaticRestart"]


def test_where_a_zone_has_none_it_is_created_from_the_template(cloud: Cloud) -> None:
    with cloud.machine(template=TEMPLATE).up("inference", NIGHT, keep=False, progress=cloud.tell):
        vm = cloud.compute.vms[A, "ec1-gpu"]
        assert vm.metadata["startup-script"] == "#!/bin/sh" and vm.metadata["ec1-owner"] == "gce@control"
        assert vm.scheduling["maxRunDuration"]
    with (
        pytest.raises(PermanentError, match=r"docs/gce\.md"),
        cloud.machine(instance="other").up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass


def test_a_stock_out_goes_to_the_next_zone_and_in_all_zones_defers(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    cloud.compute.vm(B)
    cloud.compute.operation_seconds = 4
    cloud.compute.stock_out = {A}
    with cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell) as running:
        assert running.zone == B
    cloud.compute.stock_out = {A, B}
    with (
        pytest.raises(StockOutError, match="later night"),
        cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass
    assert issubclass(StockOutError, DeferredError)
    sessions = cloud.machine().ledger.read().sessions
    assert {each.night for each in sessions} == {NIGHT}
    assert [each.end for each in sessions] == ["never began", "stopped", "never began", "never began"]
    assert [each.outcome for each in cloud.machine().ledger.read().asks] == [f"started in {B}", "stock-out"]


def test_a_machine_that_is_taken_away_while_it_boots_is_tried_elsewhere(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    cloud.compute.vm(B)
    cloud.compute.preempt_after = [0.0, None]
    with cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell) as running:
        assert running.zone == B
    assert cloud.compute.vms[A, "ec1-gpu"].why_stopped == ["preempted"]


def test_no_quota_is_for_a_person_and_no_rights_too(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    cloud.compute.vm(B)
    cloud.compute.quota = {A, B}
    with (
        pytest.raises(QuotaError, match="ask for the quota"),
        cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass
    cloud.compute.quota = {A}
    with cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell) as running:
        assert running.zone == B
    cloud.compute.forbidden = True
    with (
        pytest.raises(PermanentError, match=r"403.*grant"),
        cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass
    assert not isinstance(QuotaError(""), DeferredError)


@pytest.mark.parametrize("faults", [[503, 500, 429], [0], [503, 0, 503]])
def test_faults_of_the_api_are_tried_again_and_nothing_is_started_twice(cloud: Cloud, faults: list[int]) -> None:
    vm = cloud.compute.vm(A)
    cloud.compute.faults = list(faults)
    with cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell):
        pass
    assert len(vm.ran) == 1 and vm.status == "TERMINATED"


@pytest.mark.parametrize("at", range(14))
def test_an_answer_that_is_lost_at_any_call_costs_nothing_but_the_call(cloud: Cloud, at: int) -> None:
    vm = cloud.compute.vm(A)
    machine = cloud.machine()
    _lose_call(cloud, at)
    with machine.up("inference", NIGHT, keep=False, progress=cloud.tell):
        pass
    assert len(vm.ran) == 1 and vm.status == "TERMINATED" and cloud.machine().ledger.open_session() is None


def _lose_call(cloud: Cloud, number: int) -> None:
    """The connection is closed after call `number` took effect."""
    advance = cloud.compute.advance

    def counted() -> None:
        if len(cloud.compute.calls) == number:
            cloud.compute.faults = [0]
        advance()

    cloud.compute.advance = counted  # type: ignore[method-assign]


def test_an_api_that_does_not_answer_is_a_service_error_and_the_books_stay_open(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    machine = cloud.machine()
    with machine.up("inference", NIGHT, keep=True, progress=cloud.tell):
        cloud.compute.faults = [503] * 60
    with pytest.raises(ServiceError, match="cannot be asked"):
        machine.stop_unused()
    cloud.compute.faults = []
    assert vm.status == "RUNNING" and cloud.machine().ledger.open_session() is not None
    assert cloud.machine().stop_unused() and vm.status == "TERMINATED"


def test_metadata_that_somebody_else_writes_meanwhile_is_read_again(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    compute = cloud.machine().compute
    meddled: list[bool] = []
    advance = cloud.compute.advance

    def meddle() -> None:
        advance()
        if cloud.compute.asked("setMetadata") == 0 and len(cloud.compute.calls) == 1 and not meddled:
            meddled.append(True)
            vm.metadata["theirs"] = "kept"

    cloud.compute.advance = meddle  # type: ignore[method-assign]
    compute.set_metadata(A, "ec1-gpu", {"ours": "1"})
    assert vm.metadata == {"theirs": "kept", "ours": "1"} and cloud.compute.asked("setMetadata") == 2


def test_one_that_never_gets_ready_is_stopped_after_ninety_minutes_and_deferred(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    cloud.compute.boot_seconds = 10**6
    begin = cloud.now
    with (
        pytest.raises(DeferredError, match="ready_timeout_seconds"),
        cloud.machine().up("inference", NIGHT, keep=True, progress=cloud.tell),
    ):
        pass
    assert 5400 <= cloud.now - begin < 5400 + 60
    assert vm.status == "TERMINATED" and cloud.machine().ledger.open_session() is None
    looked = cloud.compute.asked("getGuestAttributes")
    assert 500 < looked < 600, "every ten seconds"


def test_one_that_boots_for_eighty_minutes_is_ready_then(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    cloud.compute.boot_seconds = 4800
    begin = cloud.now
    with cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell):
        assert 4800 <= cloud.now - begin < 4830
    (session,) = cloud.machine().ledger.read().sessions
    assert session.phases == {"inference": 0.0}, "the clock of the phase starts when the machine is ready"


def test_a_card_that_does_not_work_fails_and_the_machine_is_stopped(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    cloud.compute.cuda = "a product of matrices is wrong"
    with (
        pytest.raises(PermanentError, match="product of matrices"),
        cloud.machine().up("inference", NIGHT, keep=True, progress=cloud.tell),
    ):
        pass
    assert vm.status == "TERMINATED"


def test_an_error_in_the_phase_stops_it_too(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    with pytest.raises(ZeroDivisionError), cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell):
        _ = 1 / 0
    assert vm.status == "TERMINATED"


def test_between_the_phases_it_stays_and_only_the_server_ends(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    cloud.compute.engine_seconds, cloud.compute.end_engine_seconds = 600, 20
    first, second = cloud.machine(), cloud.machine()
    with second.reserved():
        with (
            first.up("inference", NIGHT, keep=True, progress=cloud.tell) as running,
            running.engine(ARGUMENTS, "olmo", cloud.tell) as endpoint,
        ):
            assert endpoint.base_url.startswith("http://127.0.0.1:") and cloud.compute.serves() is not None
            secret = endpoint.api_key
        assert secret and not any(secret in line for line in cloud.said) and secret not in repr(endpoint)
        assert "ec1-engine" not in vm.metadata and "ec1-engine-key" not in vm.metadata
        assert cloud.compute.serves() is None and vm.status == "RUNNING"
        assert second.handover(cloud.tell).free_gib == 21.5
        assert not cloud.machine().stop_unused(), "a night has it reserved"
        cloud.now += 300
        with second.up("training", NIGHT, keep=True, progress=cloud.tell) as running:
            assert running.zone == A
    assert cloud.machine().stop_unused()
    assert len(vm.ran) == 1 and cloud.compute.asked("/start") == 1
    assert set(cloud.machine().ledger.read().sessions[0].phases) == {"inference", "training"}


def test_a_server_that_does_not_end_costs_the_machine_not_the_handover(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    machine = cloud.machine()
    with (
        machine.up("inference", NIGHT, keep=True, progress=cloud.tell) as running,
        running.engine(ARGUMENTS, "olmo", cloud.tell),
    ):
        cloud.compute.engine_hangs = True
    memory = machine.handover(cloud.tell)
    assert vm.status == "TERMINATED" and "stopped" in memory.name


def test_a_server_that_fails_says_so_at_once(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    cloud.compute.engine_fails = "out of memory"
    begin = cloud.now
    with (
        pytest.raises(ServiceError, match="out of memory"),
        cloud.machine().up("inference", NIGHT, keep=True, progress=cloud.tell) as running,
        running.engine(ARGUMENTS, "olmo", cloud.tell),
    ):
        pass
    assert cloud.now - begin < 60 and not cloud.compute.running()


def test_a_preemption_is_seen_and_the_next_phase_boots_again(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    cloud.compute.preempt_after = [1800.0, None]
    machine = cloud.machine()
    with (
        machine.up("inference", NIGHT, keep=True, progress=cloud.tell) as running,
        running.engine(ARGUMENTS, "olmo", cloud.tell) as endpoint,
    ):
        assert endpoint.died() is None
        for _ in range(6):
            cloud.now += 300
            running.beat()
        assert "preempted" in str(endpoint.died())
    with machine.up("training", NIGHT, keep=False, progress=cloud.tell):
        pass
    lost, other = machine.ledger.read().sessions
    assert (lost.end, other.end) == ("lost", "stopped") and lost.seconds(cloud.now) == pytest.approx(1800)
    assert len(vm.ran) == 2
    assert lost.seconds(cloud.now) + other.seconds(cloud.now) == pytest.approx(cloud.compute.seconds(), abs=1)


def test_a_phase_that_goes_on_keeps_the_machine_up(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    with cloud.machine(dead_man_seconds=600).up("inference", NIGHT, keep=False, progress=cloud.tell) as running:
        for _ in range(60):
            cloud.now += 120
            running.beat()
        assert running.lost() is None and vm.status == "RUNNING"


def test_a_crash_leaves_a_machine_that_powers_itself_off(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    machine = cloud.machine()
    with machine.up("inference", NIGHT, keep=True, progress=cloud.tell):
        pass
    cloud.now += 10 * HOUR
    assert cloud.compute.running() == [] and vm.why_stopped == ["dead man"]
    assert cloud.compute.seconds() < 900 + 120
    assert machine.stop_unused()
    (session,) = machine.ledger.read().sessions
    assert session.end == "lost" and session.seconds(cloud.now) == pytest.approx(cloud.compute.seconds(), abs=1)


def test_without_a_dead_man_google_stops_it_after_its_lifetime(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    cloud.compute.dead_man = False
    with cloud.machine(max_lifetime_seconds=3600).up("inference", NIGHT, keep=True, progress=cloud.tell):
        pass
    cloud.now += 10 * HOUR
    assert cloud.compute.running() == [] and vm.why_stopped == ["lifetime"] and cloud.compute.seconds() == 3600


def test_what_a_crash_left_is_stopped_by_the_next_who_comes_by(cloud: Cloud, tmp_path: Path) -> None:
    """The process is really killed, in the middle of a phase."""
    vm = cloud.compute.vm(A)
    script = tmp_path / "phase.py"
    script.write_text(
        "import sys, time\nfrom pathlib import Path\nfrom zoneinfo import ZoneInfo\n"
        "from ec1.machines.settings import GceSettings\nfrom ec1.machines.installation import Installation\n"
        "from ec1.machines.machine import Machine\n"
        "home, address = Path(sys.argv[1]), sys.argv[2]\n"
        f"settings = GceSettings(kind='gce', project={PROJECT!r}, zones=({A!r},), daily_cost=5, endpoint=address)\n"
        "place = Installation(home / 'machine', home / 'machine-off', ZoneInfo('Europe/Berlin'), 'gce@control')\n"
        f"machine = Machine(settings, place, usd_per_hour=1.0, min_free_gib=20, clock=lambda: {cloud.now})\n"
        f"with machine.up('inference', {NIGHT!r}, keep=False, progress=print):\n"
        "    print('up', flush=True)\n    time.sleep(600)\n"
    )
    command = [sys.executable, str(script), str(cloud.home), cloud.compute.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line == "up\n" for line in process.stdout)
        assert not cloud.machine().stop_unused(), "it is in use"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert vm.status == "RUNNING"
    cloud.now += 60
    assert cloud.machine().stop_unused() and vm.status == "TERMINATED"
    assert cloud.machine().ledger.open_session() is None


def test_two_at_once_start_one_machine_and_the_last_one_stops_it(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    both, zones = threading.Barrier(2, timeout=60), []

    def phase() -> None:
        with cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell) as running:
            zones.append(running.zone)
            both.wait()

    threads = [threading.Thread(target=phase) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert zones == [A, A] and len(vm.ran) == 1 and vm.status == "TERMINATED"


def test_another_installation_s_machine_is_left_alone(cloud: Cloud) -> None:
    vm = cloud.compute.vm(A)
    with cloud.machine().up("inference", NIGHT, keep=True, progress=cloud.tell):
        pass
    other = Cloud(cloud.compute, cloud.home / "other", cloud.zone)
    other.now = cloud.now
    with (
        pytest.raises(BusyError, match="gce@control"),
        other.machine("gce@elsewhere").up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass
    assert vm.status == "RUNNING" and other.machine().stop_unused(), "it has no session of its own"


def test_the_kill_switch_skips(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    (cloud.home / "machine-off").write_text("the invoice is under review\n")
    with (
        pytest.raises(SkippedError, match=r"machine-off.*under review.*remove it"),
        cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass
    assert cloud.compute.calls == [] and cloud.machine().ledger.read().asks == []


def test_the_day_s_starts_are_bounded_whoever_asks(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    for _ in range(2):
        with cloud.machine(daily_starts=2).up("inference", NIGHT, keep=False, progress=cloud.tell):
            pass
    with (
        pytest.raises(DeferredError, match="daily_starts"),
        cloud.machine(daily_starts=2).up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass
    cloud.now += 24 * HOUR
    with cloud.machine(daily_starts=2).up("inference", NIGHT, keep=False, progress=cloud.tell):
        pass
    assert cloud.compute.asked("/start") == 3


def test_the_day_s_cost_is_a_bound_that_even_a_crash_cannot_pass(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    cloud.compute.dead_man = False
    with cloud.machine(daily_cost=1.0).up("inference", NIGHT, keep=True, progress=cloud.tell) as running:
        assert running.until - cloud.now < HOUR
        cloud.now += 10
    cloud.now += 6 * HOUR
    machine = cloud.machine(daily_cost=1.0)
    assert machine.stop_unused()
    assert cloud.compute.seconds() <= HOUR, "one dollar at a dollar an hour"
    assert 0.9 < machine.ledger.cost_of_day(cloud.now) <= 1.0
    with (
        pytest.raises(DeferredError, match="daily_cost"),
        machine.up("inference", NIGHT, keep=False, progress=cloud.tell),
    ):
        pass
    assert cloud.compute.asked("/start") == 1


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-06-03", 24), ("2026-10-25", 25)])
def test_a_session_over_midnight_counts_in_both_days(cloud: Cloud, day: str, hours: int) -> None:
    """Also where clocks change: the day then has 23 or 25 hours."""
    cloud.compute.vm(A)
    midnight = dt.datetime.fromisoformat(day).replace(tzinfo=cloud.zone).timestamp()
    cloud.now = midnight - HOUR
    machine = cloud.machine(daily_cost=100, dead_man_seconds=200000, max_lifetime_seconds=200000)
    with machine.up("inference", NIGHT, keep=False, progress=cloud.tell):
        cloud.now += 3 * HOUR
    assert machine.ledger.cost_of_day(midnight - 1) == pytest.approx(1.0, abs=0.05)
    assert machine.ledger.cost_of_day(midnight + 1) == pytest.approx(2.0, abs=0.05)
    assert machine.ledger.cost_of_day(midnight + hours * HOUR - 1) == pytest.approx(2.0, abs=0.05)
    assert machine.ledger.cost_of_day(midnight + hours * HOUR + 1) == 0.0


def test_no_password_or_key_is_in_the_books(cloud: Cloud) -> None:
    cloud.compute.vm(A)
    with (
        cloud.machine().up("inference", NIGHT, keep=False, progress=cloud.tell) as running,
        running.engine(ARGUMENTS, "olmo", cloud.tell) as endpoint,
    ):
        pass
    text = "".join(path.read_text() for path in (cloud.home / "machine").iterdir())
    assert endpoint.api_key and endpoint.api_key not in text
    assert json.loads((cloud.home / "machine" / "ledger.json").read_text())["sessions"]

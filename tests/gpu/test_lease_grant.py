"""What a lease writes down and hands on: the record, the marks, the place of its files. No process outlives a test."""

import datetime as dt
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from patience import until

from ec1.errors import BusyError, InputError
from ec1.gpu.cards import Card
from ec1.gpu.lease import HOLDER_MARK, MARK, GpuLease, Holder, marked_processes

NAP = [sys.executable, "-c", "import time; time.sleep(60)"]


def lease(lock: Path, min_free_gib: float = 0) -> GpuLease:
    return GpuLease(lock, device="cpu", min_free_gib=min_free_gib)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "gpu.lock"


def test_the_record_is_whole_and_leaves_nothing_of_the_one_before(lock: Path) -> None:
    before = dt.datetime.now(dt.UTC).replace(microsecond=0)
    for name in ("a run with a long name " * 20, "run 2"):
        with lease(lock).hold("evaluation", night="2026-06-01", holder=name, wait_seconds=0):
            found = lease(lock).holder()
            assert found is not None
            since = dt.datetime.fromisoformat(found.since)
            assert found == Holder("evaluation", "2026-06-01", name, os.getpid(), found.since)
            assert since.utcoffset() == dt.timedelta() and before <= since <= dt.datetime.now(dt.UTC)
    assert lease(lock).holder() is None


def test_who_serves_has_no_night() -> None:
    assert str(Holder("serving", "", "ec1 serve", 7, "now")) == "ec1 serve (serving, process 7, since now)"


def test_the_folder_of_the_lock_is_made_and_other_paths_to_it_are_the_same_lock(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "home")
    with lease(tmp_path / "home" / "run" / "locks" / "gpu.lock").hold(
        "training", night="2026-06-01", holder="run 1", wait_seconds=0
    ) as grant:
        assert grant.lock == tmp_path / "home" / "run" / "locks" / "gpu.lock"
        other = lease(tmp_path / "link" / "run" / "locks" / "gpu.lock")
        holder = other.holder()
        assert holder is not None and holder.holder == "run 1"
        with (
            pytest.raises(BusyError, match=r"^the GPU lease .*gpu\.lock is held by run 1 "),
            other.hold("training", night="2026-06-02", holder="run 2", wait_seconds=0),
        ):
            raise AssertionError("granted twice")


def test_what_is_started_bears_the_marks_and_its_own_environment(lock: Path, tmp_path: Path) -> None:
    log = tmp_path / "log" / "trainer.log"
    log.parent.mkdir()
    with lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0) as grant:
        assert grant.swept == () and grant.memory.free_gib > 0
        first = grant.start(NAP, env={"OWN": "yes", MARK: "of another lock"}, log=log, cwd=tmp_path)
        second = grant.start([*NAP, "again"], env={}, log=log)
        until(psutil.Process(first.pid).environ)
        marked = psutil.Process(first.pid).environ()
        me = psutil.Process()
        assert marked["OWN"] == "yes" and marked[MARK] == str(lock)
        assert marked[HOLDER_MARK] == f"{me.pid}:{me.create_time()}"
        # A process that has just begun has no environment yet for an instant.
        until(lambda: {first.pid, second.pid} <= {process.pid for process in marked_processes(lock)})
        assert marked_processes(lock.with_name("other.lock")) == []
        assert first.poll() is None and second.poll() is None
    assert first.poll() is not None and second.poll() is not None, "all of them end with the lease"
    assert marked_processes(lock) == []


def test_an_error_of_the_holder_gives_the_lease_back(lock: Path) -> None:
    with (
        pytest.raises(ValueError, match="of the trainer"),
        lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0) as grant,
    ):
        process = grant.start(NAP, env={}, log=lock.with_suffix(".log"))
        raise ValueError("of the trainer")
    assert process.poll() is not None and marked_processes(lock) == []
    assert lease(lock).holder() is None and not lease(lock).wanted()


def test_the_holder_of_the_processes_itself_is_not_in_its_own_way(lock: Path) -> None:
    """A deleted lock file: the same process may take the new one, and what it started before is swept."""
    with lease(lock).hold("training", night="2026-06-01", holder="run 1", wait_seconds=0) as first:
        process = first.start(NAP, env={}, log=lock.with_suffix(".log"))
        # A process that has just begun has no environment yet for an instant.
        until(lambda: marked_processes(lock))
        lock.unlink()
        with lease(lock).hold("training", night="2026-06-01", holder="run 1", wait_seconds=0) as second:
            assert process.pid in second.swept and second.swept == tuple(sorted(second.swept))
            assert process.poll() is not None


class Clock:
    """Stands in for the module `time`: sleeping takes no time, and is counted."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.longest = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0, "it would never end"
        self.longest = max(self.longest, seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("ec1.gpu.lease.time", clock)
    return clock


def test_who_waits_is_told_twice_a_minute_and_not_longer_than_agreed(lock: Path, clock: Clock) -> None:
    told: list[tuple[float, str]] = []
    with (
        lease(lock).hold("inference", night="2026-06-01", holder="run 1", wait_seconds=0),
        pytest.raises(BusyError, match=r"is held by run 1 .*; waited 75 s"),
        lease(lock).hold(
            "training",
            night="2026-06-01",
            holder="run 2",
            wait_seconds=75,
            progress=lambda line: told.append((clock.now, line)),
        ),
    ):
        raise AssertionError("granted twice")
    assert clock.now == 1075 and clock.longest <= 0.2
    assert [round(at) for at, _ in told] == [1000, 1030, 1060]
    assert all(line.startswith("waiting for the GPU, held by run 1") for _, line in told)


@pytest.mark.parametrize(("users", "named"), [((), ""), ((7, 9), " (used by processes 7, 9)")])
def test_a_card_that_stays_full_is_measured_for_half_a_minute(
    lock: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, users: tuple[int, ...], named: str
) -> None:
    monkeypatch.setattr("ec1.gpu.lease.read_card", lambda device, card: Card("Card", 1.0, 24.0, users))
    with (
        pytest.raises(BusyError) as refused,
        lease(lock, 20).hold("training", night="2026-06-01", holder="run", wait_seconds=0),
    ):
        raise AssertionError("granted on a full card")
    assert str(refused.value) == (
        f"Card has 1.0 GiB free of 24.0, gpu.min_free_gib asks for 20{named}: free the card or lower the bound"
    )
    assert clock.now == 1030 and clock.longest == 0.5
    assert lease(lock).holder() is None


def test_a_lock_is_for_its_owner_to_write(lock: Path) -> None:
    before = os.umask(0)
    try:
        with lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0):
            assert stat.S_IMODE(lock.stat().st_mode) == 0o644
    finally:
        os.umask(before)


def test_a_lock_that_somebody_makes_at_the_same_time_is_used(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0):
        pass
    opened = os.open
    missing = [lock, lock.with_name(lock.name + ".waiting")]

    def late(path: Path, flags: int, mode: int = 0o777) -> int:
        if path in missing:
            missing.remove(path)
            raise FileNotFoundError
        return opened(path, flags, mode)

    monkeypatch.setattr("ec1.gpu.lease.os.open", late)
    with lease(lock).hold("training", night="2026-06-01", holder="run 2", wait_seconds=0):
        found = lease(lock).holder()
    assert missing == [] and found is not None and found.holder == "run 2"


@pytest.mark.parametrize(
    ("make", "why"), [(Path.mkdir, "cannot be used .Is a directory.: remove it"), (os.mkfifo, "is not a plain file")]
)
def test_what_is_no_file_is_no_lock(lock: Path, make: Callable[[Path], None], why: str) -> None:
    make(lock)
    with (
        pytest.raises(InputError, match=why),
        lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0),
    ):
        raise AssertionError("granted")


@pytest.fixture
def outsider(lock: Path) -> Iterator[Callable[..., "subprocess.Popen[bytes]"]]:
    """Starts processes that bear the mark of the lock although no grant knows them, with the holder that they name."""
    started = []

    def start(holder: str | None) -> "subprocess.Popen[bytes]":
        environment = {MARK: str(lock)} | ({} if holder is None else {HOLDER_MARK: holder})
        process = subprocess.Popen(NAP, env=environment)
        started.append(process)
        until(lambda: process.pid in {each.pid for each in marked_processes(lock)})
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def somebody() -> Iterator[psutil.Process]:
    """A process that has nothing to do with the lock."""
    with subprocess.Popen(NAP) as process:
        yield psutil.Process(process.pid)
        process.kill()


def test_what_escaped_is_ended_when_the_lease_is_given_back(
    lock: Path, outsider: Callable[..., "subprocess.Popen[bytes]"]
) -> None:
    with lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0) as grant:
        escaped = outsider(None)
        cautious = grant.start(NAP, env={}, log=lock.with_suffix(".log"))
        # The seconds from the interrupt to the kill. A process that has only just begun has no command yet.
        until(lambda: "10" in psutil.Process(cautious.pid).cmdline())
    assert escaped.wait(0) is not None and marked_processes(lock) == []


def test_the_mark_of_a_holder_that_is_gone_keeps_nobody_away(
    lock: Path, outsider: Callable[..., "subprocess.Popen[bytes]"], somebody: psutil.Process
) -> None:
    """Its process id may be another process's by now."""
    left = [outsider(None), outsider(f"{somebody.pid}:1.0")]
    with lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0) as grant:
        assert set(grant.swept) == {process.pid for process in left}


def test_a_living_holder_whose_lock_was_deleted_keeps_the_card(
    lock: Path, outsider: Callable[..., "subprocess.Popen[bytes]"], somebody: psutil.Process
) -> None:
    nobodys, theirs = outsider(None), outsider(f"{somebody.pid}:{somebody.create_time()}")
    with (
        pytest.raises(BusyError, match=f"is held by process {somebody.pid}, whose lock file was deleted"),
        lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0),
    ):
        raise AssertionError("took the card from a living holder")
    assert nobodys.poll() is None and theirs.poll() is None

"""What a lease writes down and hands on: the record, the marks, the place of its files. No process outlives a test."""

import datetime as dt
import os
import sys
from pathlib import Path

import psutil
import pytest
from patience import until

from ec1.errors import BusyError
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
        lock.unlink()
        with lease(lock).hold("training", night="2026-06-01", holder="run 1", wait_seconds=0) as second:
            assert process.pid in second.swept and second.swept == tuple(sorted(second.swept))
            assert process.poll() is not None

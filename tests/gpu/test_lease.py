"""The lease is exclusive, is freed by every kind of death, and is never taken from a live holder. All are real."""

import fcntl
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from patience import until

from ec1.errors import BusyError, InputError
from ec1.gpu.cards import Card
from ec1.gpu.lease import GpuLease, marked_processes

HOLD = """
import sys, time
from pathlib import Path
from ec1.gpu.lease import GpuLease
lock, phase, seconds, trace = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), Path(sys.argv[4])
# The command starts a child in a session of its own: a process group does not reach it.
command = (
    "import subprocess, sys, time\\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\\n"
    "time.sleep(600)"
)
lease = GpuLease(lock, device="cpu", min_free_gib=0)
with lease.hold(phase, night="2026-06-01", holder="test", wait_seconds=300) as grant:
    with trace.open("a") as stream:
        stream.write(f"in {phase}\\n")
    grant.start([sys.executable, "-c", command], env={}, log=trace.with_suffix(".log"), grace_seconds=1)
    time.sleep(seconds)
    with trace.open("a") as stream:
        stream.write(f"out {phase}\\n")
"""


def hold(lock: Path, phase: str, seconds: float, trace: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", HOLD, str(lock), phase, str(seconds), str(trace)])


def lease(lock: Path, min_free_gib: float = 0) -> GpuLease:
    return GpuLease(lock, device="cpu", min_free_gib=min_free_gib)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Path]:
    lock = tmp_path / "gpu.lock"
    yield lock
    for process in marked_processes(lock):
        process.kill()


def test_the_record_says_who_holds_it(lock: Path) -> None:
    assert lease(lock).holder() is None
    with lease(lock).hold("training", night="2026-06-01", holder="run 1", wait_seconds=0):
        holder = lease(lock).holder()
        assert holder is not None
        assert (holder.phase, holder.night, holder.pid) == ("training", "2026-06-01", os.getpid())
    assert lease(lock).holder() is None


def test_a_live_holder_is_not_robbed_and_is_named(lock: Path) -> None:
    with (
        lease(lock).hold("inference", night="2026-06-01", holder="run 1", wait_seconds=0) as grant,
        grant.start(["sleep", "60"], env={}, log=lock.with_suffix(".log")) as process,
    ):
        with (
            pytest.raises(BusyError, match=r"held by run 1 \(inference of night 2026-06-01"),
            lease(lock).hold("training", night="2026-06-02", holder="run 2", wait_seconds=0.5),
        ):
            raise AssertionError("granted twice")
        assert process.poll() is None


def test_too_little_memory_is_refused_with_figures(lock: Path) -> None:
    greedy = lease(lock, min_free_gib=10_000)
    with (
        pytest.raises(BusyError, match=r"GiB free of .* gpu.min_free_gib asks for 10000"),
        greedy.hold("training", night="2026-06-01", holder="run", wait_seconds=0),
    ):
        raise AssertionError("granted without memory")
    with lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0):
        pass


def test_giving_back_ends_the_whole_family(lock: Path, tmp_path: Path) -> None:
    process = hold(lock, "inference", 1.0, tmp_path / "trace")
    until(lambda: len(marked_processes(lock)) >= 3)
    assert process.wait(300) == 0
    assert marked_processes(lock) == []


def test_a_grant_that_was_given_back_starts_nothing(lock: Path) -> None:
    with lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0) as grant:
        pass
    with pytest.raises(RuntimeError, match="this grant was given back already"):
        grant.start(["true"], env={}, log=lock.with_suffix(".log"))


@pytest.mark.parametrize("victim", ["holder", "warden", "command"])
def test_after_kill_9_the_next_holder_finds_an_empty_card(lock: Path, tmp_path: Path, victim: str) -> None:
    holder = hold(lock, "inference", 600, tmp_path / "trace")
    until(lambda: len(marked_processes(lock)) >= 3)
    family = marked_processes(lock)
    warden = next(process for process in family if process.ppid() == holder.pid)
    command = next(process for process in family if process.ppid() == warden.pid)
    pid = {"holder": holder.pid, "warden": warden.pid, "command": command.pid}[victim]
    os.kill(pid, signal.SIGKILL)
    if victim != "holder":
        holder.send_signal(signal.SIGKILL)
    holder.wait()
    with lease(lock).hold("training", night="2026-06-01", holder="next", wait_seconds=300):
        assert marked_processes(lock) == []
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)


@pytest.mark.slow
def test_two_at_once_in_each_order_never_overlap(lock: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    rng = random.Random(7)
    for attempt in range(10):
        phases = ["inference", "training"] if attempt % 2 else ["training", "inference"]
        pair = []
        for phase in phases:
            pair.append(hold(lock, phase, 0.2, trace))
            time.sleep(rng.random() * 0.2)
        if attempt % 3 == 2:
            time.sleep(rng.random())
            pair[0].kill()
        for process in pair:
            process.wait()
    inside: str | None = None
    for line in trace.read_text().splitlines():
        event, phase = line.split()
        if event == "in":
            inside = phase
        else:
            assert inside == phase, "somebody else came in between"


def test_the_record_reads_as_a_sentence(lock: Path) -> None:
    with lease(lock).hold("training", night="2026-06-01", holder="run 1", wait_seconds=0):
        holder = lease(lock).holder()
        assert holder is not None
        said = f"run 1 (training of night 2026-06-01, process {os.getpid()}, since {holder.since})"
        assert str(holder) == said and holder.since.endswith("+00:00")


def test_what_runs_at_the_end_is_interrupted_before_it_is_killed(lock: Path, tmp_path: Path) -> None:
    """A trainer writes its checkpoint in the grace period."""
    script = (
        "import pathlib, signal, sys, time\n"
        "def save(*_):\n"
        "    pathlib.Path('saved').write_text('saved')\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGINT, save)\n"
        "pathlib.Path('ready').write_text('ready')\n"
        "time.sleep(600)\n"
    )
    with lease(lock).hold("training", night="2026-06-01", holder="run", wait_seconds=0) as grant:
        log = lock.with_suffix(".log")
        process = grant.start([sys.executable, "-c", script], env={}, log=log, grace_seconds=20, cwd=tmp_path)
        until((tmp_path / "ready").exists)
        marked = psutil.Process(process.pid).environ()
        assert marked["EC1_GPU_LEASE"] == str(lock)
        assert marked["SPT_NOENV"] == "1", "vLLM's process titles would overwrite the mark"
    assert (tmp_path / "saved").read_text() == "saved"
    assert process.poll() == 0


def test_a_waiter_is_told_once_and_granted_as_soon_as_the_lease_is_free(lock: Path) -> None:
    told: list[str] = []
    first = lease(lock).hold("inference", night="2026-06-01", holder="run 1", wait_seconds=0)
    first.__enter__()
    began = time.monotonic()
    with (
        pytest.raises(BusyError, match=r"waited 1 s: let it finish or stop its run"),
        lease(lock).hold("training", night="2026-06-02", holder="run 2", wait_seconds=0.6, progress=told.append),
    ):
        raise AssertionError("granted twice")
    assert time.monotonic() - began >= 0.6
    assert len(told) == 1 and told[0].startswith("waiting for the GPU, held by run 1 (inference of night 2026-06-01")
    release = threading.Timer(0.5, first.__exit__, (None, None, None))
    release.start()
    with lease(lock).hold("training", night="2026-06-02", holder="run 2", wait_seconds=600, progress=told.append):
        assert time.monotonic() - began < 300
    release.join()


def test_a_lock_without_a_record_is_held_by_somebody(lock: Path) -> None:
    with lock.open("w", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write("half a rec")
        stream.flush()
        with (
            pytest.raises(BusyError, match="is held by a process; waited 0 s"),
            lease(lock).hold("training", night="2026-06-02", holder="run 2", wait_seconds=0),
        ):
            raise AssertionError("granted twice")


def test_memory_that_comes_back_late_is_waited_for_and_its_users_are_named(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([10.0, 19.9, 20.0])

    def memory(device: str, card: int) -> Card:
        assert (device, card) == ("cpu", 0)
        return Card("a card", next(looks), 24.0, (11, 12))

    monkeypatch.setattr("ec1.gpu.lease.read_card", memory)
    wanted = lease(lock, min_free_gib=20)
    with wanted.hold("training", night="2026-06-01", holder="run", wait_seconds=0) as grant:
        assert grant.memory.free_gib == 20.0, "exactly the bound is enough"
    looks = iter([10.0])
    with pytest.raises(
        BusyError,
        match=r"^a card has 10\.0 GiB free of 24\.0, gpu\.min_free_gib asks for 20 \(used by processes 11, 12\): free",
    ):
        wanted._enough_memory(settle_seconds=0)


def test_a_lock_for_several_cards_needs_memory_on_each(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {0: 23.0, 1: 2.0, 2: 22.0}
    monkeypatch.setattr("ec1.gpu.lease.read_card", lambda device, card: Card(f"card {card}", free[card], 24.0))
    wanted = GpuLease(lock, device="cpu", min_free_gib=20, cards=(0, 1, 2))
    with pytest.raises(BusyError, match=r"^card 1 has 2\.0 GiB free"):
        wanted._enough_memory(settle_seconds=0)
    free[1] = 21.0
    with wanted.hold("training", night="2026-06-01", holder="run", wait_seconds=0) as grant:
        assert grant.memory.name == "card 1"


def test_the_next_holder_says_what_it_had_to_kill(lock: Path, tmp_path: Path) -> None:
    holder = hold(lock, "inference", 600, tmp_path / "trace")
    until(lambda: len(marked_processes(lock)) >= 3)
    warden = next(process for process in marked_processes(lock) if process.ppid() == holder.pid)
    warden.suspend()
    holder.kill()
    holder.wait()
    told: list[str] = []
    after = lease(lock).hold("training", night="2026-06-01", holder="next", wait_seconds=300, progress=told.append)
    with after as grant:
        assert warden.pid in grant.swept and grant.swept == tuple(sorted(grant.swept))
    numbers = ", ".join(map(str, grant.swept))
    assert told == [f"killed what a crashed holder left behind: processes {numbers}"]


def test_a_deleted_lock_file_robs_nobody(lock: Path, tmp_path: Path) -> None:
    """The next holder gets a lock on another file; the live trainer of the first must not be swept as a leftover."""
    holder = hold(lock, "training", 600, tmp_path / "trace")
    try:
        until(lambda: bool(marked_processes(lock.resolve())))
        running = {process.pid for process in marked_processes(lock.resolve())}
        lock.unlink()
        # What the doctor says: it is a live one and did not crash.
        assert lease(lock).held_by() == f"process {holder.pid}, whose lock file was deleted"
        with (
            pytest.raises(BusyError, match="whose lock file was deleted"),
            lease(lock).hold("inference", night="2026-06-02", holder="run 2", wait_seconds=0.5),
        ):
            pass
        assert {process.pid for process in marked_processes(lock.resolve())} >= running
    finally:
        holder.kill()
        holder.wait()
    with lease(lock).hold("inference", night="2026-06-02", holder="run 2", wait_seconds=300):
        assert marked_processes(lock.resolve()) == []


def test_the_holder_learns_that_somebody_waits(lock: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert not lease(lock).wanted()
    with lease(lock).hold("serving", night="", holder="ec1 serve", wait_seconds=0):
        assert not lease(lock).wanted()
        waiting = hold(lock, "inference", 0, trace)
        until(lease(lock).wanted)
        waiting.kill()
        waiting.wait()
        until(lambda: not lease(lock).wanted())
        # Another server that waits is not a reason to give way.
        serving = hold(lock, "serving", 0, trace)
        time.sleep(1)
        assert not lease(lock).wanted()
        waiting = hold(lock, "training", 0, trace)
        until(lease(lock).wanted)
        serving.kill()
        serving.wait()
    waiting.wait(300)
    assert trace.read_text() == "in training\nout training\n"
    assert not lease(lock).wanted()


def test_a_lock_that_all_users_share_is_everybody_s_and_follows_no_link(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    with (
        lease(shared / "ec1-gpu.lock").hold("training", night="n", holder="one home", wait_seconds=0),
        pytest.raises(BusyError, match="held by one home"),
        lease(shared / "ec1-gpu.lock").hold("training", night="n", holder="another", wait_seconds=0),
    ):
        raise AssertionError("two homes have the card")
    assert (shared / "ec1-gpu.lock").stat().st_mode & 0o777 == 0o666
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (shared / "link.lock").symlink_to(victim)
    with (
        pytest.raises(InputError, match="is a link"),
        lease(shared / "link.lock").hold("training", night="n", holder="one", wait_seconds=0),
    ):
        raise AssertionError("it followed the link")
    assert victim.read_text() == "precious"

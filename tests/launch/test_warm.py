"""A process that is forked of a server of loaded libraries is seen, ended and marked like one that was started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from ec1.errors import PermanentError
from ec1.gpu.lease import MARK, GpuLease, marked_processes
from ec1.launch import process as processes
from ec1.launch.launcher import NOBODY, DeviceWork, LocalLauncher
from ec1.launch.process import SupervisedProcess
from ec1.launch.warm import SOCKET, ForkedProcess, environment_for, is_there

WORK = '''
"""Does what its argument says; `base64` stands for a library that was loaded before."""
import os, signal, subprocess, sys, time
what = sys.argv[1]
print("loaded" if "base64" in sys.modules else "not loaded", os.environ.get("MINE"), flush=True)
if what.isdigit():
    sys.exit(int(what))
if what == "raise":
    raise ValueError("as asked")
if what == "die":
    os.kill(os.getpid(), signal.SIGKILL)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("child", child.pid, flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(130)
'''
SERVE = (
    "import sys; sys.path.insert(0, sys.argv[3]); from pathlib import Path; from ec1.launch.warm import serve; "
    "serve(Path(sys.argv[1]), int(sys.argv[2]), ['base64'], ['forked_work'])"
)


def wait_for(what: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def owner() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as living:
        yield living
        living.kill()


@pytest.fixture
def server(tmp_path: Path, owner: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "forked_work.py").write_text(WORK)
    path = tmp_path / "s"
    command = [sys.executable, "-c", SERVE, str(path), str(owner.pid), str(tmp_path)]
    subprocess.Popen(command, env=environment_for(dict(os.environ)), start_new_session=True)
    wait_for(lambda: is_there(path))
    monkeypatch.setattr(processes, "MODULES", ("forked_work",))
    return path


def start(server: Path, what: str, log: Path, grace: float = 5, **env: str) -> SupervisedProcess:
    command = [sys.executable, "-m", "forked_work", what]
    return SupervisedProcess(command, env={SOCKET: str(server), **env}, log=log, grace_seconds=grace)


@pytest.mark.parametrize(("what", "status"), [("0", 0), ("3", 3), ("raise", 1), ("die", 128 + signal.SIGKILL)])
def test_the_status_is_the_commands_and_its_words_are_in_its_log(
    server: Path, tmp_path: Path, what: str, status: int
) -> None:
    with start(server, what, tmp_path / "log", MINE="one") as process:
        assert isinstance(process._process, ForkedProcess)
        assert process.wait(60) == status == process.poll()
    text = (tmp_path / "log").read_text()
    assert text.startswith("loaded one\n") and ("ValueError: as asked" in text) == (what == "raise")


def test_it_is_interrupted_and_takes_its_family_with_it(server: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with start(server, "stay", log) as process:
        wait_for(lambda: log.exists() and "child" in log.read_text())
        child = int(log.read_text().split()[-1])
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)
        assert process.stop() == 130
    assert "interrupted" in log.read_text()
    wait_for(lambda: not psutil.pid_exists(child))


def test_whoever_is_killed_takes_all_with_him(server: Path, tmp_path: Path) -> None:
    """The asking process is killed; then a warden is."""
    log = tmp_path / "log"
    code = (
        "import sys, time; from pathlib import Path; from ec1.launch import process\n"
        "process.MODULES = ('forked_work',); command = [sys.executable, '-m', 'forked_work', 'stay']\n"
        f"env = {{'{SOCKET}': {str(server)!r}}}\n"
        f"kept = process.SupervisedProcess(command, env=env, log=Path({str(log)!r}), grace_seconds=5)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as asking:
        wait_for(lambda: log.exists() and "child" in log.read_text())
        asking.kill()
    wait_for(lambda: "interrupted" in log.read_text())
    with start(server, "stay", tmp_path / "second") as process:
        wait_for(lambda: (tmp_path / "second").exists() and "child" in (tmp_path / "second").read_text())
        (command,) = psutil.Process(process.pid).children()
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
    wait_for(lambda: not psutil.pid_exists(command.pid))


def test_a_lease_finds_and_sweeps_it(server: Path, tmp_path: Path) -> None:
    """A mark in its environment is how the next holder finds what a crashed one left."""
    lease = GpuLease(tmp_path / "gpu.lock", device="cpu", min_free_gib=0)
    log = tmp_path / "log"
    with lease.hold("training", night="2026-06-01", holder="test", wait_seconds=0) as grant:
        process = grant.start(
            [sys.executable, "-m", "forked_work", "stay"], env={SOCKET: str(server)}, log=log, grace_seconds=5
        )
        wait_for(lambda: log.exists() and "child" in log.read_text())
        found = {each.pid for each in marked_processes(lease.lock)}
        assert process.pid in found and len(found) == 3, "the warden, the command and its child"
        assert all(psutil.Process(pid).environ()[MARK] == str(lease.lock) for pid in found)
    assert not marked_processes(lease.lock)


def test_without_a_server_the_command_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "MODULES", ("platform",))
    command = [sys.executable, "-m", "platform"]
    env = {SOCKET: str(tmp_path / "nobody")}
    with SupervisedProcess(command, env=env, log=tmp_path / "log", grace_seconds=5) as process:
        assert process.wait(60) == 0 and isinstance(process._process, subprocess.Popen)
    assert "Linux" in process.log_tail()


def test_the_server_ends_with_its_owner_and_runs_nothing_else(
    server: Path, owner: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    with (tmp_path / "log").open("wb") as log, pytest.raises(OSError, match="does not answer"):
        ForkedProcess(str(server), "platform", [], 5, {}, log.fileno())
    owner.kill()
    wait_for(lambda: not server.exists())


def test_a_launcher_names_the_server_only_to_what_needs_no_card(tmp_path: Path) -> None:
    asked: list[dict[str, str]] = []

    def grant_start(command: object, *, env: dict[str, str], **_: object) -> object:
        asked.append(env)
        raise PermanentError("enough")

    launcher = LocalLauncher(lambda: nullcontext(SimpleNamespace(start=grant_start)), warm=tmp_path / "warm")  # type: ignore[arg-type]
    for device, several in (("cpu", 1), ("cuda", 1), ("cpu", 2)):
        work = DeviceWork("w", "m", tmp_path / "s", device, NOBODY, (), tmp_path, processes=several)  # type: ignore[arg-type]
        with pytest.raises(PermanentError):
            launcher.run(work, {}, tmp_path / "log")
    assert [env.get(SOCKET) for env in asked] == [str(tmp_path / "warm"), None, None]

"""A supervised process tells how its command ended, and takes its family with it."""

import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from ec1.errors import ServiceError
from ec1.launch.launcher import NOBODY, DeviceWork, LocalLauncher
from ec1.launch.process import SupervisedProcess, how_it_ended


def start(code: str, log: Path, grace_seconds: float = 5) -> SupervisedProcess:
    return SupervisedProcess([sys.executable, "-c", code], env={}, log=log, grace_seconds=grace_seconds)


@pytest.mark.parametrize("status", [0, 1, 3, 77])
def test_the_status_is_the_commands(tmp_path: Path, status: int) -> None:
    with start(f"import sys; print('done'); sys.exit({status})", tmp_path / "log") as process:
        assert process.wait(300) == status
    assert process.log_tail() == "done"


def test_a_signal_is_told_as_the_shell_tells_it(tmp_path: Path) -> None:
    with start("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", tmp_path / "log") as process:
        assert process.wait(300) == 128 + signal.SIGKILL


def test_stop_interrupts_first_and_waits_for_the_grace_period(tmp_path: Path) -> None:
    code = "import time\ntry:\n    print('up', flush=True); time.sleep(600)\nexcept KeyboardInterrupt:\n"
    code += "    time.sleep(0.5); print('saved', flush=True); raise SystemExit(130)"
    with start(code, tmp_path / "log") as process:
        while "up" not in process.log_tail():
            time.sleep(0.02)
        assert process.stop() == 130
    assert process.log_tail().endswith("saved")


def test_what_ignores_the_interrupt_is_killed_with_its_children(tmp_path: Path) -> None:
    code = "import signal, subprocess, sys, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code += "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    code += "print(child.pid, flush=True); time.sleep(600)"
    with start(code, tmp_path / "log", grace_seconds=0.5) as process:
        while not process.log_tail().strip():
            time.sleep(0.02)
        child = int(process.log_tail())
        assert process.stop() == 128 + signal.SIGKILL
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("ending", ["by itself", "it was killed", "this process was killed"])
def test_nothing_of_its_temporary_files_is_left(tmp_path: Path, ending: str) -> None:
    """A training keeps its rows there while it runs, and what is killed removes nothing."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = "import pathlib, sys, tempfile\nfolder = pathlib.Path(tempfile.mkdtemp()) / 'rows'\n"
    code += "folder.write_text('secret')\nprint(folder, flush=True)\n"
    code += "" if ending == "by itself" else "import time; time.sleep(600)"
    starting = (
        "import sys, time\nfrom pathlib import Path\nfrom ec1.launch.process import SupervisedProcess\n"
        "process = SupervisedProcess([sys.executable, '-c', sys.argv[1]], env={'TMPDIR': sys.argv[2]}, "
        "log=Path(sys.argv[3]), grace_seconds=0.2)\nprocess.wait()"
    )
    log = tmp_path / "log"
    with subprocess.Popen([sys.executable, "-c", starting, code, str(temporary), str(log)]) as parent:
        while not (log.is_file() and log.read_text().endswith("\n")):
            time.sleep(0.02)
        rows = Path(log.read_text().strip())
        assert rows.is_relative_to(temporary)
        if ending == "it was killed":
            (warden,) = psutil.Process(parent.pid).children()
            (command,) = warden.children()
            command.kill()
        elif ending == "this process was killed":
            parent.kill()
    while any(temporary.iterdir()):
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (1, "ended with status 1"),
        (128, "ended with status 128"),
        (137, "was killed (SIGKILL; by the system, probably for memory: see `dmesg -T` and `free -h`)"),
        # Of the warden itself.
        (-9, "was killed (SIGKILL; by the system, probably for memory: see `dmesg -T` and `free -h`)"),
        (139, "was ended by SIGSEGV"),
        (255, "was ended by signal 127"),
    ],
)
def test_how_a_command_ended_is_told_in_words(status: int, told: str) -> None:
    assert how_it_ended(status) == told


def test_a_process_of_the_command_that_the_kernel_ended_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when vLLM's engine is killed and its server then ends with status 1."""
    ended = iter([3, 3, 3, 4])
    monkeypatch.setattr("ec1.launch.process.ended_for_memory", lambda: next(ended))
    for told in ("", ", and the kernel ended a process for lack of memory meanwhile"):
        with start("exit(1)", tmp_path / "log") as process:
            assert process.how_it_ended(" at once").partition(" (")[0] == f"ended with status 1 at once{told}"


@pytest.mark.parametrize("status", [-9, 137])
def test_work_that_was_killed_can_go_on(tmp_path: Path, status: int) -> None:
    work = DeviceWork("training", "x", tmp_path, "cpu", NOBODY, (), tmp_path)
    process = SimpleNamespace(
        wait=lambda: status, log_tail=lambda: "the end", how_it_ended=lambda: how_it_ended(status)
    )
    grant = SimpleNamespace(start=lambda *_, **__: nullcontext(process), cards=())
    launcher = LocalLauncher(lambda: nullcontext(grant))  # type: ignore[arg-type]
    with pytest.raises(ServiceError, match=r"was killed .* and can go on"):
        launcher.run(work, {}, tmp_path / "log")

"""What an untrusted program cannot do in the sandbox: each attack in real bubblewrap, with limits that it exceeds."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ec1.errors import InputError
from ec1.sandbox.box import Limits, Ran, run, why_not

pytestmark = pytest.mark.needs("bwrap")
ROOT = Path(__file__).parents[2]
USUAL = Limits()
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin")


@pytest.fixture(autouse=True)
def works() -> None:
    if (why := why_not()) is not None:
        pytest.skip(why)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may read; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def shell(text: str, stdin: bytes = b"", limits: Limits = USUAL) -> Ran:
    return run(("/bin/sh", "-c", text), stdin, limits)


def python(text: str, limits: Limits = USUAL) -> Ran:
    if PYTHON is None:
        pytest.skip("no python3 below /usr, which is all that a program in the sandbox sees")
    return run((PYTHON, "-c", text), b"", limits)


def runs(command: str) -> bool:
    """Whether a command runs on this machine, in a sandbox or outside."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() == command:
                return True
    return False


def test_a_program_reads_writes_and_ends_with_its_status() -> None:
    ran = shell("cat; echo wrong >&2; exit 7", b"right")
    assert (ran.status, ran.stdout, ran.stderr, ran.stopped) == (7, b"right", b"wrong\n", None)
    assert shell("kill -9 $$").status == 137 and shell("kill -9 $$").stopped is None
    assert run(("no-such-program",)).status == 127
    assert shell("wc -c", bytes(5_000_000)).stdout.strip() == b"5000000"
    assert shell("true").seconds < 5


def test_a_program_that_closes_its_output_is_waited_for() -> None:
    ran = shell("exec >&- 2>&-; sleep 0.3; exit 5")
    assert ran.status == 5 and ran.seconds >= 0.3


def test_processes_are_bounded_for_root_too() -> None:
    ran = python("import os\nfor n in range(300):\n if not os.fork(): os.execv('/bin/sleep', ['sleep', '9'])\n")
    assert b"BlockingIOError" in ran.stderr, "300 forks must not succeed"
    fewer = python(
        "import os\nn = 0\ntry:\n while n < 300:\n  if not os.fork(): os.execv('/bin/sleep', ['sleep', '9'])\n"
        "  n += 1\nexcept OSError: print(n)",
        Limits(processes=20),
    )
    assert 0 < int(fewer.stdout) < 20, "the limit counts this box's processes, not all of the user's"


def test_memory_is_bounded_however_it_is_taken() -> None:
    small = Limits(memory_mib=128)
    assert b"MemoryError" in python("bytearray(1500 * 2**20)").stderr, "1.5 GB are more than the usual limit"
    shared = "import mmap\nx = mmap.mmap(-1, 400 * 2**20)\nfor n in range(0, len(x), 4096): x[n] = 1\nprint('held')"
    ran = python(shared, small)
    assert ran.stopped == "memory" and b"held" not in ran.stdout
    together = (
        "import os, time\nfor n in range(6):\n if not os.fork():\n  x = bytearray(90 * 2**20)\n  time.sleep(5)\n"
        "  os._exit(0)\nfor n in range(6): os.wait()"
    )
    assert python(together, small).stopped == "memory"


@pytest.mark.parametrize("call", ["os.memfd_create('x')", "C(None).shmget(0, 2**30, 0o1777)"])
def test_memory_that_no_limit_counts_is_refused(call: str) -> None:
    ran = python(f"import os\nfrom ctypes import CDLL as C\ntry: print({call})\nexcept OSError as e: print(e)")
    assert ran.stdout.strip() in (b"-1", b"[Errno 38] Function not implemented")


@pytest.mark.parametrize("place", ["/dev/shm/x", "/tmp/x", "/dev/x", "/x", "/proc/x"])
def test_nothing_takes_200_megabytes(place: str) -> None:
    ran = shell(f"for n in 1 2 3 4; do head -c 50000000 /dev/zero > {place}$n; done; cat {place}* | wc -c")
    assert int(ran.stdout or 0) <= 64 * 2**20
    assert shell(f"test -e {place}1").status == 1, "nothing is left for the next program"


def test_many_empty_files_are_counted() -> None:
    # Each holds memory of the kernel's own.
    assert (
        python(
            "import os\nfor n in range(10**7): os.mknod(f'/tmp/{n}')", Limits(memory_mib=64, seconds=30, cpu_seconds=30)
        ).stopped
        == "memory"
    )


def test_endless_output_is_cut_off() -> None:
    for text in ("yes", "yes >&2", "yes & yes >&2"):
        ran = shell(text)
        assert ran.stopped == "output" and len(ran.stdout) + len(ran.stderr) <= 2 * 2**20
    assert shell("head -c 1000000 /dev/zero").stopped is None


def test_time_is_bounded_by_the_clock_and_by_the_processor() -> None:
    asleep = shell("sleep 60", limits=Limits(seconds=0.5))
    assert asleep.stopped == "seconds" and asleep.status == 137 and asleep.seconds < 10
    busy = shell("while :; do :; done & while :; do :; done", limits=Limits(seconds=60, cpu_seconds=0.5))
    assert busy.stopped == "cpu_seconds" and busy.seconds < 30


def test_nothing_is_left_running() -> None:
    shell("setsid sleep 4321 >/dev/null 2>&1 </dev/null & exit 0")
    shell("setsid sleep 4321 & sleep 4321", limits=Limits(seconds=0.3))
    assert not runs("sleep 4321")


def test_the_box_dies_with_who_started_it() -> None:
    program = "from ec1.sandbox.box import *; run(('/bin/sleep', '4322'), b'', Limits(seconds=60))"
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as parent:
        deadline = time.monotonic() + 30
        while not runs("/bin/sleep 4322") and time.monotonic() < deadline:
            time.sleep(0.05)
        parent.kill()
    while runs("/bin/sleep 4322") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs("/bin/sleep 4322")


def test_no_file_and_no_secret_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_TOKEN", "token-of-the-night")
    (tmp_path / "secret").write_text("token-of-the-night")
    ran = shell(f"cat {tmp_path}/secret /etc/shadow /proc/*/environ; env; cat /proc/*/cmdline")
    assert b"token-of-the-night" not in ran.stdout and b"PATH" in ran.stdout
    assert shell(f"ls -A /root /home {ROOT} /etc/passwd; cat {tmp_path}/secret").stdout == b""
    assert shell("echo x > /usr/x").status != 0


def test_there_is_no_network_and_no_way_to_privileges() -> None:
    assert b"unreachable" in python("import socket; socket.create_connection(('192.0.2.1', 80), 2)").stderr
    assert shell("cat /proc/net/dev | tail -n +3").stdout.split(b":")[0].strip() == b"lo"
    assert shell("id -u").stdout.strip() == b"65534"
    assert shell("grep CapEff /proc/self/status").stdout.split()[-1].strip(b"0") == b""
    assert shell("unshare --user true").status != 0


def test_another_user_s_boxes_are_bounded_alike(public: Path) -> None:
    if os.geteuid() != 0 or PYTHON is None:
        pytest.skip("only root can become another user, and needs a python3 that it can run")
    # The two modules alone, at a place that everybody may read.
    room = public / "ec1" / "sandbox"
    shutil.copytree(ROOT / "ec1" / "sandbox", room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("__init__.py", "errors.py"):
        shutil.copy(ROOT / "ec1" / name, public / "ec1" / name)
    program = f"""
from ec1.sandbox.box import Limits, run
assert b"fork" in run(("/bin/sh", "-c", "for n in $(seq 300); do sleep 9 & done")).stderr
assert run(("/usr/bin/yes",)).stopped == "output"
assert run(("/bin/sleep", "60"), limits=Limits(seconds=0.3)).stopped == "seconds"
held = "import mmap; x = mmap.mmap(-1, 4 * 10**8)\\nfor n in range(0, len(x), 4096): x[n] = 1\\nprint(5)"
assert run(({PYTHON!r}, "-c", held), limits=Limits(memory_mib=200)).stopped == "memory"
"""
    done = subprocess.run(
        [PYTHON, "-c", program],
        cwd=public,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        user=12345,
        group=12345,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_box_that_cannot_be_made_is_an_error(monkeypatch: pytest.MonkeyPatch, public: Path) -> None:
    broken = public / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{public}:/bin")
    with pytest.raises(InputError, match="No permissions to create new namespace"):
        run(("true",))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="apt-get install bubblewrap"):
        run(("true",))
    assert "apt-get install bubblewrap" in str(why_not())

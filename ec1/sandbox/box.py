"""One untrusted program in a box, with limits that bind.

Belongs here: the box (bubblewrap), its limits and how it ends. Does not: what is run and what its result means.

The program sees a network of its own without a way out, its own processes, a read-only `/usr`, and two empty folders
that are gone afterwards. A limit on processes does not bind root: root's boxes run as `nobody`, and no user namespace
can be made in them. Memory is bounded twice: of each process by the kernel, and of the whole box by looking at it 50
times a second. https://github.com/containers/bubblewrap
"""

import contextlib
import fcntl
import json
import math
import os
import select
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ec1.errors import InputError
from ec1.sandbox.calls import filter_program

LimitName = Literal["seconds", "cpu_seconds", "memory", "output"]

NOBODY = 65534
_MIB = 2**20
_OPEN_FILES = 128
_LOOK_SECONDS = 0.02
_PIECE = 65536
_END_SECONDS = 5.0
_FOLDERS = ("/tmp", "/dev/shm")
_FILE_BYTES = 1024
"""What the kernel holds for a file with nothing in it, about."""
_BOX = (
    *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", str(NOBODY), "--gid", str(NOBODY)),
    *("--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"),
    *("--ro-bind", "/usr", "/usr", "--ro-bind-try", "/bin", "/bin", "--ro-bind-try", "/lib", "/lib"),
    *("--ro-bind-try", "/lib64", "/lib64", "--ro-bind-try", "/etc/alternatives", "/etc/alternatives"),
    *("--proc", "/proc", "--dev", "/dev"),
)


@dataclass(frozen=True)
class Limits:
    """What one program may use."""

    seconds: float = 10.0
    """By the clock."""
    cpu_seconds: float = 10.0
    """Of the processor, all its processes together."""
    memory_mib: int = 1024
    """Of each process, and of all together with their files; a page that two processes share counts twice."""
    processes: int = 64
    """With their threads, and one of the box's own."""
    files_mib: int = 64
    """Of one file, of all in `/tmp`, and of all in `/dev/shm`; all of them are in memory."""
    output_mib: float = 1.0
    """Standard output and standard error together."""


@dataclass(frozen=True)
class Ran:
    """How a program ended. `status` is its exit status, of one that a signal ended 128 and the signal's number;
    `stopped` names the limit for which it was killed from outside, if it was, and `status` is then 137."""

    status: int
    stdout: bytes
    stderr: bytes
    seconds: float
    stopped: LimitName | None = None


def run(program: Sequence[str], stdin: bytes = b"", limits: Limits = Limits(), *, first: bool = False) -> Ran:
    """Run a program below `/usr` in a box of its own; nothing of it is left when this returns.

    The current folder is `/tmp`, empty and writable as `/dev/shm` is. A program that is not there ends with 127.
    `first`: it becomes the first process of the box, which nothing in the box can end; it must wait for its children.
    Raises InputError if bubblewrap is not installed or cannot make the box on this machine, with what it said.
    """
    bubblewrap, refused = shutil.which("bwrap"), filter_program()
    if bubblewrap is None:
        raise InputError("the sandbox needs bubblewrap, which is not installed: apt-get install bubblewrap")
    began, root = time.monotonic(), os.geteuid() == 0
    status_read, status_write = os.pipe()
    with os.fdopen(status_read, "rb", buffering=0), _sealed(stdin) as given, _sealed(refused) as calls:
        with os.fdopen(status_write, "wb"):
            try:
                process = subprocess.Popen(
                    [bubblewrap, *_arguments(limits, calls, status_write, first), *program],
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=(calls, status_write),
                    cwd="/",
                    # The box's first process shows its own environment to the program.
                    env={},
                    user=NOBODY if root else None,
                    group=NOBODY if root else None,
                    extra_groups=[] if root else None,
                    start_new_session=True,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise InputError(f"{bubblewrap} cannot be started as user {NOBODY}: {error}") from None
        with process:
            return _Watch(process, status_read, limits, began).to_the_end()


def why_not() -> str | None:
    """Why programs cannot be run in a sandbox on this machine, or None."""
    try:
        ran = run(("/bin/sh", "-c", "true & wait"))
    except InputError as error:
        return str(error)
    return None if ran.status == 0 else f"the sandbox's shell ended with {ran.status}: {_line(ran.stderr)}"


def _arguments(limits: Limits, calls: int, status_write: int, first: bool) -> list[str]:
    """What stands before the program: bubblewrap's options, and prlimit, whose limit on processes counts this box's
    own only because it is set inside."""
    size, memory = str(limits.files_mib * _MIB), limits.memory_mib * _MIB
    # All that can be written to has a size: the root and /dev are file systems in memory, too.
    folders = ("--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev", "--size", size, "--tmpfs", "/tmp")
    watched = ("--seccomp", str(calls), "--json-status-fd", str(status_write), *(("--as-pid-1",) if first else ()))
    bounds = {
        "nproc": limits.processes,
        # Not the address space: Java and Node reserve much more of it than they use.
        "data": memory,
        "fsize": limits.files_mib * _MIB,
        "nofile": _OPEN_FILES,
        "core": 0,
        "cpu": math.ceil(limits.cpu_seconds) + 1,
    }
    bound = (f"--{name}={value}" for name, value in bounds.items())
    return [*_BOX, *folders, "--remount-ro", "/", "--chdir", "/tmp", *watched, "--", "/usr/bin/prlimit", *bound, "--"]


class _Watch:
    """One program that was started, until it has ended or has used up a limit."""

    def __init__(self, process: subprocess.Popen[bytes], status_read: int, limits: Limits, began: float) -> None:
        self._process, self._limits, self._began = process, limits, began
        assert process.stdout is not None and process.stderr is not None
        self._streams = {
            process.stdout.fileno(): bytearray(),
            process.stderr.fileno(): bytearray(),
            status_read: bytearray(),
        }
        self._out, self._err, self._status = self._streams.values()
        self._child: int | None = None
        self._first: int | None = None
        """The box's first process, as a file descriptor that cannot come to mean another one."""

    def to_the_end(self) -> Ran:
        try:
            stopped = self._wait()
        finally:
            self._end()
        reports = {key: value for line in _lines(self._status) for key, value in line.items()}
        if stopped is None and "exit-code" not in reports:
            why = _line(bytes(self._err))
            raise InputError(
                f"bubblewrap cannot make a sandbox here: {why}: it needs version 0.8 or later and user namespaces that "
                "this user may create"
            )
        limit = int(self._limits.output_mib * _MIB)
        status = 128 + signal.SIGKILL if stopped else reports["exit-code"]
        seconds = time.monotonic() - self._began
        return Ran(status, bytes(self._out[:limit]), bytes(self._err[:limit]), seconds, stopped)

    def _wait(self) -> LimitName | None:
        """Read until all ends are closed; returns the limit that was exceeded before."""
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream, selectors.EVENT_READ)
            looked = self._began
            while selector.get_map():
                for key, _ in selector.select(_LOOK_SECONDS):
                    if piece := os.read(key.fd, _PIECE):
                        self._streams[key.fd] += piece
                    else:
                        selector.unregister(key.fileobj)
                self._meet_first()
                if len(self._out) + len(self._err) > self._limits.output_mib * _MIB:
                    return "output"
                if (now := time.monotonic()) - looked >= _LOOK_SECONDS:
                    looked = now
                    if (stopped := self._exceeded(now)) is not None:
                        return stopped
        return None

    def _meet_first(self) -> None:
        """Hold on to the box's first process, as soon as bubblewrap has named it."""
        if self._child is None:
            self._child = next((line["child-pid"] for line in _lines(self._status) if "child-pid" in line), None)
            if self._child is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._first = os.pidfd_open(self._child)

    def _exceeded(self, now: float) -> LimitName | None:
        if now - self._began > self._limits.seconds:
            return "seconds"
        if self._child is None:
            return None
        memory, cpu = _used(self._child)
        if memory > self._limits.memory_mib * _MIB:
            return "memory"
        return "cpu_seconds" if cpu > self._limits.cpu_seconds else None

    def _end(self) -> None:
        """Kill what is left, and wait until nothing is."""
        # With the group dies a box that is not made yet, too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._first is not None:
            # When the first process of a process namespace is gone, so are all others.
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            select.select([self._first], [], [], _END_SECONDS)
            os.close(self._first)
        self._process.wait()


def _used(child: int) -> tuple[int, float]:
    """Bytes in memory and seconds of processor time of all that is in the box of a first process."""
    memory, ticks, root = 0, 0, Path(f"/proc/{child}/root")
    with contextlib.suppress(OSError):
        if (root / "proc").stat().st_dev == Path("/proc").stat().st_dev:
            # The box is not made yet: these are this machine's processes.
            return 0, 0.0
        for process in (root / "proc").iterdir():
            if not process.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
                memory += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
                # Its own, and that of the children that it has waited for.
                ticks += sum(map(int, fields[11:15]))
        for folder in _FOLDERS:
            files = os.statvfs(f"{root}{folder}")
            memory += (files.f_blocks - files.f_bfree) * files.f_frsize + (files.f_files - files.f_ffree) * _FILE_BYTES
    return memory, ticks / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _sealed(content: bytes) -> Iterator[int]:
    """A file in memory that can only be read."""
    place = os.memfd_create("sandbox", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(place, "wb", closefd=False) as stream:
            stream.write(content)
        fcntl.fcntl(place, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        os.lseek(place, 0, os.SEEK_SET)
        yield place
    finally:
        os.close(place)


def _lines(status: bytearray) -> list[dict[str, int]]:
    """What bubblewrap reported, as far as its lines are whole."""
    return [json.loads(line) for line in status.split(b"\n")[:-1]]


def _line(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())[:300] or "it did not say why"

"""Processes that need not load their libraries: a server that has loaded them is forked (`python -m ec1.launch.warm`).

The trainings and evaluations of a night load torch, transformers, PEFT and TRL: five CPU seconds on one core, each.
Where a night runs on a CPU, the first of its steps that knows that something will be trained starts this server, which
loads them once, while the engine of phase 1 starts. It touches no model. What is forked of it is a process like any
other: under a warden of its own (`warden.py`), in a session of its own, with its own environment and log; its status,
its death and its lease's mark are seen, and it is killed with its family, as a process that was started. The server
ends when the process ends for which it was started.

Belongs here: the server, and how it is asked. Does not: who asks (`process.py`), and who starts it (`resources`). Not
for a card: a process that has looked for one cannot be forked.
"""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from ec1.launch import warden
from ec1.launch.libraries import load_libraries

SOCKET = "EC1_WARM"
"""In a process's environment: the server's socket. It is not handed on."""
MODULES = ("ec1.training", "ec1.adapters.evaluation")
"""What it runs."""
LIBRARIES = ("peft", "trl.trainer.base_trainer", "transformers.trainer", "ec1.training.trainer", "ec1.adapters.solving")
PATIENCE_SECONDS = 60.0
"""For a server that still loads. One who has given up is not served: telling it the pid fails."""
_ROOM = "EC1_ROOM"
_ROOM_BYTES = 4096
_LENGTH = struct.Struct("!Q")


def environment_for(env: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: `env`, with room in which a fork can show its own marks."""
    return {**env, _ROOM: "-" * _ROOM_BYTES}


class ForkedProcess:
    """A process that the server forked, as `subprocess.Popen` shows one; `pid` is its warden's."""

    def __init__(
        self, server: str, module: str, arguments: Sequence[str], grace: float, env: Mapping[str, str], log: int
    ) -> None:
        """Ask the server at that address. Raises OSError if it does not answer, or cannot do what is asked."""
        reading, writing = os.pipe()
        self._status: int | None = None
        self._rest = b""
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._line.settimeout(PATIENCE_SECONDS)
            self._line.connect(server)
            order = {
                "module": module,
                "arguments": list(arguments),
                "grace": grace,
                "env": dict(env),
                "cwd": str(Path.cwd()),
            }
            data = json.dumps(order).encode()
            socket.send_fds(self._line, [_LENGTH.pack(len(data))], [reading, log])
            self._line.sendall(data)
            self.pid = int(self._read_line())
            self._handle = os.pidfd_open(self.pid)
        except (OSError, ValueError) as error:
            os.close(writing)
            self._line.close()
            raise OSError(f"the server of loaded libraries at {server} does not answer: {error}") from error
        finally:
            os.close(reading)
        self.stdin = os.fdopen(writing, "wb")

    def _read_line(self) -> bytes:
        while b"\n" not in self._rest:
            if not (part := self._line.recv(64)):
                raise ValueError("it hung up")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    @property
    def returncode(self) -> int | None:
        return self._status

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """The exit status: the command's, or minus the signal that ended its warden. Raises
        subprocess.TimeoutExpired."""
        if self._status is None:
            # Its warden's end, and not the line's: a descendant could hold that open.
            if not select.select([self._handle], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
            self._line.setblocking(False)
            try:
                self._status = int(self._read_line())
            except (OSError, ValueError):
                # It could not tell: whoever ended it did so at once.
                self._status = -signal.SIGKILL
            self._line.close()
            os.close(self._handle)
        return self._status

    def kill(self) -> None:
        """End the warden at once, and with it the command."""
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)


def start_server(path: Path, owner: int, env: Mapping[str, str], log: Path) -> None:
    """Start a server for the process `owner`, unless one listens at `path`. Does not wait until it has loaded."""
    if is_there(path):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        subprocess.Popen(
            [sys.executable, "-m", "ec1.launch.warm", str(path), str(owner)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment_for(env),
            start_new_session=True,
        )


def is_there(path: Path) -> bool:
    """Whether a server listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        try:
            line.connect(str(path))
        except OSError:
            return False
        return True


def serve(path: Path, owner: int, libraries: Sequence[str] = LIBRARIES, modules: Collection[str] = MODULES) -> None:
    """Load the libraries and fork for whoever asks, until the process `owner` has ended. One server at a path."""
    living = os.pidfd_open(owner)
    lock = path.with_suffix(".lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    # Before they are loaded: who asks meanwhile waits, which takes no longer than loading them.
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path.unlink(missing_ok=True)
    os.umask(0o077)
    listener.bind(str(path))
    listener.listen(8)
    load_libraries(*libraries)
    gc.freeze()
    sys.stdout.flush()
    # Ended forks are not waited for; their status goes to who asked.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        while living not in select.select([listener.fileno(), living], [], [])[0]:
            line, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                lock.close()
                os.close(living)
                _become_warden(line, modules)
            line.close()
    finally:
        path.unlink(missing_ok=True)


def _become_warden(line: socket.socket, modules: Collection[str]) -> NoReturn:
    """In a fork: carry out the order that comes on the line, as its warden, and tell its pid and status."""
    status = 1
    try:
        header, files, _, _ = socket.recv_fds(line, _LENGTH.size, 2)
        if len(header) < _LENGTH.size or len(files) != 2:
            # Somebody looked whether there is a server.
            os._exit(0)
        data, length = b"", _LENGTH.unpack(header)[0]
        while len(data) < length and (part := line.recv(length - len(data))):
            data += part
        order = json.loads(data)
        if order["module"] not in modules:
            os._exit(2)
        os.setsid()
        for number, file in ((0, files[0]), (1, files[1]), (2, files[1])):
            os.dup2(file, number)
        for file in files:
            os.close(file)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update({name: value for name, value in order["env"].items() if name != SOCKET})
        _show_environment(order["env"])
        line.sendall(f"{os.getpid()}\n".encode())
        status = warden.watch(order["grace"], lambda: _Forked(order["module"], order["arguments"], line))
        line.sendall(f"{status}\n".encode())
    except BaseException:  # noqa: BLE001  a fork must never go on as the server
        traceback.print_exc()
    finally:
        os._exit(status)


class _Forked:
    """The command's process: one more fork, of the warden."""

    def __init__(self, module: str, arguments: Sequence[str], line: socket.socket) -> None:
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid:
            # Here and there: who is first decides nothing.
            with contextlib.suppress(OSError):
                os.setpgid(self.pid, self.pid)
            return
        os.setpgid(0, 0)
        warden.die_with_parent()
        if os.getppid() != parent:
            os._exit(1)
        line.close()
        for number in warden.STOPPED_BY:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        _run(module, arguments)

    def wait(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


def _run(module: str, arguments: Sequence[str]) -> NoReturn:
    """`python -m module arguments`, and the end of this process."""
    status: Any = 1
    try:
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as error:
        status = error.code
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException:  # noqa: BLE001  it is this process's end
        traceback.print_exc()
    if not isinstance(status, int):
        if status is not None:
            sys.stderr.write(f"{status}\n")
        status = 0 if status is None else 1
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _show_environment(env: Mapping[str, str]) -> None:
    """Let others see this process's marks: `/proc/<pid>/environ` is memory that the kernel filled when the server was
    started, and a fork has a copy of it. Raises ValueError if they do not fit."""
    shown = b"".join(f"{name}={value}\0".encode() for name, value in env.items() if name.startswith("EC1_"))
    if len(shown) > _ROOM_BYTES:
        raise ValueError(f"marks of {len(shown)} bytes do not fit into {_ROOM_BYTES}")
    begin, room = _room()
    ctypes.memmove(begin, shown.ljust(room, b"\0"), room)


def _room() -> tuple[int, int]:
    """Where in this process's memory the room lies, and its size."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    # Fields 50 and 51 of proc_pid_stat(5), counted from the third.
    begin, end = int(fields[47]), int(fields[48])
    block = ctypes.string_at(begin, end - begin)
    place = block.find(f"{_ROOM}=-".encode())
    if place < 0:
        raise ValueError("the server was started without room for marks")
    return begin + place, len(_ROOM) + 1 + _ROOM_BYTES


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))

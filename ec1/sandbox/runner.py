"""What runs in the sandbox's batch box: the first process of the box, which starts a limited child for each answer.

Belongs here: only what the box's own Python can run, with no import beyond its standard library: its source is handed
in as text. Does not: any expected value; and what a result means (`batch.py`).

As the first process of its namespace it cannot be ended by what it starts, and its memory and descriptors cannot be
opened by it. One child lives at a time, and with it dies everything that it started.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

_NOT_DUMPABLE = 4  # PR_SET_DUMPABLE
_RESULT = 3
_MIB = 2**20
_FOLDERS = ("/tmp", "/dev/shm")
_DEPTH = 50


def main() -> int:
    """Exit status 0: all were run. 3: a child left files, and the next one must not find them."""
    ctypes.CDLL(None).prctl(_NOT_DUMPABLE, 0, 0, 0, 0)
    # Without a handler a signal from inside does nothing to a namespace's first process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    limits = _next()
    while (job := _next()) is not None:
        report = json.dumps(_one(job, limits)) + "\n"
        os.write(1, report.encode())
        if any(os.listdir(folder) for folder in _FOLDERS):  # noqa: PTH208
            return 3
    return 0


def _next() -> Any:
    """The next value of standard input, read to its last byte and no further: a child is a copy of this process."""
    size = os.read(0, 8)
    return json.loads(os.read(0, int.from_bytes(size, "big"))) if size else None


def _one(job: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """What came back of one answer: `text`, and `ended`: how its process did."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            os.close(reading)
            _confine(writing, limits)
            os.write(_RESULT, json.dumps(_results(job)).encode())
            status = 0
        os._exit(status)
    os.close(writing)
    try:
        text, ended = _watch(child, reading, limits)
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while True:
                # Orphans of a child become this process's own.
                number, status = os.waitpid(-1, 0)
                if number == child and ended == "ended" and os.WIFSIGNALED(status):
                    ended = "cpu_seconds" if os.WTERMSIG(status) == signal.SIGXCPU else "signal"
    return {"text": text.decode(errors="replace"), "ended": ended}


def _watch(child: int, reading: int, limits: dict[str, Any]) -> tuple[bytes, str]:
    """Read until the child has ended or has used up its time or its room."""
    text, ending = b"", time.monotonic() + limits["seconds"]
    process = os.pidfd_open(child)
    os.set_blocking(reading, False)
    try:
        while True:
            ready = select.select([reading, process], [], [], max(0.0, ending - time.monotonic()))[0]
            if not ready:
                return b"", "seconds"
            with contextlib.suppress(BlockingIOError):
                while piece := os.read(reading, 65536):
                    text += piece
                    if len(text) > limits["output_mib"] * _MIB:
                        return b"", "output"
            if process in ready:
                return text, "ended"
            if reading in ready:
                # Closed or emptied; what is left to wait for is the process.
                select.select([process], [], [], min(0.01, max(0.0, ending - time.monotonic())))
    finally:
        os.close(process)


def _confine(writing: int, limits: dict[str, Any]) -> None:
    """Leave this process with one descriptor to write its result to, and its own limits."""
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(writing, _RESULT)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(_RESULT + 1, 256)
    os.setsid()
    seconds = max(1, int(limits["cpu_seconds"]))
    # The first signal can be told from others, the second cannot be ignored.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    bounds = {
        resource.RLIMIT_DATA: int(limits["memory_mib"]) * _MIB,
        resource.RLIMIT_FSIZE: int(limits["files_mib"]) * _MIB,
        resource.RLIMIT_NPROC: int(limits["processes"]),
    }
    for name, value in bounds.items():
        resource.setrlimit(name, (value, value))


def _results(job: dict[str, Any]) -> list[list[Any]]:
    """Per case `[true, value]`, or `[false, what went wrong]`."""
    try:
        code, space = _prepared(job["program"])
    except BaseException as error:  # noqa: BLE001
        return [[False, _name(error)] for _ in job["cases"]]
    return [_result(code, space, case) for case in job["cases"]]


def _prepared(program: str) -> tuple[Any, dict[str, Any]]:
    """The code of an answer that is one expression, else None and the names that its statements define."""
    space: dict[str, Any] = {"__name__": "answer", "__builtins__": __builtins__}
    try:
        return compile(program.strip(), "answer", "eval"), space
    except SyntaxError:
        exec(compile(program, "answer", "exec"), space)
        return None, space


def _result(code: Any, space: dict[str, Any], case: dict[str, Any]) -> list[Any]:
    try:
        names = {**space, **case["given"]}
        if case["call"] is not None:
            if code is not None:
                return [False, "an expression defines nothing to call"]
            return [True, _plain(eval(case["call"], names), 0)]
        return [True, _plain(eval(code, names), 0)] if code is not None else [False, "not one expression"]
    except BaseException as error:  # noqa: BLE001
        return [False, _name(error)]


def _plain(value: Any, depth: int) -> Any:
    """The value, if JSON has a form for exactly its type: an object that claims to be equal to all is none."""
    kind = type(value)
    if kind in (type(None), bool, int, float, str):
        return value
    if depth < _DEPTH and kind in (list, tuple):
        return [_plain(each, depth + 1) for each in value]
    if depth < _DEPTH and kind is dict and all(type(key) is str for key in value):
        return {key: _plain(each, depth + 1) for key, each in value.items()}
    raise TypeError("not a plain value")


def _name(error: BaseException) -> str:
    return "not a plain value" if str(error) == "not a plain value" else type(error).__name__[:80]


if __name__ == "__main__":
    sys.exit(main())

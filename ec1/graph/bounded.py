"""A free query in a process of its own, which is ended when it takes too long or too much memory.

Belongs here: running it, both sides. Does not: what a query may say (`guard.py`). The database's own time-out does not
reach into functions (`range(1, 2000000000)` builds its list first) nor the fetching of rows, and it has no limit of
memory beside its pool; a process can be ended at any moment.
"""

import json
import os
import resource
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ec1.errors import InputError

MEMORY_MIB = 448
"""What the process of a query may hold, with Python and the database's pool, before it is ended: it gets no further
than 512 between two looks."""
POOL_MIB = 192
_ANSWER_MIB = 32
_LOOK_SECONDS = 0.02
_START_SECONDS = 60.0
_THREADS = 2


def run_bounded(
    graph: Path, query: str, parameters: dict[str, Any], *, seconds: float, max_rows: int, memory_mib: int = MEMORY_MIB
) -> list[dict[str, Any]]:
    """The rows of a query that `guard.py` let through, at most `max_rows` and one, which says that there are more.

    Raises InputError if it fails, or takes more than `seconds`, fetching included, or `memory_mib`.
    """
    asked = {"graph": str(graph), "query": query, "parameters": parameters, "rows": max_rows, "seconds": seconds}
    command = [sys.executable, "-m", "ec1.graph.bounded"]
    # Its messages may name places on this machine: what is for the asker comes as an answer.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(asked, default=str).encode())
            process.stdin.close()
            answer = _answer(process, seconds, memory_mib)
        finally:
            process.kill()
    lines = [json.loads(line) for line in answer.splitlines()]
    if not lines or "end" not in lines[-1]:
        raise InputError("the query ended the database: ask in another way")
    if error := lines[-1]["end"]:
        raise InputError(f"the query failed: {error}")
    return lines[:-1]


def _answer(process: "subprocess.Popen[bytes]", seconds: float, memory_mib: int) -> bytes:
    """All that the process says after its first line, by which it is ready."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    os.set_blocking(descriptor, False)
    found = bytearray()
    ready: float | None = None
    until = time.monotonic() + _START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if selector.select(_LOOK_SECONDS):
                part = os.read(descriptor, 2**20)
                if not part:
                    return bytes(found)
                found += part
                if ready is None and b"\n" in found:
                    del found[: found.index(b"\n") + 1]
                    ready = time.monotonic()
                    until = ready + seconds
            if time.monotonic() > until:
                what = f"the query took longer than {seconds:g} s" if ready else "the database did not open in time"
                raise InputError(f"{what}: ask for less, or start from a key")
            if _held_mib(process.pid) > memory_mib:
                raise InputError(f"the query takes more than {memory_mib} MiB: ask for less, such as with LIMIT")
            if len(found) > _ANSWER_MIB * 2**20:
                raise InputError(f"the answer is larger than {_ANSWER_MIB} MiB: ask for fewer rows or columns")


def _held_mib(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * resource.getpagesize() / 2**20


def _serve() -> None:
    """The other side: answers what standard input asks, a row a line; the last line says what went wrong, if anything
    did."""
    asked = json.load(sys.stdin)
    # Should nobody be left to end it.
    limit = int(_THREADS * (asked["seconds"] + _START_SECONDS))
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    import ladybug

    database = ladybug.Database(
        asked["graph"], read_only=True, buffer_pool_size=POOL_MIB * 2**20, max_num_threads=_THREADS
    )
    connection = ladybug.Connection(database)
    error = ""
    _say("")
    sys.stdout.flush()
    try:
        result = connection.execute(asked["query"], asked["parameters"])
        names = result.get_column_names()
        count = 0
        while result.has_next() and count <= asked["rows"]:
            _say(json.dumps(dict(zip(names, result.get_next(), strict=True)), default=str))
            count += 1
    except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError, RecursionError) as problem:
        error = (str(problem).splitlines() or ["no message"])[0].replace(asked["graph"], "the graph")
        error = error or "no message"
    _say(json.dumps({"end": error}))
    sys.stdout.flush()
    # Closing takes time, and there is nothing to keep.
    os._exit(0)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    _serve()

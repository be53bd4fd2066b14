"""Archives, mailboxes, mails and exports, opened in a process of their own with the limits of a conversion.

Belongs here: that process, and the limits of what is taken from it. Does not: what is in such a file (`containers.py`,
`slack.py`). A hostile file can take the process's memory or time, and no more: it is killed, and starts again for the
next file.
"""

import json
import os
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ec1.documents.sources.source import Item
from ec1.errors import DeferredError, RejectedError

_MODULE = "ec1.documents.sources.opening_process"
_LINE = 2**18
_ITEM_BYTES = 1024
"""A generous mean of what an item's line has: if names are longer throughout, this is not a list of documents."""


_SLACK_DAYS = 10**6


class TooSlowError(DeferredError):
    """The process gave no answer in time."""


@dataclass(frozen=True)
class OpeningLimits:
    """Seconds without an answer, and MiB of address space, of the process."""

    seconds: float
    megabytes: int


class Opener:
    """Opens files, one at a time, in one process. A context manager; without it the process ends with this object."""

    def __init__(self, limits: OpeningLimits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._left = bytearray()
        self._opened = 0

    def __enter__(self) -> "Opener":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            _end(self._process)
            self._process = None

    def container(self, path: Path, modified_ns: int, *, max_files: int, max_bytes: int, most: int) -> Iterator[Item]:
        """What an archive, a mailbox or a mail holds; see `Container`. Raises DeferredError, here and where an item is
        read, for what says nothing of the file: the disk does not give it, or the process was killed or is too slow.
        """
        wanted = {"modified_ns": modified_ns, "max_files": max_files, "max_bytes": max_bytes, "most": most}
        return self._items({"kind": "container", "path": os.fspath(path), **wanted}, max_files)

    def slack(self, path: Path) -> Iterator[Item]:
        """The days of a Slack export. Raises DeferredError if it cannot be read."""
        try:
            yield from self._items({"kind": "slack", "path": os.fspath(path)}, _SLACK_DAYS)
        except RejectedError as error:
            raise DeferredError(f"the Slack export {path} cannot be read: {error}") from None

    def _items(self, wanted: dict[str, Any], max_files: int) -> Iterator[Item]:
        self._opened += 1
        self._send({"open": wanted})
        room, number = max_files * _ITEM_BYTES + _LINE, 0
        while "end" not in (answer := self._listed()):
            name, version, modified_ns, size = answer["item"]
            room -= len(name)
            if room < 0:
                self.close()
                raise RejectedError(f"names of more than {max_files * _ITEM_BYTES:,} characters")
            yield Item(name, version, modified_ns, partial(self._read, self._opened, number), size)
            number += 1

    def _listed(self) -> dict[str, Any]:
        try:
            return self._answer()
        except FileNotFoundError:
            raise DeferredError("it went while it was opened") from None

    def _read(self, opened: int, number: int) -> bytes:
        if opened != self._opened or self._process is None or self._process.poll() is not None:
            raise DeferredError("the process that opened what it lies in ended before it was read")
        self._send({"read": number})
        try:
            return self._take(self._answer()["bytes"])
        except TooSlowError as error:
            # The file could be opened: it is this one, and those after it are to be reached on another night.
            raise RejectedError(str(error)) from None

    def _send(self, request: dict[str, Any]) -> None:
        process = self._process if self._process is not None and self._process.poll() is None else self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            # It ended meanwhile: its answer says so.
            return

    def _answer(self) -> dict[str, Any]:
        """One answer. Raises what it says; DeferredError or RejectedError where there is none."""
        while (end := self._left.find(b"\n")) < 0:
            if len(self._left) > _LINE:
                self.close()
                raise RejectedError("the process that opens it gave no answer that can be read")
            self._left += self._bytes()
        line = bytes(self._left[:end])
        del self._left[: end + 1]
        answer: dict[str, Any] = json.loads(line)
        if "rejected" in answer:
            raise RejectedError(answer["rejected"])
        if "deferred" in answer:
            raise DeferredError(answer["deferred"])
        if "gone" in answer:
            raise FileNotFoundError
        return answer

    def _take(self, size: int) -> bytes:
        while len(self._left) < size:
            self._left += self._bytes()
        data = bytes(self._left[:size])
        del self._left[:size]
        return data

    def _bytes(self) -> bytes:
        """The next bytes of the process, at least one."""
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        if not ready.poll(self._limits.seconds * 1000):
            self.close()
            raise TooSlowError(f"not opened within {self._limits.seconds:g} s (documents.conversion.max_seconds)")
        if not (data := os.read(descriptor, 2**20)):
            killed = self._process.wait() == -signal.SIGKILL
            self.close()
            if killed:
                raise DeferredError("the process that opens it was killed, as by a machine that has no memory left")
            raise RejectedError(
                f"the process that opens it ended; it may use {self._limits.megabytes:,} MB "
                "(documents.conversion.max_memory_mb)"
            )
        return data

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        self._left.clear()
        process = subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(self._limits.megabytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Nothing of the night's environment: a parser of foreign bytes needs no keys.
            env={"PATH": "", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
        weakref.finalize(self, _end, process)
        self._process = process
        return process


class OpenedSlack:
    """A `Source`: a Slack export."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opener = Opener(OpeningLimits(seconds=300, megabytes=4096))

    def items(self) -> Iterator[Item]:
        return self._opener.slack(self._path)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        try:
            if pipe is not None:
                pipe.close()
        except OSError:
            # What a killed process did not take is lost, and closing says so.
            continue

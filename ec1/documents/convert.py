"""Documents of other programs (PDF, Word, mail, …) to text, by kreuzberg in a process of its own.

Belongs here: which files are converted, the limits of it, and keeping what came out. Does not: the conversion itself
(`converter_process.py`), and what text files look like inside (`parse.py`).

A hostile file can take only memory, time or the process: the process has limits, is killed when its
time is over, and starts again for the next file. What came out is kept by content and converter version.
"""

import atexit
import json
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from queue import LifoQueue

from pydantic import TypeAdapter, ValidationError

from ec1.documents.limits import PAGE_DONE, READY
from ec1.documents.media_types import MEDIA_TYPES
from ec1.documents.settings import ConversionSettings
from ec1.errors import DeferredError, RejectedError, one_line
from ec1.files import digest_of, write_unflushed

_PIECE = 2**20
log = logging.getLogger(__name__)

CONVERTER_VERSION = f"kreuzberg-{version('kreuzberg')}-7"
"""Raise the last number when `converter_process.py` gives another text for the same bytes."""
_PICTURES = "pages"
"""Which way it reads pictures: a page for itself. It counts where pictures are read."""
_NO_START = "the process that converts documents does not start"
_START_SECONDS = 120
_PAGE_SHARE = 1 / 20
"""Of `max_seconds`, for a page that is read as a picture."""
_MOST_FOR_PAGES = 10
"""Times `max_seconds`: a file of thousands of such pages must not take the night."""


@dataclass(frozen=True)
class Converted:
    """What a file holds. `parts` are (place, text) in reading order; a place is such as `page 7`, or "" without one."""

    title: str
    parts: tuple[tuple[str, str], ...]


_converted: TypeAdapter[Converted] = TypeAdapter(Converted)


class NoConverterError(DeferredError):
    """No file can be converted here: the process that does it does not start."""


class Converter:
    """Converts files within limits; `kept` is a folder for results, or None to keep none.

    Safe to share by threads: so many files are converted at a time as `settings.processes` says.
    """

    def __init__(self, settings: ConversionSettings, kept: Path | None = None) -> None:
        self._settings = settings
        self._kept = kept
        self._workers = [_Worker(settings) for _ in range(settings.processes)]
        self._cannot: str | None = None
        self._free: LifoQueue[_Worker] = LifoQueue()
        for worker in reversed(self._workers):
            self._free.put(worker)

    @property
    def version(self) -> str:
        """Which converter this is: another one may give another text for the same bytes."""
        return "+".join([CONVERTER_VERSION, *([_PICTURES, *self._settings.ocr] if self._settings.ocr else [])])

    @property
    def processes(self) -> int:
        """How many files it converts at a time."""
        return len(self._workers)

    def convert(self, data: bytes, suffix: str, sha256: str) -> Converted:
        """The text of a file of this suffix (of `ec1.streams.CONVERTED`). Raises RejectedError with the reason;
        DeferredError if it takes too long or something else kills the process, which on another night may not happen;
        NoConverterError."""
        return _answered(self._answer(data, suffix, sha256))

    def differs(self, data: bytes, suffix: str, sha256: str, before: str) -> bool:
        """Whether a file's text is not the one that the converter `before` gave; True where that is not kept. Raises
        NoConverterError."""
        earlier = self._place(suffix, sha256, before)
        kept = _read_kept(earlier) if earlier is not None else None
        return kept is None or kept.rstrip() != self._answer(data, suffix, sha256).rstrip()

    def drop_earlier(self) -> None:
        """Remove what other versions gave."""
        for folder in self._kept.iterdir() if self._kept is not None and self._kept.is_dir() else ():
            if folder.name != self.version:
                shutil.rmtree(folder, ignore_errors=True)

    def _answer(self, data: bytes, suffix: str, sha256: str) -> bytes:
        path = self._place(suffix, sha256)
        if path is not None and (found := _read_kept(path)) is not None:
            return found
        with self._worker() as worker:
            answer, lasting = worker.ask(data, suffix)
        if path is not None and lasting:
            write_unflushed(path, answer)
        return answer

    def start(self) -> None:
        """Start a process, if none runs. Raises NoConverterError."""
        with self._worker() as worker:
            worker.start()

    @contextmanager
    def _worker(self) -> Iterator["_Worker"]:
        # Asked once: thousands of files would each start a process that ends.
        if self._cannot is not None:
            raise NoConverterError(self._cannot)
        worker = self._free.get()
        try:
            yield worker
        except NoConverterError as error:
            self._cannot = str(error)
            raise
        finally:
            self._free.put(worker)

    def drop(self, suffix: str, sha256: str) -> None:
        """Remove what is kept of a file's text."""
        if (path := self._place(suffix, sha256)) is not None:
            path.unlink(missing_ok=True)

    def _place(self, suffix: str, sha256: str, converter: str | None = None) -> Path | None:
        name = digest_of([suffix, sha256, self._settings.limits])
        version = converter or self.version
        return self._kept / version / name[:2] / f"{name}.json" if self._kept is not None else None

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.close()


class _Worker:
    """One process that converts, started when it is first asked."""

    def __init__(self, settings: ConversionSettings) -> None:
        self._settings = settings
        self.process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout):
                # What a killed process did not take is lost, and closing says so.
                with suppress(OSError):
                    assert pipe is not None
                    pipe.close()
            self.process = None

    def ask(self, data: bytes, suffix: str) -> tuple[bytes, bool]:
        """Its answer, and whether it would be the same another time. Raises NoConverterError."""
        process = self.start()
        assert process.stdin is not None and process.stdout is not None
        began, seconds = time.monotonic(), self._settings.max_seconds
        deadline = began + seconds
        header = {"type": MEDIA_TYPES[suffix], "bytes": len(data), "max_pages": self._settings.max_pages}
        header["ocr"] = self._settings.ocr
        answer, overdue = b"", False
        try:
            _send(process.stdin.fileno(), json.dumps(header).encode() + b"\n" + data, deadline)
            answer = _line(process.stdout.fileno(), deadline, seconds * _PAGE_SHARE, began + seconds * _MOST_FOR_PAGES)
        except TimeoutError:
            overdue = True
        except OSError:
            pass
        if answer:
            return answer, True
        if overdue:
            self.close()
            took = max(seconds, round(time.monotonic() - began))
            return _said("not now", f"not converted within {took:g} s (documents.conversion.max_seconds)"), False
        ended = _status(process)
        self.close()
        if ended == -signal.SIGKILL:
            return _said("not now", "the converter was killed, as by a machine that has no memory left"), False
        may = f"{self._settings.max_memory_mb:,} MB (documents.conversion.max_memory_mb)"
        return _said("refused", f"the converter ended; it may use {may}"), False

    def start(self) -> subprocess.Popen[bytes]:
        """Its process, which can be asked. Raises NoConverterError."""
        if self.process is not None and self.process.poll() is None:
            return self.process
        self.close()
        try:
            process = self._started()
        except OSError as error:
            raise NoConverterError(f"{_NO_START}: {error.strerror}") from None
        assert process.stdin is not None and process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        atexit.register(self.close)
        deadline = time.monotonic() + _START_SECONDS
        try:
            said = _line(process.stdout.fileno(), deadline, 0, deadline)
        except TimeoutError:
            said = f"not ready within {_START_SECONDS} s".encode()
        if said != READY:
            self.close()
            reason = one_line(said.decode("utf-8", "replace")) or f"it ended with status {process.returncode}"
            raise NoConverterError(f"{_NO_START}: {reason}")
        return process

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ec1.documents.converter_process", str(self._settings.max_memory_mb)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Nothing of the night's environment: a parser of foreign bytes needs no keys.
            env={
                "PATH": "",
                "LC_ALL": "C.UTF-8",
                "TMPDIR": tempfile.gettempdir(),
                "OMP_THREAD_LIMIT": "1",
            },
            start_new_session=True,
        )
        return self.process


def _send(pipe: int, data: bytes, deadline: float) -> None:
    """Raises TimeoutError when the time is over, another OSError when nobody reads any more."""
    left = memoryview(data)
    while left:
        _wait(pipe, select.POLLOUT, deadline)
        left = left[os.write(pipe, left) :]


def _line(pipe: int, deadline: float, a_page: float, latest: float) -> bytes:
    """The one line of an answer, or nothing if the process ended before its end. Each page that it says it is done with
    gives it so many seconds more, until the latest moment. Raises TimeoutError."""
    pieces: list[bytes] = []
    while not (pieces and pieces[-1].endswith(b"\n")):
        _wait(pipe, select.POLLIN, deadline)
        if not (piece := os.read(pipe, _PIECE)):
            return b""
        if not pieces:
            answer = piece.lstrip(PAGE_DONE)
            deadline = min(deadline + a_page * (len(piece) - len(answer)), latest)
            piece = answer
        if piece:
            pieces.append(piece)
    return b"".join(pieces)


def _wait(pipe: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(pipe, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise TimeoutError


def _status(process: subprocess.Popen[bytes]) -> int | None:
    """How a process ended that has closed its output; None if it goes on."""
    try:
        return process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        return None


def _said(what: str, reason: str) -> bytes:
    return json.dumps({what: reason}).encode()


def _read_kept(path: Path) -> bytes | None:
    try:
        answer = path.read_bytes()
    except OSError:
        return None
    # A power cut leaves less, or zeros.
    return answer if answer.endswith(b"\n") else None


def _answered(answer: bytes) -> Converted:
    try:
        found = json.loads(answer)
        if "refused" in found:
            raise RejectedError(found["refused"])
        if "not now" in found:
            raise DeferredError(found["not now"])
        return _converted.validate_python({"title": found["title"], "parts": found["parts"]})
    except (ValueError, KeyError, TypeError, ValidationError):
        raise RejectedError("the converter gave no text that can be read") from None

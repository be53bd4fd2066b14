"""What a server has answered about one document that is not done yet, so that a crash costs only what was in flight.

Belongs here: one file of JSON lines beside the document's place in the outbox. Does not: what an answer is worth
(`extractor`). Only answers that led somewhere are kept: one that does not count is asked for again.

Lines are handed to the system at once, which a killed process survives; a power cut may lose the last few, and then
they are asked for again. A line that was cut off is not a line.
"""

import json
import os
import zlib
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from ec1.extraction.reading.client import Completion

Span = tuple[int, int]
"""Which part of the document's text was asked about, in characters: start and end."""


class AnswerLog:
    """The answers about one unit of work; `path` is where they lie."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[Span, Completion]:
        """All answers that are there, by what was asked about."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        answers = {}
        for line in data.splitlines():
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                value = json.loads(line)
                if value.pop("crc", None) not in (None, _checksum(value)):
                    # A bit of it is another one by now: it is asked for again.
                    continue
                answers[value["start"], value["end"]] = Completion(**value["answer"])
        return answers

    def append(self, span: Span, answer: Completion) -> None:
        """Add one answer, in one write."""
        value = {"start": span[0], "end": span[1], "answer": asdict(answer)}
        line = json.dumps({**value, "crc": _checksum(value)})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            # The line break in front: what a crash may have cut off stays a line of its own.
            os.write(descriptor, f"\n{line}\n".encode())
        finally:
            os.close(descriptor)

    def set_aside(self) -> None:
        """Keep the answers for a person to look at, and start anew: one of them cannot be read to its end."""
        with suppress(FileNotFoundError):
            self._path.replace(self._path.with_suffix(".bad"))

    def remove(self) -> None:
        """The unit is done: its result says all."""
        self._path.unlink(missing_ok=True)


def _checksum(value: object) -> int:
    return zlib.crc32(json.dumps(value, sort_keys=True).encode())

"""How a trainer reports what it does: to a Dagster run through Pipes, or as JSON lines where there is none.

The only module of ec1 that may import `dagster_pipes`, a protocol library without dependencies
(https://docs.dagster.io/api/libraries/dagster-pipes).
"""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from ec1.files import read_json

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

CONTEXT_VARIABLE, MESSAGES_VARIABLE = "DAGSTER_PIPES_CONTEXT", "DAGSTER_PIPES_MESSAGES"


class Reporter(Protocol):
    """What a trainer reports to."""

    def progress(self, message: str) -> None:
        """Report progress; dropped if it comes too often."""

    def result(self, values: Mapping[str, Any]) -> None:
        """Report the final figures, once."""


class JsonLinesReporter:
    """One JSON object per line, for a person or a program that reads the log."""

    def __init__(self, stream: TextIO, *, every_seconds: float = 2.0) -> None:
        self._stream = stream
        self._pace = _Pace(every_seconds)

    def progress(self, message: str) -> None:
        if self._pace.due():
            self._write({"progress": message})

    def result(self, values: Mapping[str, Any]) -> None:
        self._write({"result": dict(values)})

    def _write(self, value: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(value) + "\n")
        self._stream.flush()


class PipesReporter:
    """Log lines of the step that launched us, and one custom message with the final figures."""

    def __init__(self, context: "PipesContext", *, every_seconds: float = 5.0) -> None:
        self._context = context
        self._pace = _Pace(every_seconds)

    def progress(self, message: str) -> None:
        if self._pace.due():
            self._context.log.info(message)

    def result(self, values: Mapping[str, Any]) -> None:
        self._context.report_custom_message(dict(values))


class _Pace:
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = -seconds

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


@contextlib.contextmanager
def open_reporter(environment: Mapping[str, str]) -> Iterator[Reporter]:
    """The reporter that fits the environment of the process. An exception of the block is reported too."""
    if CONTEXT_VARIABLE not in environment:
        yield JsonLinesReporter(sys.stdout)
        return
    from dagster_pipes import open_dagster_pipes

    with open_dagster_pipes() as context:
        yield PipesReporter(context)


def exported_session(environment: Mapping[str, str]) -> tuple[Any, Path] | None:
    """The session's context, for a process on another machine, and the file that its messages belong in; None without
    a session."""
    if CONTEXT_VARIABLE not in environment:
        return None
    from dagster_pipes import decode_param

    context, messages = (decode_param(environment[name]) for name in (CONTEXT_VARIABLE, MESSAGES_VARIABLE))
    return read_json(Path(context["path"])), Path(messages["path"])


def imported_session(context: Any, messages: Path) -> dict[str, str]:
    """Variables that open a session from an exported context, whose messages go to the file `messages`."""
    from dagster_pipes import encode_param

    return {CONTEXT_VARIABLE: encode_param({"data": context}), MESSAGES_VARIABLE: encode_param({"path": str(messages)})}

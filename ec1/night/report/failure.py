"""Why a run failed, in one line that says what to do, and the file that keeps it.

Belongs here: the record, where it lies, and the line that an error becomes. Does not: how a run's events are read
(`jobs/failure.py`), and the advice for what the machine refuses (`ec1/refused.py`).
"""

import errno
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from ec1 import refused
from ec1.files import read_json, write_json
from ec1.home import Home
from ec1.strict_yaml import validate

_DATABASE = (
    "a database of this home cannot be read: `ec1 doctor --deep` says which, whether it is damaged, and what to do"
)
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_TOO_LONG = re.compile(r"File name too long", re.IGNORECASE)
_MALFORMED = re.compile(r"file is not a database|disk image is malformed", re.IGNORECASE)
LONGEST = 600
"""Characters of a cause: a line, not a page."""


class Failure(BaseModel):
    """Why one run failed. `cause` is one line; `steps` maps each failed step to its own."""

    night: str
    run: str
    job: str
    cause: str
    steps: dict[str, str] = {}
    again: str

    def __str__(self) -> str:
        return self.cause


def path_of(home: Home, night: str, run: str) -> Path:
    return home.night(night) / f"failure-{run[:8]}.json"


def write_failure(home: Home, failure: Failure) -> Path:
    """Write it down, and put its line at the end of the night's log. Raises OSError if the home takes no files."""
    path = path_of(home, failure.night, failure.run)
    write_json(path, failure.model_dump(mode="json"))
    log = home.logs / f"night-{failure.night}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"night {failure.night}, run {failure.run[:8]} failed: {failure.cause}\n")
    return path


def last_failure(home: Home, night: str) -> Failure | None:
    """The failure of a night that was written last."""
    found = sorted(home.night(night).glob("failure-*.json"), key=lambda path: path.stat().st_mtime)
    return validate(Failure, read_json(found[-1]), str(found[-1])) if found else None


def find_failure(home: Home, night: str, run: str) -> Failure | None:
    """Why a run failed, or None if it wrote no such record."""
    path = path_of(home, night, run)
    return validate(Failure, read_json(path), str(path)) if path.exists() else None


def one_line(kind: str, message: str) -> str:
    """An error as one line, with what to do where the machine is the cause.

    `kind` is the name of its class; `message` is its text, perhaps with that name in front and over several lines.
    """
    text = " ".join(message.strip().split())
    # `ec1.errors.InputError: text`, as tracebacks print it.
    text = re.sub(rf"^(?:[\w.]+\.)?{re.escape(kind)}:\s*", "", text) if kind else text
    # SQLAlchemy adds the statement and a link.
    text = re.sub(r" ?\[SQL: .*| ?\(Background on this error at: .*", "", text)
    text = text or kind or "no error was recorded"
    number = _ERRNO.search(text)
    code = int(number.group(1)) if number else refused.meant_by(text)
    code = errno.ENAMETOOLONG if code is None and _TOO_LONG.search(text) else code
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} ..."
    if code in refused.ADVICE:
        return text if refused.ADVICE[code] in text else f"{text}; {refused.ADVICE[code]}"
    if _MALFORMED.search(text):
        return f"{text}; {_DATABASE}"
    if kind == "ChildProcessCrashException":
        return "its process was killed or crashed (by the system, if memory ran out: stop what else runs here)"
    if kind == "MemoryError":
        return f"{text}; {refused.ADVICE[errno.ENOMEM]}"
    # A mistake in a program is named with its kind; what EC1 says on purpose needs none.
    return text if kind in ON_PURPOSE or not kind else f"{kind}: {text}"


ON_PURPOSE: Sequence[str] = (
    "EC1Error",
    "InputError",
    "RejectedError",
    "DeferredError",
    "SkippedError",
    "StockOutError",
    "PermanentError",
    "QuotaError",
    "DamagedError",
    "DiskError",
    "BusyError",
    "ServiceError",
    "NotNowError",
)
"""The errors of `ec1/errors.py` and their kinds, by name: their text says what to do."""

"""The log of requests: one JSON line each, with who asked which version and what became of it, and nothing of what was
asked or answered.

Belongs here: the lines, and one file a day. Does not: figures (`metrics.py`).
"""

import datetime as dt
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

_NAME = "requests-{}.jsonl"


class RequestLog:
    """Writes `requests-<day>.jsonl` (UTC) into a folder, and keeps the newest `days` of them."""

    def __init__(self, folder: Path, days: int, *, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._days, self._clock = folder, days, clock
        self._day = ""
        self._stream: IO[str] | None = None

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add a line; the time is put in front."""
        now = dt.datetime.fromtimestamp(self._clock(), dt.UTC)
        day = f"{now:%Y-%m-%d}"
        if day != self._day or self._stream is None:
            self._turn(day)
        assert self._stream is not None
        self._stream.write(json.dumps({"at": now.isoformat(timespec="milliseconds"), **entry}) + "\n")
        self._stream.flush()

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _turn(self, day: str) -> None:
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _NAME.format(day)
        path.touch(mode=0o600)
        self._stream, self._day = path.open("a", encoding="utf-8"), day
        for old in sorted(self._folder.glob(_NAME.format("*")))[: -self._days]:
            old.unlink(missing_ok=True)

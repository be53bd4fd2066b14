"""What a booted machine cost and how often it was asked for: one JSON file that survives restarts and crashes.

Belongs here: sessions (from a start to a stop), starts, and what they add up to per calendar day and per night. Does
not: asking the machine how it is (`machine.py`).

A session is written down before the machine is asked for, so a crash at any point leaves one that is open, and the next
one who looks ends it with the times that the machine's own record gives.
"""

import datetime as dt
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict

from ec1.files import read_json, write_json
from ec1.strict_yaml import validate

End = Literal["stopped", "lost", "never began"]
KEEP_DAYS = 400


class Session(BaseModel):
    """One time that a machine ran, or was asked for. Times are seconds since the epoch.

    `end`: `lost` is a stop that was not ours (preemption, its own dead man, Google's limit).
    """

    model_config = ConfigDict(extra="ignore")

    zone: str
    night: str
    asked: float
    before: float | None = None
    """When it had last been started before, by its own record: a start that is not this one."""
    running: float | None = None
    """From then on it is paid for."""
    ended: float | None = None
    end: End | None = None
    phases: dict[str, float] = {}
    """Seconds that each phase used it, from the time that it was ready."""
    until: float
    """It cannot run longer: its lifetime, and what the day's cost allows."""

    def seconds(self, now: float) -> float:
        """Seconds that are paid for, up to now."""
        if self.running is None:
            return 0.0
        return max(0.0, (self.ended if self.ended is not None else min(now, self.until)) - self.running)


class Ask(BaseModel):
    """One time that the machine was asked for; `outcome` says what became of it."""

    at: float
    night: str
    outcome: str = ""


class _Book(BaseModel):
    sessions: list[Session] = []
    asks: list[Ask] = []


class Ledger:
    """The file `folder/ledger.json`. `usd_per_hour` is the machine's price; days are those of `zone`."""

    def __init__(self, folder: Path, usd_per_hour: float, zone: ZoneInfo) -> None:
        self._folder = folder
        self._path = folder / "ledger.json"
        self.usd_per_hour = usd_per_hour
        self._zone = zone

    def read(self) -> "_Book":
        """The ledger as it is. Raises InputError for a damaged file."""
        return validate(_Book, read_json(self._path), str(self._path)) if self._path.exists() else _Book()

    @contextmanager
    def change(self) -> Iterator["_Book"]:
        """The ledger, to be changed by one process at a time; written when the block ends without an error."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "ledger.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            book = self.read()
            yield book
            newest = max((each.asked for each in book.sessions), default=0.0)
            oldest = newest - KEEP_DAYS * 86400
            book.sessions = [each for each in book.sessions if each.asked >= oldest]
            book.asks = [each for each in book.asks if each.at >= oldest]
            write_json(self._path, book.model_dump(mode="json"))

    def open_session(self) -> Session | None:
        """The session that nobody has ended, if there is one."""
        return next((each for each in reversed(self.read().sessions) if each.ended is None), None)

    def cost_of_day(self, now: float) -> float:
        """USD of the calendar day that `now` is in; a session over midnight counts in both days."""
        begin, end = self._day(now)
        seconds = 0.0
        for each in self.read().sessions:
            if each.running is not None:
                last = each.running + each.seconds(now)
                seconds += max(0.0, min(last, end) - max(each.running, begin))
        return seconds / 3600 * self.usd_per_hour

    def asks_of_day(self, now: float) -> int:
        begin, end = self._day(now)
        return sum(begin <= each.at < end for each in self.read().asks)

    def _day(self, now: float) -> tuple[float, float]:
        day = dt.datetime.fromtimestamp(now, self._zone).replace(hour=0, minute=0, second=0, microsecond=0)
        # The next midnight of the calendar: a day may have 23 or 25 hours.
        return day.timestamp(), (day + dt.timedelta(days=1)).timestamp()

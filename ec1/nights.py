"""A night: the daily partition `YYYY-MM-DD` and the window of time that it answers for.

The night of a date covers that calendar day in the deployment's time zone and normally runs soon after the day has
ended. What it reads is cut off at the end of its window, never at the moment when it happens to run, so that a
missed night can be made up later with the same result.
"""

import datetime as dt
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from ec1.errors import InputError


@dataclass(frozen=True)
class Night:
    """One night. `start` and `end` are aware UTC times; the window is `[start, end)`."""

    date: str
    start: dt.datetime
    end: dt.datetime

    @classmethod
    def of(cls, date: str, timezone: str = "UTC") -> "Night":
        """The night of a date `YYYY-MM-DD`. Raises InputError for anything else."""
        try:
            day = dt.datetime.strptime(date, "%Y-%m-%d").date()
        except ValueError:
            raise InputError(f"{date!r} is not a night: use a date such as 2026-06-01") from None
        if day.isoformat() != date:
            raise InputError(f"{date!r} is not a night: write it as {day.isoformat()}")
        zone = ZoneInfo(timezone)

        def midnight(of: dt.date) -> dt.datetime:
            return dt.datetime.combine(of, dt.time(), tzinfo=zone).astimezone(dt.UTC)

        # Local midnights, converted one by one: a day on which the clocks change has 23 or 25 hours.
        return cls(date, midnight(day), midnight(day + dt.timedelta(days=1)))

    @classmethod
    def containing(cls, moment: dt.datetime, timezone: str = "UTC") -> "Night":
        """The night whose window holds `moment` (an aware time)."""
        return cls.of(moment.astimezone(ZoneInfo(timezone)).date().isoformat(), timezone)

    def as_of(self, now: dt.datetime) -> dt.datetime:
        """The cut-off for everything that this night reads: its window's end, or `now` while the window is open."""
        return min(self.end, now.astimezone(dt.UTC))

    def is_past(self, now: dt.datetime) -> bool:
        """True if a whole further window has passed: what vanished since cannot be dated to this night."""
        return now >= self.end + (self.end - self.start)

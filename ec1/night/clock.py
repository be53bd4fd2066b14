"""Whether this machine's clock can be right. One that is behind makes nights of the wrong date, moves the home's first
night, and reads documents of the future."""

import datetime as dt

from ec1.home import Home

EARLIEST_YEAR = 2026
"""This program is of that year; no clock before it is right."""
TOLERANCE = dt.timedelta(seconds=60)


def newest_record(home: Home) -> dt.datetime | None:
    """When anything was last written down in a home, by the clock of that time."""
    folders = [folder for folder in (home.nights, home.logs) if folder.is_dir()]
    newest = max((path.stat().st_mtime for folder in folders for path in folder.iterdir()), default=None)
    return None if newest is None else dt.datetime.fromtimestamp(newest, dt.UTC)


def clock_problem(home: Home, now: dt.datetime) -> str | None:
    """Why the clock cannot be right, and what to do; None if nothing in the home was written after `now`."""
    written = newest_record(home)
    if now.year >= EARLIEST_YEAR and (written is None or now >= written - TOLERANCE):
        return None
    why = f"and the newest record is of {written:%Y-%m-%d %H:%M}" if written else "which cannot be"
    return f"the clock says {now:%Y-%m-%d %H:%M} UTC, {why}: set it (timedatectl set-ntp true)"

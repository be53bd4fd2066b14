"""Why no night of a home starts by itself: its schedule is off, or no daemon runs that would start it.

Belongs here: what the deployment says, and what Dagster's SQLite files say while Dagster is down. Does not: an instance
on PostgreSQL, which only Dagster can ask (`jobs/doctor.py`).
"""

import contextlib
import datetime as dt
import fcntl
import sqlite3
from pathlib import Path

from ec1.deployment import Deployment
from ec1.home import Home

SCHEDULE = "nightly_schedule"
_STATE = """SELECT status, update_timestamp FROM instigators
    WHERE instigator_type = 'SCHEDULE' AND instigator_body LIKE '%"' || ? || '"%'"""
_BEAT = "SELECT timestamp FROM daemon_heartbeats WHERE daemon_type = 'SCHEDULER'"


def why_unstarted(deployment: Deployment, home: Home) -> str:
    """Why nobody starts the nights of this home, with what to do, as far as its files say."""
    status, since = _row(home.dagster / "schedules" / "schedules.db", _STATE, SCHEDULE) or (None, None)
    if status == "STOPPED":
        return f"the schedule is off since {_clock(since)}: switch {SCHEDULE} on in the UI (Automation)"
    if not deployment.schedule.enabled and status != "RUNNING":
        return (
            f"the schedule is off (schedule.enabled: false in deployment {deployment.name}): set it to true, or start "
            "`ec1 night` by a timer of your own"
        )
    if served_by(home) is not None:
        return "nobody started it"
    beat = _row(home.dagster / "history" / "runs.db", _BEAT)
    seen = f"the daemon was last seen on {_clock(beat[0])}" if beat else "no daemon runs"
    return f"nobody started it: {seen}, and no night starts by itself until `ec1 ui` runs (or its service does)"


def _row(database: Path, query: str, *values: str) -> tuple[str, ...] | None:
    """The first row, or None where there is no such file, table or row: this only explains what is known anyhow."""
    if not database.is_file():
        return None
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=1)) as db,
    ):
        found: tuple[str, ...] | None = db.execute(query, values).fetchone()
        return found
    return None


def _clock(timestamp: str | None) -> str:
    return f"{dt.datetime.fromisoformat(timestamp):%Y-%m-%d %H:%M} UTC" if timestamp else "some time"


def served_by(home: Home) -> str | None:
    """Who holds the lock of this home's UI and daemon (`jobs/ui.py`), in its own words."""
    lock = home.dagster / ".ui.lock"
    if not lock.exists():
        return None
    with lock.open() as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return stream.read().strip()
    return None

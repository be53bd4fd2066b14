"""The first night of a home: no night before it exists, so none before it is missing.

A deployment may set it. Otherwise it is the night that was open when the home was made, or an earlier one that somebody
asked for; a small file keeps it.
"""

import datetime as dt

from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.files import write_atomic
from ec1.home import Home
from ec1.night.clock import clock_problem
from ec1.night.report.summary import nights_since


def first_night(deployment: Deployment, home: Home, now: dt.datetime) -> dt.date:
    """The first night; of a home in which nothing has begun, the one that is open now. Writes nothing.

    Raises InputError if the file that keeps it is damaged.
    """
    if deployment.schedule.first_night is not None:
        return deployment.schedule.first_night
    if home.first_night.exists():
        text = home.first_night.read_text(encoding="utf-8", errors="replace").strip()
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            raise InputError(
                f"{home.first_night} holds {text[:40]!r}, not a date: write 2026-06-01 or delete it"
            ) from None
    today = dt.date.fromisoformat(deployment.current_night(now).date)
    # A home of an earlier release has nights and no such file.
    return min([today, *map(dt.date.fromisoformat, nights_since(home, dt.date.min)[:1])])


def begin(deployment: Deployment, home: Home, now: dt.datetime, night: str | None = None) -> dt.date:
    """Keep the first night, or move it back to `night` if somebody asked for that and it is earlier. Returns it.

    Raises InputError for a night before the one that the deployment sets, and for a clock that cannot be right: it
    would move the first night for ever.
    """
    if problem := clock_problem(home, now):
        raise InputError(f"the clock is wrong, and no night was begun: {problem}")
    first = first_night(deployment, home, now)
    tonight = deployment.current_night(now).date
    if night is None and tonight < first.isoformat():
        raise InputError(
            f"night {tonight} is open now, and the first night of this home is {first}: set the clock "
            f"(timedatectl set-ntp true), or ask for an earlier night with --date"
        )
    asked = dt.date.fromisoformat(night) if night else first
    if deployment.schedule.first_night is not None:
        if asked < first:
            raise InputError(f"night {asked} is before schedule.first_night {first} of deployment {deployment.name!r}")
        return first
    earliest = min(first, asked)
    if earliest < first or not home.first_night.exists():
        write_atomic(home.first_night, f"{earliest}\n")
    return earliest

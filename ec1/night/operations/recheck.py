"""Each night a share of what is named by its content is read and compared with its name: all of it in two weeks.

Belongs here: whose turn it is, and the memory of it. Does not: how each kind is checked (`deep.py`), and what becomes
of what is found (`storage_health.py`). A night reads only what it needs; without this, a flipped byte in an adapter
that is served is found when somebody looks.
"""

import contextlib
import datetime as dt
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ec1.adapters.registry import AdapterRegistry
from ec1.errors import InputError
from ec1.files import read_json, write_json
from ec1.home import Home
from ec1.night.health import storage_health
from ec1.night.operations.cleanup import size_of
from ec1.night.operations.deep import ByContent, named_by_content

NIGHTS = 14
"""Within so many nights everything has been read."""
_CHECKED = "checked"


def recheck(home: Home, registry: AdapterRegistry, today: dt.date) -> int:
    """Read what is in use, and a share of the rest, once a day. Returns the bytes that were read. Raises OSError.

    A finding is kept as a record of the storage's health; it fails no night.
    """
    path = home.health / f"{_CHECKED}.json"
    known = _known(path)
    if known.get("day") == today.isoformat():
        return 0
    last: dict[str, str] = known.get("last", {})
    everything = list(named_by_content(home, registry))
    for each in everything:
        # What is new waits from now on, and is not overtaken by what comes after it.
        last.setdefault(each.name, (today - dt.timedelta(days=1)).isoformat())
    sizes = {each.name: size_of(each.path) for each in everything}
    read = 0
    for each in _turn(everything, sizes, last, today):
        problem = each.problem()
        read += sizes[each.name]
        last[each.name] = today.isoformat()
        if problem is not None:
            storage_health.note(home, each.path, problem)
    for left in _left_behind(home):
        storage_health.note(
            home, left, f"{left} is what was damaged and set aside: delete it when you know why", again=False
        )
    there = {each.name for each in everything}
    write_json(path, {"day": today.isoformat(), "last": {name: day for name, day in last.items() if name in there}})
    return read


def _turn(
    everything: Sequence[ByContent], sizes: dict[str, int], last: dict[str, str], today: dt.date
) -> list[ByContent]:
    """What is read today: what is in use, what would become too old, and of the rest what waited longest."""
    due = (today - dt.timedelta(days=NIGHTS)).isoformat()
    waiting = sorted(everything, key=lambda each: (not each.in_use, last[each.name], each.name))
    share = math.ceil(sum(sizes.values()) / NIGHTS)
    chosen, read = [], 0
    for each in waiting:
        if each.in_use or last[each.name] <= due or read < share:
            chosen.append(each)
            read += 0 if each.in_use else sizes[each.name]
    return chosen


def _left_behind(home: Home) -> list[Path]:
    """What was damaged and set aside."""
    patterns = ("graph/*.damaged", "outbox/*/*/*.damaged", "high-water-marks/*/*.damaged", "notices/*.damaged*")
    return [path for pattern in patterns for path in sorted(home.root.glob(pattern))]


def _known(path: Path) -> dict[str, Any]:
    """What was read when; a damaged memory is as good as none: everything is read again."""
    with contextlib.suppress(FileNotFoundError, InputError):
        known = read_json(path)
        if isinstance(known, dict) and isinstance(known.get("last"), dict):
            return known
    return {}

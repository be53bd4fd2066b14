"""The SQLite files of a home: which of them are damaged, and what to do.

Belongs here: the check of such a file. Does not: what is in them (Dagster's history, what was sent to service-content).
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ec1.home import Home

_HEADER = b"SQLite format 3\0"
_NEEDED = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
_QUICK_BYTES = 16 * 2**20


def damage_of(path: Path, *, deep: bool) -> str | None:
    """What is wrong with a SQLite file, or None. A large one is read from end to end only if `deep`."""
    if path.stat().st_size == 0:
        # As SQLite makes them, before the first table.
        return None
    with path.open("rb") as stream:
        if stream.read(len(_HEADER)) != _HEADER:
            return "is not an SQLite file any more"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            if deep or path.stat().st_size <= _QUICK_BYTES:
                (answer,) = db.execute("PRAGMA quick_check(1)").fetchone()
                return None if answer == "ok" else f"is damaged ({' '.join(str(answer).split())})"
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        # Locked by its writer: then it can be read.
        return None if "lock" in str(error) or "busy" in str(error) else f"cannot be read ({error})"
    except sqlite3.DatabaseError as error:
        return f"is damaged ({error})"
    return None


def damaged_databases(home: Home, *, deep: bool = False) -> Iterator[str]:
    """One line for each damaged file, with what to do. What may be deleted (`cache/`) mends itself and is left out."""
    # Each run has one more, which only its own page needs: a year of them is for the deep look.
    wanted = home.dagster.rglob("*.db") if deep else (home.dagster / name for name in _NEEDED)
    for path in sorted(each for each in wanted if each.is_file()):
        if problem := damage_of(path, deep=deep):
            yield (
                f"{path} {problem}: end `ec1 ui` and move {home.dagster / 'history'} and {home.dagster / 'schedules'} "
                "away; the next night begins a new history (graph, corpora, adapters and reports are not in it)"
            )
    for path in sorted((home.root / "service-content").glob("*.sqlite")):
        if problem := damage_of(path, deep=deep):
            yield f"{path} {problem}: move it away; the next night compares and sends what is lacking"

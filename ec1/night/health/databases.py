"""The SQLite files of a home: which of them are damaged, and what to do.

Belongs here: the check of such a file. Does not: what is in them (Dagster's history, what was sent to service-content).

A database that cannot be opened is not damaged: a full or read-only disk refuses SQLite's own files beside it. Only a
failed check of its pages, on a disk that takes files, is damage; only then is anything to be moved away.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ec1 import refused
from ec1.errors import DiskError
from ec1.home import Home

_HEADER = b"SQLite format 3\0"
_NEEDED = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
_QUICK_BYTES = 16 * 2**20


def damage_of(path: Path, *, deep: bool) -> str | None:
    """What a check found wrong with a SQLite file, or None. A large one is read from end to end only if `deep`.

    Raises DiskError where the disk does not let it be checked, OSError where it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(len(_HEADER))
    except OSError as error:
        # A read names no file.
        error.filename = str(path)
        raise
    if not head:
        # As SQLite makes them, before the first table.
        return None
    if head != _HEADER:
        return "is not an SQLite file any more"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            if deep or path.stat().st_size <= _QUICK_BYTES:
                (answer,) = db.execute("PRAGMA quick_check(1)").fetchone()
                return None if answer == "ok" else f"is damaged ({' '.join(str(answer).split())})"
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if "lock" in str(error) or "busy" in str(error):
            # By its writer: then it can be read.
            return None
        why = refused.refuses(str(error), path.parent) or f"{path.parent}: {error}; `ec1 doctor --deep` looks again"
        if (refusal := refused.refusal_of(path.parent)) is not None:
            why = f"{path.parent}: {refused.advice_of(refusal)}"
        raise DiskError(f"{path} cannot be checked: {why}") from None
    except sqlite3.DatabaseError as error:
        return f"is damaged ({error})"
    return None


def damaged_databases(home: Home, *, deep: bool = False) -> Iterator[str]:
    """One line for each damaged file, with what to do. What may be deleted (`cache/`) mends itself and is left out.

    Raises DiskError where the disk refuses: what is damaged cannot be told then. Raises OSError as `damage_of` does.
    """
    # Each run has one more, which only its own page needs: a year of them is for the deep look.
    wanted = home.dagster.rglob("*.db") if deep else (home.dagster / name for name in _NEEDED)
    for path in sorted(each for each in wanted if each.is_file()):
        if problem := _damage_on_a_sound_disk(path, deep=deep):
            yield (
                f"{path} {problem}: end `ec1 ui` and move {home.dagster / 'history'} and {home.dagster / 'schedules'} "
                "away; the next night begins a new history (graph, corpora, adapters and reports are not in it)"
            )
    for path in sorted((home.root / "service-content").glob("*.sqlite")):
        if problem := _damage_on_a_sound_disk(path, deep=deep):
            yield f"{path} {problem}: move it away; the next night compares and sends what is lacking"


def _damage_on_a_sound_disk(path: Path, *, deep: bool) -> str | None:
    problem = damage_of(path, deep=deep)
    if problem is not None and (refusal := refused.refusal_of(path.parent)) is not None:
        raise DiskError(f"{path} {problem}, and {path.parent}: {refused.advice_of(refusal)}")
    return problem

"""What all clean-up shares: what is said of a thing that was removed, how files go, and what counts as old."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

QUIET_SECONDS = 24 * 3600
"""What was written to within this time may be work in progress: a backfill's night is an old one."""


@dataclass(frozen=True)
class Removed:
    """One thing that was removed, or would be. `what` is its kind, such as version, run, snapshot or log."""

    what: str
    name: str
    bytes: int
    why: str


def remove(path: Path, what: str, name: str, why: str, dry_run: bool) -> Removed:
    """Remove a file or a folder. A folder is renamed first, so that nobody finds half of it."""
    size = size_of(path)
    if not dry_run:
        if path.is_dir() and not path.is_symlink():
            doomed = path.with_name(f".ec1-tmp-{path.name}")
            shutil.rmtree(doomed, ignore_errors=True)
            path.rename(doomed)
            shutil.rmtree(doomed)
        else:
            path.unlink(missing_ok=True)
    return Removed(what, name, size, why)


def size_of(path: Path) -> int:
    """The bytes of the files below a path; a file that two names share counts once."""
    files = [path] if not path.is_dir() else path.rglob("*")
    seen: dict[tuple[int, int], int] = {}
    for each in files:
        try:
            status = each.lstat()
        except FileNotFoundError:
            continue
        if not each.is_dir():
            seen[(status.st_dev, status.st_ino)] = status.st_size
    return sum(seen.values())


def age_of(path: Path) -> float:
    """Seconds since anything in it was last written."""
    newest = max((each.lstat().st_mtime for each in path.rglob("*")), default=0.0) if path.is_dir() else 0.0
    return time.time() - max(newest, path.lstat().st_mtime)


def newest(nights: Mapping[str, float], keep: int) -> set[str]:
    """The `keep` newest nights by date, and the `keep` that were worked on last (night -> when): a backfill's too."""
    by_date = sorted(nights)[-keep:]
    by_work = sorted(nights, key=lambda night: (nights[night], night))[-keep:]
    return {*by_date, *by_work}

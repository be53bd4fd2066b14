"""What the last scans read, so that an unchanged file is not read again.

One SQLite file with a row per directory, which holds a line per file: `name/size/mtime_ns/inode/sha256`. Belongs here:
keeping those lines and surviving their loss. Does not: what they mean for a document (`scan.py`). The cache may be
deleted at any time; a damaged or locked one costs time and never a wrong answer, because a line counts only where the
ledger, written separately, has the same hash.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_VERSION = 1
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS directories (path TEXT PRIMARY KEY, lines TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
PRAGMA user_version = {_VERSION};
COMMIT;
"""
# Neither a name nor a line can hold it.
_SEPARATOR = "\0"


class ScanCache:
    """A context manager. Lines are committed on leaving, also after an error: each is right on its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._writable = True

    def __enter__(self) -> "ScanCache":
        self._guarded(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self._guarded(self._commit)
        self._close()

    @property
    def verified_ns(self) -> int | None:
        """The `as_of` (ns since 1970) of the last scan that read every file; None if there was none."""
        row = self._guarded(lambda: self._one("SELECT value FROM meta WHERE name = 'verified_ns'"))
        return row[0] if row else None

    @verified_ns.setter
    def verified_ns(self, value: int) -> None:
        self._write("INSERT OR REPLACE INTO meta VALUES ('verified_ns', ?)", value)

    def load(self, directory: str) -> set[str]:
        """The lines of one directory; empty where there are none that can be read."""
        row = self._guarded(lambda: self._one("SELECT lines FROM directories WHERE path = ?", directory))
        return set(row[0].split(_SEPARATOR)) if row and isinstance(row[0], str) else set()

    def store(self, directory: str, lines: Iterable[str]) -> None:
        """Replace the lines of one directory."""
        if text := _SEPARATOR.join(lines):
            self._write("INSERT OR REPLACE INTO directories VALUES (?, ?)", directory, text)
        else:
            self._write("DELETE FROM directories WHERE path = ?", directory)

    def keep_only(self, directories: set[str]) -> None:
        """Forget the directories that are not in `directories`."""
        known = self._guarded(lambda: self._all("SELECT path FROM directories")) or []
        for (directory,) in known:
            if directory not in directories:
                self._write("DELETE FROM directories WHERE path = ?", directory)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=5)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _VERSION):
                raise sqlite3.DatabaseError(f"version {version}")
            if version == 0:
                connection.executescript(_SCHEMA)
            # One transaction from first to last: a lock for each query would cost more than the query.
            connection.execute(f"PRAGMA mmap_size = {2**30}")
            connection.execute("BEGIN")
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection

    def _one(self, query: str, *values: object) -> Any:
        return self._connection.execute(query, values).fetchone() if self._connection else None

    def _all(self, query: str) -> Any:
        return self._connection.execute(query).fetchall() if self._connection else None

    def _write(self, statement: str, *values: object) -> None:
        def run() -> None:
            if self._connection and self._writable:
                self._connection.execute(statement, values)

        self._guarded(run)

    def _commit(self) -> None:
        if self._connection and self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def _guarded(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except sqlite3.OperationalError as error:
            # Locked by another scan, a full disk, a read-only folder: go on without writing.
            log.warning("the scan cache %s is not used or not updated: %s", self._path, error)
            self._writable = False
        except sqlite3.DatabaseError as error:
            log.warning("the scan cache %s is damaged (%s) and is built anew", self._path, error)
            self._close()
            with contextlib.suppress(OSError, sqlite3.Error):
                for suffix in ("", "-journal", "-wal", "-shm"):
                    Path(f"{self._path}{suffix}").unlink(missing_ok=True)
                self._open()
        return None

    def _close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

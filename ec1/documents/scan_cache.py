"""What the last scans read, so that an unchanged file is not read again.

One SQLite file with a row per directory: `{name: [size, mtime_ns, inode, sha256]}` as JSON. Belongs here: keeping those
rows and surviving their loss. Does not: what they mean for a document (`scan.py`). The cache may be deleted at any
time; a damaged or locked one costs time and never a wrong answer, because its hash counts only where the ledger,
written separately, has the same one.
"""

import contextlib
import json
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_VERSION = 1
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS directories (path TEXT PRIMARY KEY, files TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {_VERSION};
COMMIT;
"""
Rows = dict[str, list[Any]]


class ScanCache:
    """A context manager. Rows are committed on leaving, also after an error: each is right on its own."""

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

    def load(self, directory: str) -> Rows:
        """The rows of one directory; empty where there are none that can be read."""
        row = self._guarded(lambda: self._one("SELECT files FROM directories WHERE path = ?", directory))
        try:
            rows = json.loads(row[0]) if row else {}
        except (ValueError, TypeError):
            return {}
        sound = isinstance(rows, dict) and all(type(row) is list and len(row) == 4 for row in rows.values())
        return rows if sound else {}

    def store(self, directory: str, rows: Rows) -> None:
        """Replace the rows of one directory."""
        if rows:
            text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
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
                if not self._connection.in_transaction:
                    self._connection.execute("BEGIN IMMEDIATE")
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

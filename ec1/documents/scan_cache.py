"""What the last scans read, so that an unchanged file is not read again.

One SQLite file with a record per directory: the files' names, sizes, times, inodes and hashes in a column each, which
loads faster than JSON. Belongs here: keeping those rows and surviving their loss. Does not: what they mean for a
document (`scan.py`). The cache may be deleted at any time; a damaged or locked one costs time and never a wrong answer,
because a row counts only where the ledger, written separately, has the same hash.
"""

import contextlib
import logging
import sqlite3
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

_VERSION = 1
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS directories (
    path TEXT PRIMARY KEY, names TEXT, sizes BLOB, times BLOB, inodes BLOB, hashes TEXT
);
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
PRAGMA user_version = {_VERSION};
COMMIT;
"""
Row = tuple[int, int, int, str]
"""Size in bytes, mtime_ns, inode, SHA-256 (hex) of one file."""

# No file name can hold it.
_SEPARATOR = "\0"
_HASH_CHARACTERS = 64


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

    def rules_of(self, stream: str) -> int | None:
        """By what rules the last scan chose a stream's files; None if nothing is known of it."""
        row = self._guarded(lambda: self._one("SELECT value FROM meta WHERE name = ?", f"rules {stream}"))
        return row[0] if row else None

    def set_rules(self, stream: str, rules: int) -> None:
        """Note by what rules a stream's files were chosen, when all of them were."""
        self._write("INSERT OR REPLACE INTO meta VALUES (?, ?)", f"rules {stream}", rules)

    def load(self, directory: str) -> dict[str, Row]:
        """The rows of one directory by file name; empty where there are none that can be read."""
        query = "SELECT names, sizes, times, inodes, hashes FROM directories WHERE path = ?"
        record = self._guarded(lambda: self._one(query, directory))
        if not record:
            return {}
        try:
            names, hashes = record[0].split(_SEPARATOR), record[4]
            columns = (array("Q", record[1]), array("q", record[2]), array("Q", record[3]))
            each = [hashes[start : start + _HASH_CHARACTERS] for start in range(0, len(hashes), _HASH_CHARACTERS)]
            rows = zip(*columns, each, strict=True)
            return dict(zip(names, rows, strict=True))
        except (ValueError, TypeError, AttributeError):
            return {}

    def update(self, directory: str, changes: Mapping[str, Row | None]) -> None:
        """Add, replace or (None) remove rows of one directory."""
        merged = {name: row for name, row in {**self.load(directory), **changes}.items() if row}
        if not merged:
            self._write("DELETE FROM directories WHERE path = ?", directory)
            return
        sizes, times, inodes, hashes = zip(*merged.values(), strict=True)
        columns = (array("Q", sizes).tobytes(), array("q", times).tobytes(), array("Q", inodes).tobytes())
        record = (directory, _SEPARATOR.join(merged), *columns, "".join(hashes))
        self._write("INSERT OR REPLACE INTO directories VALUES (?, ?, ?, ?, ?, ?)", *record)

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
            log.warning("the scan cache %s is damaged (%s) and is rebuilt", self._path, error)
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

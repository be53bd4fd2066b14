"""The line index of a bucket: which lines its files hold, so that a night reads only the bytes that are new.

Belongs here: finding what changed (size, modification time, inode, then the bytes themselves) and one row per line.
Does not: which lines a night counts (snapshots). The index is a cache in SQLite: deleting it only costs time.
"""

import datetime as dt
import fcntl
import hashlib
import itertools
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ec1.corpus.access import reason_of
from ec1.corpus.buckets import Bucket
from ec1.corpus.packed import MAX_LINE_BYTES
from ec1.corpus.row_kinds import ROW_KINDS
from ec1.corpus.tuples import TrainingTuple, load_record, parse_record, trainable
from ec1.errors import RejectedError
from ec1.files import digest_of, naming

log = logging.getLogger(__name__)

RULES = 3
"""Raise it when a change of `tuples.py` changes what is trainable: indexes are then rebuilt and digests differ."""

_LAYOUT = 3
"""Of the index alone: raise it when its tables change. Digests stay."""

KEY_BYTES = 16
"""A row's key is the first half of the SHA-256 of its tuple: 128 bits name a line beyond doubt."""

REMOVED = "was removed on request: ec1 forget"
_HEAD, _TAIL = 4096, 65536
# A file that was changed this shortly before it was read may change again without a new modification time.
_RACY_NS = 2_000_000_000

_SCHEMA = f"""
CREATE TABLE file (id INTEGER PRIMARY KEY, path TEXT UNIQUE, size INT, mtime_ns INT, inode INT, indexed_ns INT,
                   offset INT, lines INT, probe BLOB);
CREATE TABLE row (id INTEGER PRIMARY KEY AUTOINCREMENT, file INT, line INT, offset INT, length INT, key BLOB,
                  created_us INT, {", ".join(f"{kind} INT" for kind in ROW_KINDS)});
CREATE INDEX row_file ON row (file);
CREATE TABLE reason (id INTEGER PRIMARY KEY, text TEXT UNIQUE);
"""
_BASE = "CREATE TABLE IF NOT EXISTS base (objective TEXT PRIMARY KEY, digest TEXT)"


@dataclass(frozen=True)
class IndexedLine:
    """One line of one file. `why_not`: per kind of row a reason, or None; `created_us` microseconds since 1970."""

    line: int
    offset: int
    length: int
    key: bytes
    created_us: int | None
    why_not: tuple[str | None, ...]


class LineIndex:
    """The index of one bucket, held by one process at a time; use it as a context manager.

    In the table `base` snapshots note, per objective, which one was taken last.
    """

    def __init__(
        self, bucket: Bucket, cache: Path, is_removed: Callable[[TrainingTuple], bool] = lambda item: False
    ) -> None:
        self._is_removed = is_removed
        place = hashlib.sha256(str(bucket.root.resolve()).encode()).hexdigest()[:12]
        self._bucket = bucket
        ignored = f"-{digest_of(bucket.ignored)[:12]}" if bucket.ignored else ""
        self._path = cache / "corpus" / f"{bucket.name}-{place}-{RULES}.{_LAYOUT}{ignored}.sqlite"

    def __enter__(self) -> "LineIndex":
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = self._path.with_suffix(".lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            self.db = self._open()
        except sqlite3.DatabaseError:
            self.rebuild()
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()
        self._lock.close()

    def _open(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None)
        # The lock above keeps others out; a crash of the machine may cost the cache, never a wrong answer.
        db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY;")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'reason'").fetchone():
            db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        db.execute(_BASE)
        return db

    def rebuild(self) -> None:
        """Delete a damaged index and begin with an empty one."""
        log.warning("%s is damaged; the corpus is indexed again", self._path)
        if hasattr(self, "db"):
            self.db.close()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
        self.db = self._open()

    def forget(self, path: str) -> None:
        """Index a file anew at the next refresh: its bytes were not what the index said."""
        self.db.execute("UPDATE file SET size = -1 WHERE path = ?", (path,))

    def refresh(self) -> int:
        """Bring the index up to date with the bucket's files; returns the number of lines that were read."""
        columns = "path, id, size, mtime_ns, inode, indexed_ns"
        known = {path: rest for path, *rest in self.db.execute(f"SELECT {columns} FROM file")}
        changed = []
        for path, stat in self._bucket.files():
            seen = known.pop(path, None)
            if seen is not None:
                identifier, size, mtime_ns, inode, indexed_ns = seen
                same = (size, mtime_ns, inode) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)
                if same and mtime_ns + _RACY_NS < indexed_ns:
                    continue
            changed.append(path)
        read = 0
        self.db.execute("BEGIN IMMEDIATE")
        try:
            for identifier, *_ in known.values():
                self._drop_rows(identifier)
                self.db.execute("DELETE FROM file WHERE id = ?", (identifier,))
            for path in sorted(changed):
                read += self._index_file(path)
            self.db.execute("COMMIT")
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        return read

    def _drop_rows(self, identifier: int) -> None:
        self.db.execute("DELETE FROM row WHERE file = ?", (identifier,))

    def _index_file(self, path: str) -> int:
        """Bring one file's rows up to date; returns the number of lines that were read."""
        indexed_ns = time.time_ns()
        columns = "id, size, offset, lines, probe"
        entry = self.db.execute(f"SELECT {columns} FROM file WHERE path = ?", (path,)).fetchone()
        try:
            stream = (self._bucket.root / path).open("rb")
        except FileNotFoundError:
            return 0
        with stream, naming(self._bucket.root / path):
            stat = os.fstat(stream.fileno())
            if stat.st_mtime_ns > indexed_ns:
                # A date in the future tells nothing: what counts is when the file came here.
                indexed_ns = stat.st_ctime_ns
            offset = lines = 0
            if entry is None:
                identifier = self.db.execute("INSERT INTO file (path) VALUES (?)", (path,)).lastrowid
                assert identifier is not None
            else:
                identifier = int(entry[0])
                if (
                    0 <= entry[1] < stat.st_size
                    and _probe(stream, entry[2]) == entry[4]
                    and _line_ends(stream, entry[2])
                ):
                    offset, lines = entry[2], entry[3]
                elif self._holds(identifier, self._lines(stream, 0, 0)):
                    offset, lines = stream.tell(), entry[3]
                else:
                    self._drop_rows(identifier)
            read = 0
            found = self._lines(stream, offset, lines)
            while batch := list(itertools.islice(found, 5000)):
                read += len(batch)
                lines = batch[-1].line
                self._insert(identifier, batch)
            end = stream.tell()
            probe = _probe(stream, end)
        self.db.execute(
            "UPDATE file SET size=?, mtime_ns=?, inode=?, indexed_ns=?, offset=?, lines=?, probe=? WHERE id=?",
            (stat.st_size, stat.st_mtime_ns, stat.st_ino, indexed_ns, end, lines, probe, identifier),
        )
        return read

    def _holds(self, identifier: int, found: Iterator[IndexedLine]) -> bool:
        rows = self.db.execute("SELECT line, offset, length, key FROM row WHERE file = ? ORDER BY line", (identifier,))
        pairs = itertools.zip_longest(rows, ((item.line, item.offset, item.length, item.key) for item in found))
        return all(row == item for row, item in pairs)

    def _lines(self, stream: BinaryIO, offset: int, lines: int) -> Iterator[IndexedLine]:
        """The lines of a file from an offset on; afterwards the stream stands behind the last one."""
        stream.seek(offset)
        number, skipping = lines, False
        while raw := stream.readline(MAX_LINE_BYTES):
            start, offset = offset, offset + len(raw)
            if skipping:
                skipping = not raw.endswith(b"\n")
                continue
            number += 1
            skipping = len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n")
            if skipping or raw.strip():
                yield self._line(number, start, raw, too_long=skipping)

    def _line(self, number: int, start: int, raw: bytes, *, too_long: bool) -> IndexedLine:
        try:
            if too_long:
                raise RejectedError(f"line longer than {MAX_LINE_BYTES} bytes")
            item = parse_record(load_record(raw), self._bucket.ignored)
            if self._is_removed(item):
                raise RejectedError(REMOVED)
        except RejectedError as error:
            key, reason = hashlib.sha256(raw).digest()[:KEY_BYTES], str(error)
            return IndexedLine(number, start, len(raw), key, None, (reason,) * len(ROW_KINDS))
        foreign = "belongs to another tenant" if item.tenant not in (None, self._bucket.tenant) else None
        return IndexedLine(
            number,
            start,
            len(raw),
            bytes.fromhex(item.digest)[:KEY_BYTES],
            None if item.created is None else microseconds(item.created),
            tuple(foreign or trainable(item, kind.name) or reason_of(item.labels) for kind in ROW_KINDS.values()),
        )

    def _insert(self, identifier: int, batch: list[IndexedLine]) -> None:
        reasons = {reason for item in batch for reason in item.why_not if reason is not None}
        if missing := sorted(reasons - self.reasons().keys()):
            self.db.executemany("INSERT INTO reason (text) VALUES (?)", [(reason,) for reason in missing])
        number = self.reasons()
        kinds, marks = ", ".join(ROW_KINDS), ",?" * len(ROW_KINDS)
        self.db.executemany(
            f"INSERT INTO row (file, line, offset, length, key, created_us, {kinds}) VALUES (?,?,?,?,?,?{marks})",
            [
                (
                    identifier,
                    item.line,
                    item.offset,
                    item.length,
                    item.key,
                    item.created_us,
                    *(None if reason is None else number[reason] for reason in item.why_not),
                )
                for item in batch
            ],
        )

    def reasons(self) -> dict[str, int]:
        return dict(self.db.execute("SELECT text, id FROM reason"))


def microseconds(moment: dt.datetime) -> int:
    """Microseconds since 1970 of an aware time, without rounding."""
    return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def _probe(stream: BinaryIO, end: int) -> bytes:
    """A digest of a file's first bytes and of those before `end`: equal if what was indexed still stands there."""
    stream.seek(0)
    hasher = hashlib.sha256(stream.read(min(_HEAD, end)))
    stream.seek(max(0, end - _TAIL))
    hasher.update(stream.read(min(_TAIL, end)))
    return hasher.digest()


def _line_ends(stream: BinaryIO, end: int) -> bool:
    """True unless the last line was still being written when it was indexed."""
    stream.seek(max(0, end - 1))
    return end == 0 or stream.read(1) == b"\n"

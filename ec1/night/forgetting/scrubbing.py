"""Taking what is to be forgotten out of one file, so that the rest of it stays of use.

Belongs here: lines, records of JSON and rows of SQLite. Does not: which file is treated how (`places`), the graph
(`ec1.graph.rewrite`).

Of a record the whole value goes that holds it, of a text the whole line: what stands around a name is about the person
too. Each file is replaced in one step.
"""

import contextlib
import gzip
import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ec1.files import encodes, write_atomic
from ec1.night.forgetting.containers import cell_text, cells, quoted
from ec1.night.forgetting.wanted import Wanted

GONE = "[removed]"


def without_lines(path: Path, wanted: Wanted, *, each: Callable[[Any], None] = lambda record: None) -> None:
    """Remove the lines that hold it from a file of records, packed or not; `each` gets every record that goes. A file
    with nothing left goes. Lines that are not records are judged as text."""
    packed = path.suffix == ".gz"
    data = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    kept = []
    for line in data.splitlines(keepends=True):
        record = parsed(line)
        if wanted.in_record(record) if record is not None else wanted.in_text(line.decode("utf-8", "replace")):
            if isinstance(record, dict):
                each(record)
        else:
            kept.append(line)
    status = path.stat()
    if not kept:
        path.unlink()
        return
    left = b"".join(kept)
    if left != data:
        write_atomic(path, gzip.compress(left, mtime=0) if packed else left)
        # What stays was there before: a night of the past still sees it.
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def parsed(line: bytes) -> Any:
    """A line's record; None if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def redacted_text(text: str, wanted: Wanted) -> str:
    """A text without the lines that hold it; a name may begin on one line and end on the next."""
    lines = text.splitlines(keepends=True)
    for size in (1, 2, 3):
        for start in range(len(lines) - size + 1):
            window = "".join(lines[start : start + size])
            if wanted.in_text(window):
                lines[start : start + size] = [f"{GONE}\n", *[""] * (size - 1)]
    return "".join(lines)


def redacted(value: Any, wanted: Wanted) -> Any:
    """A record in which every key and value that holds it says so instead."""
    if isinstance(value, str):
        return GONE if wanted.in_text(value) else value
    if isinstance(value, list):
        return [redacted(each, wanted) for each in value]
    if isinstance(value, dict):
        made: dict[str, Any] = {}
        for key, each in value.items():
            name = key
            if wanted.in_text(key):
                name = GONE if GONE not in made else f"{GONE} {len(made)}"
            made[name] = redacted(each, wanted)
        return made
    return value


def redact_file(path: Path, wanted: Wanted) -> None:
    """Leave of a file of JSON, lines of JSON or text what does not hold it; what still holds it then goes as a whole.

    A log keeps its place on the disk, since a program may be writing to it.
    """
    data = path.read_bytes()
    if path.suffix in (".jsonl", ".ndjson") or path.name.endswith(".jsonl.gz"):
        without_lines(path, wanted)
        return
    try:
        text = data.decode()
    except UnicodeDecodeError:
        path.unlink()
        return
    record = parsed(data)
    left = text
    if record is not None:
        left = json.dumps(redacted(record, wanted), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if record is None or wanted.in_text(left):
        left = redacted_text(text, wanted)
    if wanted.in_text(left) or (record is not None and parsed(left.encode()) is None):
        path.unlink()
    elif path.suffix == ".log":
        with path.open("r+", encoding="utf-8") as stream:
            stream.write(left)
            stream.truncate()
    else:
        write_atomic(path, left)


def clean_database(path: Path, wanted: Wanted, *, keep_rows: bool) -> None:
    """Remove it from an SQLite file, and what the file still holds of removed rows. With `keep_rows`, for one that
    counts on its rows, only the values go; a row whose values must be different ones goes as well."""
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as database:
        database.execute("PRAGMA secure_delete = ON")
        database.execute("BEGIN IMMEDIATE")
        held = [(table, columns, row) for table, columns, row in cells(database) if _row_holds(row, wanted)]
        for table, columns, row in held:
            if table.startswith("sqlite_"):
                continue
            where = " AND ".join(f"{quoted(name)} IS ?" for name in columns)
            values = tuple(_cell_without(value, wanted) for value in row)
            done = False
            if keep_rows and values != row:
                changed = ", ".join(f"{quoted(name)} = ?" for name in columns)
                with contextlib.suppress(sqlite3.IntegrityError):
                    database.execute(f"UPDATE {quoted(table)} SET {changed} WHERE {where}", _bound((*values, *row)))
                    done = True
            if not done:
                database.execute(f"DELETE FROM {quoted(table)} WHERE {where}", _bound(row))
        database.execute("COMMIT")
        # Also what was removed before: a free page keeps the bytes of its last use.
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        database.execute("VACUUM")
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _row_holds(row: tuple[Any, ...], wanted: Wanted) -> bool:
    texts = [cell_text(value) for value in row if isinstance(value, str | bytes)]
    return any(map(wanted.in_text, texts)) or wanted.in_text(" | ".join(texts))


def _cell_without(value: Any, wanted: Wanted) -> Any:
    if not isinstance(value, str | bytes) or not wanted.in_text(cell_text(value)):
        return value
    record = parsed(value.encode("utf-8", "surrogateescape")) if isinstance(value, str) else None
    if isinstance(record, dict | list):
        made = json.dumps(redacted(record, wanted))
        if not wanted.in_text(made):
            return made
    return GONE


def _bound(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Values as SQLite takes them: a text that was not UTF-8 goes back as its bytes."""
    return tuple(
        value.encode("utf-8", "surrogateescape") if isinstance(value, str) and not encodes(value) else value
        for value in values
    )

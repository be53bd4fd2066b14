"""An index of a source's rows: built once, kept under the digest of what it indexes, and asked for filters, full text,
sorting and counts.

The rows themselves stay where they are; the index holds their numbers, lengths, times and words (SQLite, FTS5 without
the texts). It lies in the cache, and a row is found through it in an order that does not depend on its page.
Belongs here: building and asking. Does not: reading rows (`rows`).
"""

import contextlib
import logging
import os
import re
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from ec1.errors import EC1Error, InputError
from ec1.queries.desk import Desk
from ec1.queries.page import Page, cut, start_of
from ec1.queries.rows import Row, RowSource, SourceSummary, count_of, free_unused, open_source

log = logging.getLogger(__name__)

_VERSION = 3
"""Part of the name of an index: raise it when the same rows would be indexed in another way."""
_BATCH = 500
_CLASS_CHARACTERS = 40
"""A longer answer is not a class."""
_SCHEMA = """
CREATE TABLE word (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE row (
    number INTEGER PRIMARY KEY, side TEXT NOT NULL, digest TEXT NOT NULL, length INT NOT NULL, tokens INT,
    created REAL, score REAL, file INT, kind INT, reason INT, class INT
);
CREATE VIRTUAL TABLE said USING fts5(text, content='', prefix='2 3', tokenize="unicode61 remove_diacritics 2");
"""
_INDEXES = """
CREATE INDEX row_digest ON row (digest);
CREATE INDEX row_side_length ON row (side, length);
CREATE INDEX row_length ON row (length);
CREATE INDEX row_side_tokens ON row (side, tokens);
CREATE INDEX row_tokens ON row (tokens);
CREATE INDEX row_side_created ON row (side, created);
CREATE INDEX row_created ON row (created);
CREATE INDEX row_score ON row (score);
CREATE INDEX row_file ON row (file);
CREATE INDEX row_kind ON row (kind);
CREATE INDEX row_reason ON row (reason);
CREATE INDEX row_class ON row (class);
ANALYZE;
"""
Order = Literal["number", "length", "tokens", "created", "score"]
Named = Literal["file", "kind", "reason", "class"]
_NAMED: tuple[Named, ...] = ("file", "kind", "reason", "class")
_BUCKETS = 24


@dataclass(frozen=True)
class RowFilter:
    """Which rows, in which order. Empty texts ask for nothing. `text` is searched as words, "a phrase" in quotes, and
    the beginning of a word with a star."""

    text: str = ""
    side: str = ""
    file: str = ""
    kind: str = ""
    reason: str = ""
    class_: str = ""
    order: Order = "number"
    down: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it can be answered without an index: all rows, or those of a side, as they stand."""
        return not (self.text or self.file or self.kind or self.reason or self.class_) and (
            self.order == "number" and not self.down
        )


@dataclass(frozen=True)
class FoundRows:
    """A page of rows, and how many there are in all."""

    page: Page[Row]
    total: int


@dataclass(frozen=True)
class RowCounts:
    """How the rows of a source are spread. `lengths`: (from, to, rows) of equal steps, in tokens if they are known,
    else in characters; the rest: the most frequent names with their rows."""

    unit: Literal["tokens", "characters"]
    lengths: tuple[tuple[int, int, int], ...]
    named: dict[str, tuple[tuple[str, int], ...]]


class Indexing:
    """How far the index of a source is that is built in the background. `problem`: why it could not be."""

    def __init__(self, source: SourceSummary) -> None:
        self.source, self.done, self.problem = source, 0, ""


_building: dict[Path, Indexing] = {}
_lock = threading.Lock()


def index_path(desk: Desk, source: RowSource) -> Path:
    """Where the index of a source lies, whether it was built or not."""
    summary = source.summary
    return desk.home.row_indexes / f"{summary.kind}-{summary.name}-{summary.digest}-{_VERSION}.sqlite"


def ready(desk: Desk, source: RowSource) -> bool:
    return index_path(desk, source).is_file()


def has_scores(desk: Desk, source: RowSource) -> bool:
    """Whether rows of a source came with scores, as far as its index knows."""
    path = index_path(desk, source)
    if not path.is_file():
        return False
    with _opened(path) as db:
        return db.execute("SELECT 1 FROM row WHERE score IS NOT NULL LIMIT 1").fetchone() is not None


def build_in_background(desk: Desk, key: str) -> Indexing | None:
    """Begin to build the index of a source, unless it is there (None) or being built; returns how far it is. One that
    failed is tried again when it is asked for once more."""
    source = open_source(desk, key)
    path = index_path(desk, source)
    with _lock:
        if path.is_file():
            return None
        progress = _building.get(path)
        if progress is None or progress.problem:
            failed = progress
            progress = _building[path] = Indexing(source.summary)
            _sweep(desk)
            threading.Thread(target=_build, args=(source, path, progress), name="row-index", daemon=True).start()
            return failed or progress
        return progress


def _sweep(desk: Desk) -> None:
    """Remove indexes of what is no longer here."""
    home = desk.home
    here = {path.name for folder in (home.snapshots.glob("*/*"), home.datasets.glob("*")) for path in folder}
    for path in home.row_indexes.glob("*.sqlite"):
        if here.isdisjoint(path.stem.split("-")):
            path.unlink(missing_ok=True)


def _build(source: RowSource, path: Path, progress: Indexing) -> None:
    try:
        build(source, path, progress)
    except (EC1Error, OSError, sqlite3.Error) as error:
        log.warning("no index of %s: %s", source.summary.digest[:12], error)
        progress.problem = str(error)
    else:
        with _lock:
            _building.pop(path, None)
    finally:
        free_unused()


def build(source: RowSource, path: Path, progress: Indexing | None = None) -> None:
    """Index all rows of a source; the index appears whole or not at all. Raises DamagedError."""
    progress = progress or Indexing(source.summary)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(beside, isolation_level=None, check_same_thread=False)) as db:
            db.executescript(
                f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32000; {_SCHEMA}"
            )
            db.execute("BEGIN")
            _fill(db, source.every(), progress)
            db.execute("COMMIT")
            db.executescript(_INDEXES)
        beside.chmod(0o600)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _fill(db: sqlite3.Connection, rows: Iterator[Row], progress: Indexing) -> None:
    words: dict[str, int] = {}

    def number_of(text: str | None) -> int | None:
        if not text:
            return None
        if text not in words:
            words[text] = len(words) + 1
            db.execute("INSERT INTO word VALUES (?, ?)", (words[text], text))
        return words[text]

    table: list[tuple[Any, ...]] = []
    texts: list[tuple[int, str]] = []

    def flush() -> None:
        db.executemany(f"INSERT INTO row VALUES ({', '.join('?' * 11)})", table)
        db.executemany("INSERT INTO said (rowid, text) VALUES (?, ?)", texts)
        progress.done += len(table)
        table.clear()
        texts.clear()

    for row in rows:
        said = row.text.encode("utf-8", "replace").decode()
        names = (row.origin.rpartition(":")[0] or row.origin, row.kind, row.reason, _class_of(row))
        created = row.created.timestamp() if row.created else None
        table.append(
            (row.number, row.side, row.digest, len(said), row.tokens, created, row.score, *map(number_of, names))
        )
        texts.append((row.number, said))
        if len(table) >= _BATCH:
            flush()
    flush()


def _class_of(row: Row) -> str | None:
    """The whole answer, where it is as short as a class is."""
    messages = row.answers.get("completion", ())
    said = str(messages[-1].get("content") or "").strip() if messages else ""
    return said if said and len(said) <= _CLASS_CHARACTERS and "\n" not in said else None


def find(desk: Desk, key: str, wanted: RowFilter, limit: int, cursor: str | None = None) -> FoundRows | Indexing:
    """The rows that a filter finds, `limit` a page. Until the index is built, a filter that needs it gets how far that
    is.

    Raises InputError for a text that cannot be searched, an order or a cursor that is none, DamagedError.
    """
    if wanted.order not in get_args(Order):
        raise InputError(f"rows have no order {wanted.order!r}: there are {', '.join(get_args(Order))}")
    source = open_source(desk, key)
    # No further than behind the last one: SQLite counts to 2**63.
    start = min(start_of(cursor), count_of(source.summary))
    path = index_path(desk, source)
    if not path.is_file():
        progress = build_in_background(desk, key)
        if not wanted.is_plain and progress is not None:
            return progress
        if progress is not None:
            return _plain(source, wanted.side, start, limit)
    with _opened(path) as db:
        where, values = _where(wanted)
        total = db.execute(f"SELECT count(*) FROM row {where}", values).fetchone()[0]
        found = db.execute(
            f"SELECT number FROM row {where} ORDER BY {wanted.order} {'DESC' if wanted.down else 'ASC'}"
            f"{' NULLS LAST' if wanted.order == 'score' else ''}, number LIMIT ? OFFSET ?",
            (*values, limit + 1, start),
        )
        page = cut([number for (number,) in found], start, limit)
    return FoundRows(Page(tuple(source.at(page.items)), page.next), total)


def neighbours(desk: Desk, key: str, number: int) -> tuple[int | None, int | None]:
    """The numbers before and behind a row in its source."""
    count = count_of(open_source(desk, key).summary)
    return number - 1 if number > 0 else None, number + 1 if number + 1 < count else None


def _plain(source: RowSource, side: str, start: int, limit: int) -> FoundRows:
    first, total = 0, count_of(source.summary)
    if side:
        for name, count in source.summary.rows.items():
            if name == side:
                total = count
                break
            first += count
        else:
            return FoundRows(Page(()), 0)
    page = cut(range(first + start, first + min(total, start + limit + 1)), start, limit)
    return FoundRows(Page(tuple(source.at(page.items)), page.next), total)


def _where(wanted: RowFilter) -> tuple[str, list[Any]]:
    parts, values = [], []
    if wanted.text.strip():
        parts.append("number IN (SELECT rowid FROM said WHERE said MATCH ?)")
        values.append(_match(wanted.text))
    if wanted.side:
        parts.append("side = ?")
        values.append(wanted.side)
    for name, text in zip(_NAMED, (wanted.file, wanted.kind, wanted.reason, wanted.class_), strict=True):
        if text:
            parts.append(f"{name} = (SELECT id FROM word WHERE text = ?)")
            values.append(text)
    return ("WHERE " + " AND ".join(parts) if parts else ""), values


def _match(text: str) -> str:
    """What somebody typed as an expression of FTS5 where all parts must be there."""
    parts = []
    for phrase, word in re.findall(r'"([^"]*)"|([^\s"]+)', text):
        said, star = (phrase, "") if phrase else (word.rstrip("*"), "*" if word.endswith("*") else "")
        if re.search(r"\w", said):
            escaped = said.replace('"', '""').replace("\x00", " ")
            parts.append(f'"{escaped}"{star}')
    if not parts:
        raise InputError("there is no word in what is searched")
    return " ".join(parts)


def counts(desk: Desk, key: str, wanted: RowFilter) -> RowCounts | Indexing:
    """How the rows of a source, or those that a filter finds, are spread."""
    source = open_source(desk, key)
    path = index_path(desk, source)
    if not path.is_file() and (progress := build_in_background(desk, key)) is not None:
        return progress
    with _opened(path) as db:
        where, values = _where(wanted)
        and_ = f"{where} AND" if where else "WHERE"
        unit: Literal["tokens", "length"] = (
            "tokens" if db.execute("SELECT 1 FROM row WHERE tokens IS NOT NULL LIMIT 1").fetchone() else "length"
        )
        low, high = db.execute(f"SELECT min({unit}), max({unit}) FROM row {where}", values).fetchone()
        lengths: list[tuple[int, int, int]] = []
        if low is not None:
            step = max(1, -(-(high - low + 1) // _BUCKETS))
            rows = dict(
                db.execute(
                    f"SELECT ({unit} - {low}) / {step}, count(*) FROM row {and_} {unit} IS NOT NULL GROUP BY 1", values
                ).fetchall()
            )
            lengths = [
                (low + n * step, low + (n + 1) * step - 1, rows.get(n, 0)) for n in range(max(rows, default=-1) + 1)
            ]
        named: dict[str, tuple[tuple[str, int], ...]] = {}
        for name in _NAMED:
            found = db.execute(
                f"SELECT word.text, count(*) AS many FROM row JOIN word ON word.id = row.{name} {where} "
                "GROUP BY row." + name + " ORDER BY many DESC, word.text LIMIT 12",
                values,
            )
            named[name] = tuple(found.fetchall())
    return RowCounts("tokens" if unit == "tokens" else "characters", tuple(lengths), named)


@dataclass(frozen=True)
class SourceComparison:
    """Two sources: how many rows both have, and only one; and some of these."""

    both: int
    only_first: int
    only_second: int
    first: tuple[Row, ...]
    second: tuple[Row, ...]


def compare(desk: Desk, one: str, other: str, shown: int = 10) -> SourceComparison | Indexing:
    """What two sources have in common, by the digests of their rows; what was left out does not count."""
    opened = [open_source(desk, key) for key in (one, other)]
    for key, source in zip((one, other), opened, strict=True):
        if not ready(desk, source) and (progress := build_in_background(desk, key)) is not None:
            return progress
    first, second = (index_path(desk, source) for source in opened)
    with _opened(first) as db:
        db.execute("ATTACH ? AS other", (_address(second),))

        def only(mine: str, theirs: str) -> tuple[int, list[int]]:
            missing = (
                f"FROM {mine}.row AS r WHERE r.side <> 'rejected' AND NOT EXISTS "
                f"(SELECT 1 FROM {theirs}.row WHERE digest = r.digest AND side <> 'rejected')"
            )
            count = db.execute(f"SELECT count(*) {missing}").fetchone()[0]
            return count, [number for (number,) in db.execute(f"SELECT number {missing} LIMIT ?", (shown,))]

        (gone, of_first), (came, of_second) = only("main", "other"), only("other", "main")
        mine = db.execute("SELECT count(*) FROM main.row WHERE side <> 'rejected'").fetchone()[0]
    return SourceComparison(mine - gone, gone, came, tuple(opened[0].at(of_first)), tuple(opened[1].at(of_second)))


def number_of(desk: Desk, key: str, digest: str) -> int | None:
    """The number of a row by its digest, by an index that was built; None if there is none, or no such row."""
    path = index_path(desk, open_source(desk, key))
    if not path.is_file():
        return None
    with _opened(path) as db:
        found = db.execute("SELECT number FROM row WHERE digest = ? ORDER BY number LIMIT 1", (digest,)).fetchone()
    return None if found is None else int(found[0])


def _address(path: Path) -> str:
    # Nobody writes to an index that has its name.
    return f"{path.resolve().as_uri()}?mode=ro&immutable=1"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(_address(path), uri=True)
    try:
        yield db
    except sqlite3.DatabaseError as error:
        path.unlink(missing_ok=True)
        raise InputError(
            f"the index of these rows is damaged ({error}): it is built again when it is next asked for"
        ) from None
    finally:
        db.close()

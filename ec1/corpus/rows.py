"""The rows of a dataset that is being built: what its steps ask of them, in a file.

Belongs here: storing a row's names and digests and looking them up, so that memory does not grow with the rows. Does
not: which row is on which side or is dropped, and why (split, dataset), nor the texts.

The file is SQLite's and lives as long as the building: nothing is synced, and a crash leaves nothing to mend.
Numbers count the rows from 0 in the order in which they were added.
"""

import hashlib
import itertools
import operator
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_BATCH = 500
_CACHE_KIB = 32 * 1024
_SCHEMA = """
CREATE TABLE grp (id INTEGER PRIMARY KEY, name TEXT UNIQUE, stands TEXT);
CREATE TABLE row (number INTEGER PRIMARY KEY, digest TEXT, text BLOB, grp INT, origin TEXT, offset INT, created REAL,
                  role INT, question BLOB, side INT DEFAULT 0, dropped INT DEFAULT 0, written INT DEFAULT 0);
CREATE INDEX row_grp ON row (grp);
CREATE INDEX row_question ON row (question) WHERE question NOT NULL;
CREATE TABLE source (row INT, name BLOB, PRIMARY KEY (row, name)) WITHOUT ROWID;
CREATE TABLE link (name BLOB, row INT, PRIMARY KEY (name, row)) WITHOUT ROWID;
CREATE TABLE held (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """One row. `sources` is what it was cut from, what it is grouped by first; `text` a digest of all its text;
    `offset` where its example starts in the file of examples; `created` seconds since 1970, minus infinity if the
    tuple does not say; `role` the other role that it was mixed in from; `question` names what it answers if only the
    newest answer to it counts."""

    digest: str
    sources: tuple[str, ...]
    text: bytes
    origin: str
    offset: int
    created: float
    role: str | None = None
    question: str | None = None
    links: tuple[str, ...] = ()
    """What it says in any spelling: few rows that share one belong together, many share a manner of speaking."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """What is read back of a row."""

    number: int
    digest: str
    group: str
    origin: str
    offset: int
    heldout: bool


class RowTable:
    """The rows, in a file that must not be there yet; use it as a context manager."""

    def __init__(self, path: Path) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.executescript(
            f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-{_CACHE_KIB}; {_SCHEMA} BEGIN"
        )
        self._count = 0
        self._waiting: list[DatasetRow] = []
        self._roles: list[str] = []

    def __enter__(self) -> "RowTable":
        return self

    def __exit__(self, *_: object) -> None:
        self.db.close()

    def __len__(self) -> int:
        return self._count + len(self._waiting)

    def add(self, row: DatasetRow) -> None:
        self._waiting.append(row)
        if len(self._waiting) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Write what was added; before anything is asked."""
        rows, first = self._waiting, self._count
        roles = [None if row.role is None else self._role(row.role) for row in rows]
        self.db.executemany("INSERT OR IGNORE INTO grp (name) VALUES (?)", ((row.sources[0],) for row in rows))
        self.db.executemany(
            "INSERT INTO row (number, digest, text, grp, origin, offset, created, role, question) "
            "VALUES (?, ?, ?, (SELECT id FROM grp WHERE name = ?), ?, ?, ?, ?, ?)",
            (
                (
                    number,
                    row.digest,
                    row.text,
                    row.sources[0],
                    row.origin,
                    row.offset,
                    row.created,
                    role,
                    None if row.question is None else _short(row.question),
                )
                for number, (row, role) in enumerate(zip(rows, roles, strict=True), start=first)
            ),
        )
        self.db.executemany(
            "INSERT OR IGNORE INTO source VALUES (?, ?)",
            ((number, _short(name)) for number, row in enumerate(rows, start=first) for name in row.sources),
        )
        self.db.executemany(
            "INSERT OR IGNORE INTO link VALUES (?, ?)",
            ((_short(name), number) for number, row in enumerate(rows, start=first) for name in row.links),
        )
        self._count += len(rows)
        self._waiting = []

    def _role(self, role: str) -> int:
        if role not in self._roles:
            self._roles.append(role)
        return self._roles.index(role)

    def rows(self, numbers: Sequence[int] | Numbers) -> Iterator[StoredRow]:
        """Some rows, in the order of `numbers`."""
        for start in range(0, len(numbers), _BATCH):
            batch = [int(number) for number in numbers[start : start + _BATCH]]
            found = self.db.execute(
                "SELECT number, digest, name, origin, offset, side FROM row JOIN grp ON grp.id = row.grp "
                f"WHERE number IN ({','.join('?' * len(batch))})",
                batch,
            )
            rows = {
                number: StoredRow(number, digest, group, origin, offset, bool(side))
                for number, digest, group, origin, offset, side in found
            }
            yield from (rows[number] for number in batch)

    def text(self, number: int) -> bytes:
        """The digest of a row's text."""
        text: bytes = self.db.execute("SELECT text FROM row WHERE number = ?", (int(number),)).fetchone()[0]
        return text

    def sides(self) -> NDArray[np.bool_]:
        """For each row, whether it is held out."""
        return self._column("side").astype(bool)

    def of_role(self, role: str | None) -> NDArray[np.bool_]:
        """For each row, whether it was mixed in from that role, or from none."""
        wanted = -1 if role is None else self._roles.index(role) if role in self._roles else -2
        return np.asarray(self._column("IFNULL(role, -1)") == wanted)

    def _column(self, what: str) -> NDArray[np.int8]:
        found = self.db.execute(f"SELECT {what} FROM row ORDER BY number")
        return np.fromiter((value for (value,) in found), np.int8, self._count)

    # --- groups

    def group_of(self, number: int) -> str | None:
        """The group of a row; None of a row that was mixed in."""
        query = "SELECT name FROM row JOIN grp ON grp.id = row.grp WHERE number = ? AND role IS NULL"
        found: tuple[str] | None = self.db.execute(query, (number,)).fetchone()
        return None if found is None else found[0]

    def oldest(self, group: str) -> float:
        """When the oldest row of a group was made that was not mixed in."""
        query = "SELECT MIN(created) FROM row WHERE role IS NULL AND grp = (SELECT id FROM grp WHERE name = ?)"
        return float(self.db.execute(query, (group,)).fetchone()[0])

    def cluster(self, stands: Mapping[str, str]) -> None:
        """Have some groups (by name) be on the side of others."""
        self.db.executemany("UPDATE grp SET stands = ? WHERE name = ?", ((to, name) for name, to in stands.items()))

    def clusters(self) -> Iterator[str]:
        """The names of the clusters that have a row which was not mixed in, each once; a group alone is a cluster."""
        query = "SELECT DISTINCT IFNULL(stands, name) FROM row JOIN grp ON grp.id = row.grp WHERE role IS NULL"
        return (name for (name,) in self.db.execute(query))

    def newest_clusters(self, count: int) -> Iterator[str]:
        """The `count` clusters whose newest row is newest; of equals the first by name."""
        query = (
            "SELECT IFNULL(stands, name) AS cluster FROM row JOIN grp ON grp.id = row.grp WHERE role IS NULL "
            "GROUP BY cluster ORDER BY MAX(created) DESC, cluster LIMIT ?"
        )
        return (name for (name,) in self.db.execute(query, (count,)))

    def count_clusters(self) -> int:
        query = "SELECT COUNT(DISTINCT IFNULL(stands, name)) FROM row JOIN grp ON grp.id = row.grp WHERE role IS NULL"
        return int(self.db.execute(query).fetchone()[0])

    def count_groups(self, *, written_heldout: bool | None = None) -> int:
        """How many groups there are: all, or those of the rows that were written to one side."""
        where, values = ("TRUE", ()) if written_heldout is None else ("written AND side = ?", (written_heldout,))
        return int(self.db.execute(f"SELECT COUNT(DISTINCT grp) FROM row WHERE {where}", values).fetchone()[0])

    def linked(self, limit: int) -> Iterator[tuple[bytes, list[str]]]:
        """What two groups or more have in common, and at most `limit`: its name and theirs, in one order for ever."""
        found = self.db.execute(
            "SELECT link.name, grp.name FROM link JOIN row ON row.number = link.row JOIN grp ON grp.id = row.grp "
            "WHERE row.role IS NULL ORDER BY link.name"
        )
        for link, several in itertools.groupby(found, key=operator.itemgetter(0)):
            names = sorted({name for _, name in several})
            if 2 <= len(names) <= limit:
                yield link, names

    def source(self, links: Iterable[bytes]) -> None:
        """Have rows that share a link be known as cut from one thing: on two sides, one of them is left out."""
        query = "INSERT OR IGNORE INTO source SELECT row, name FROM link WHERE name = ?"
        self.db.executemany(query, ((link,) for link in links))

    def hold_out(self, clusters: Iterable[str]) -> None:
        """Put clusters on the held-out side; what was mixed in never is."""
        self.db.executemany("INSERT OR IGNORE INTO held VALUES (?)", ((name,) for name in clusters))
        self.db.execute(
            "UPDATE row SET side = 1 WHERE role IS NULL AND grp IN "
            "(SELECT id FROM grp WHERE IFNULL(stands, name) IN (SELECT name FROM held))"
        )

    # --- what rows share

    def outdated(self) -> Numbers:
        """The rows to whose question there is a newer answer; of equally old ones the last counts."""
        found = self.db.execute(
            "SELECT number FROM row WHERE question NOT NULL AND EXISTS (SELECT 1 FROM row AS newer WHERE "
            "newer.question = row.question AND (newer.created, newer.number) > (row.created, row.number)) "
            "ORDER BY number"
        )
        return np.fromiter((number for (number,) in found), np.int64)

    def drop(self, numbers: Numbers) -> None:
        """Have some rows no longer be examined."""
        self.db.executemany("UPDATE row SET dropped = 1 WHERE number = ?", ((int(number),) for number in numbers))

    def examined(self, last: str, cases: Collection[str] = ()) -> Iterator[tuple[int, str, str, bool, bool]]:
        """Every row that was not dropped: held-out ones, those of groups in `cases` first, then the others, then those
        of the role `last`, by digest. Number, digest, origin, whether it shares a source with one that wins over it (a
        held-out row over a training row, a case over any), and whether its text came before (and was not such a
        row's)."""
        self.db.execute("CREATE TABLE winner (id INTEGER PRIMARY KEY)")
        self.db.execute("CREATE TABLE judged (name BLOB PRIMARY KEY) WITHOUT ROWID")
        self.db.executemany("INSERT INTO winner SELECT id FROM grp WHERE name = ?", ((name,) for name in cases))
        self.db.execute(
            "INSERT OR IGNORE INTO judged SELECT name FROM row JOIN source ON source.row = number "
            "WHERE side = 1 AND grp IN (SELECT id FROM winner)"
        )
        self.db.execute("CREATE TABLE shared (name BLOB PRIMARY KEY) WITHOUT ROWID")
        self.db.execute("CREATE TABLE seen (text BLOB PRIMARY KEY) WITHOUT ROWID")
        self.db.execute(
            "INSERT OR IGNORE INTO shared SELECT name FROM row JOIN source ON source.row = number WHERE side = 1"
        )
        shares = "EXISTS (SELECT 1 FROM source CROSS JOIN {0} ON {0}.name = source.name WHERE source.row = number)"
        won = "grp IN (SELECT id FROM winner)"
        found = self.db.execute(
            f"SELECT number, digest, origin, text, (side = 0 AND {shares.format('shared')}) OR "
            f"(NOT {won} AND {shares.format('judged')}) FROM row "
            f"WHERE NOT dropped ORDER BY side DESC, {won} DESC, IFNULL(role = ?, 0), digest, number",
            (self._roles.index(last) if last in self._roles else -1,),
        )
        for number, digest, origin, text, shares in found:
            known = False
            if not shares:
                known = self.db.execute("INSERT OR IGNORE INTO seen VALUES (?)", (text,)).rowcount == 0
            yield number, digest, origin, bool(shares), known

    def write_down(self, numbers: Sequence[int]) -> None:
        """Note that these rows are in the dataset."""
        self.db.executemany("UPDATE row SET written = 1 WHERE number = ?", ((number,) for number in numbers))

    def written(self, *, heldout: bool) -> Numbers:
        """The rows of one side of the dataset."""
        found = self.db.execute("SELECT number FROM row WHERE written AND side = ? ORDER BY number", (heldout,))
        return np.fromiter((number for (number,) in found), np.int64)

    def shared_sources(self) -> Iterator[tuple[str, str]]:
        """Written rows of both sides that have a source in common: training and held-out digest, each source once."""
        self.db.execute("CREATE TABLE heldout_source (name BLOB PRIMARY KEY, row INT) WITHOUT ROWID")
        self.db.execute(
            "INSERT OR REPLACE INTO heldout_source SELECT name, number FROM row JOIN source ON source.row = number "
            "WHERE written AND side = 1 ORDER BY number"
        )
        yield from self.db.execute(
            "SELECT row.digest, other.digest FROM row CROSS JOIN source ON source.row = row.number "
            "CROSS JOIN heldout_source USING (name) CROSS JOIN row AS other ON other.number = heldout_source.row "
            "WHERE row.written AND row.side = 0 ORDER BY row.number, other.number"
        )

    def shared_texts(self) -> Iterator[tuple[str, str]]:
        """Written rows of both sides that have the same text: training and held-out digest."""
        self.db.execute("CREATE TABLE heldout_text (text BLOB PRIMARY KEY, digest TEXT) WITHOUT ROWID")
        self.db.execute(
            "INSERT OR REPLACE INTO heldout_text SELECT text, digest FROM row WHERE written AND side = 1 "
            "ORDER BY number"
        )
        yield from self.db.execute(
            "SELECT row.digest, heldout_text.digest FROM row CROSS JOIN heldout_text USING (text) "
            "WHERE written AND side = 0 ORDER BY number"
        )


def _short(name: str) -> bytes:
    """What stands for the name of a source: 128 bits name it beyond doubt."""
    return hashlib.sha256(name.encode()).digest()[:16]

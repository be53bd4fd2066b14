"""Feedback behind its door: rows that users gave wait until a person, or a rule that the deployment states, releases
them.

A row is kept once per text, whoever else gives the same: of the others it is noted that they did. Who gave it is a
pseudonym, by a salt of the home, so that what one user gave can be found and taken back, and nobody can read from it
who that was. A row that nobody released is deleted when feedback of its age is.

Belongs here: rows that wait, what becomes of them, and pseudonyms. Does not: how feedback becomes a row (`capture.py`),
how many rows a training takes (`ec1/corpus/served.py`).
"""

import datetime as dt
import hashlib
import hmac
import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ec1.corpus.buckets import Bucket, bucket
from ec1.corpus.served import ORIGIN
from ec1.corpus.tuples import texts_of
from ec1.errors import InputError
from ec1.files import atomic_file, canonical_json, digest_of, write_atomic

State = Literal["held", "released", "dropped"]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS held (
    id TEXT PRIMARY KEY, at REAL NOT NULL, tenant TEXT NOT NULL, role TEXT NOT NULL, verdict TEXT NOT NULL,
    key TEXT NOT NULL, person TEXT NOT NULL, record TEXT, state TEXT NOT NULL DEFAULT 'held', who TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS said (
    row TEXT NOT NULL, key TEXT NOT NULL, person TEXT NOT NULL, PRIMARY KEY (row, key, person)
) WITHOUT ROWID;
"""
_SHOWN = (
    "SELECT id, at, tenant, role, verdict, key, person, record, state, who, "
    "(SELECT COUNT(*) FROM said WHERE row = id) FROM held WHERE "
)


@dataclass(frozen=True)
class HeldRow:
    """One row. `people`: how many gave the same; `key` is the API key's name, `person` a pseudonym, each empty if there
    was none. `record` is the tuple that it becomes, None once it was released or dropped."""

    id: str
    at: dt.datetime
    tenant: str
    role: str
    verdict: str
    key: str
    person: str
    record: dict[str, Any] | None
    state: State
    who: str | None
    people: int


class Pseudonyms:
    """What stands for a user, by the salt in a file, which is made when it is first needed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def of(self, user: str | None) -> str:
        """Sixteen hex digits, the same for the same user; empty for nobody in particular."""
        if not user:
            return ""
        return hmac.new(self._salt(), user.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]

    def _salt(self) -> bytes:
        if not self._path.is_file():
            try:
                with atomic_file(self._path, exclusive=True) as temporary:
                    temporary.chmod(0o600)
                    temporary.write_bytes(secrets.token_bytes(32))
            except FileExistsError:
                # Another process was first.
                pass
        return self._path.read_bytes()


class HeldRows:
    """The rows in an open database, and the corpus that they are released to."""

    def __init__(self, db: sqlite3.Connection, corpus_root: Path) -> None:
        self._db, self._corpus_root = db, corpus_root
        db.executescript("PRAGMA secure_delete = ON;" + _SCHEMA)

    def add(self, record: dict[str, Any], *, tenant: str, role: str, verdict: str, key: str, person: str) -> str:
        """Hold a row; returns its id, which a row of the same text has had before."""
        identifier = digest_of([tenant, role, *(" ".join(text.split()).casefold() for text in _texts(record))])[:12]
        self._db.execute(
            "INSERT OR IGNORE INTO held (id, at, tenant, role, verdict, key, person, record) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (identifier, time.time(), tenant, role, verdict, key, person, json.dumps(record)),
        )
        self._db.execute("INSERT OR IGNORE INTO said VALUES (?, ?, ?)", (identifier, key, person))
        return identifier

    def get(self, identifier: str) -> HeldRow:
        """Raises InputError if there is no such row."""
        for row in self._found("id = ?", (identifier,)):
            return row
        raise InputError(f"no feedback is called {identifier!r}: `ec1 feedback review` lists what waits")

    def waiting(self, start: int, limit: int | None, role: tuple[str, str] | None = None) -> list[HeldRow]:
        """The rows that wait, the oldest first."""
        where, values = ("AND tenant = ? AND role = ? ", role) if role else ("", ())
        end = (-1 if limit is None else limit, start)
        return list(self._found(f"state = 'held' {where}ORDER BY at, id LIMIT ? OFFSET ?", (*values, *end)))

    def _found(self, where: str, values: Iterable[Any]) -> Iterator[HeldRow]:
        for each in self._db.execute(_SHOWN + where, tuple(values)).fetchall():
            identifier, at, tenant, role, verdict, key, person, record, state, who, people = each
            moment = dt.datetime.fromtimestamp(at, dt.UTC)
            content = None if record is None else json.loads(record)
            yield HeldRow(identifier, moment, tenant, role, verdict, key, person, content, state, who, people)

    def release(self, identifier: str, who: str) -> Path | None:
        """Write a row into the corpus, where the next night counts it; None if that was done before.

        Raises InputError for a row that is not there or was dropped.
        """
        row = self.get(identifier)
        if row.state == "dropped":
            raise InputError(f"{identifier} was dropped by {row.who}: only what waits can be released")
        if row.record is None:
            return None
        target = bucket(self._corpus_root, row.role, row.tenant)
        path = feedback_folder(target) / f"served-{identifier}.jsonl"
        # Made now, as far as nights are concerned: one of the past must not see it.
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        source = {"origin": ORIGIN, "verdict": row.verdict, "key": row.key, "person": row.person, "released_by": who}
        record = {**row.record, "created": now, "metadata": {**row.record["metadata"], **source}}
        write_atomic(path, canonical_json(record) + b"\n")
        self._decide(identifier, "released", who)
        return path

    def drop(self, identifier: str, who: str) -> None:
        """Never release a row, nor the same text again. Raises InputError for a row that does not wait."""
        if self.get(identifier).state != "held":
            raise InputError(f"{identifier} does not wait any more: `ec1 corpus forget` takes rows out of the corpus")
        self._decide(identifier, "dropped", who)

    def _decide(self, identifier: str, state: State, who: str) -> None:
        # The corpus has its text now, if anything should.
        self._db.execute("UPDATE held SET state = ?, who = ?, record = NULL WHERE id = ?", (state, who, identifier))

    def forget(self, person: str) -> int:
        """Forget who a person was, and delete the rows that wait and that this person gave first; returns how many."""
        gone = self._db.execute("DELETE FROM held WHERE person = ? AND state = 'held'", (person,)).rowcount
        self._db.execute("UPDATE held SET person = 'forgotten' WHERE person = ?", (person,))
        self._db.execute("DELETE FROM said WHERE person = ?", (person,))
        return gone

    def sweep(self, before: float) -> None:
        """Delete rows that have waited since before that moment (seconds since 1970)."""
        self._db.execute("DELETE FROM held WHERE state = 'held' AND at < ?", (before,))
        self._db.execute("DELETE FROM said WHERE NOT EXISTS (SELECT 1 FROM held WHERE id = row)")


def feedback_folder(target: Bucket) -> Path:
    """Where a bucket finds what users said: `feedback/` if it reads that, else a folder of that name in its first."""
    folders = [folder for folder, _ in target.folders]
    return target.root / ("feedback" if "feedback" in folders else f"{folders[0]}/feedback")


def _texts(record: dict[str, Any]) -> Iterator[str]:
    for column in ("prompt", "completion", "chosen"):
        value = record.get(column, ())
        yield from (value,) if isinstance(value, str) else texts_of({column: list(value)})

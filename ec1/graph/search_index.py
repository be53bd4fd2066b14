"""Finding entities by any spelling, in another order of words and with a slip of the pen, in milliseconds.

Belongs here: an index beside a published graph, and asking it. Does not: what is published (`ladybug_store.py`).
SQLite's FTS5 keeps the three-letter pieces of all names of each thing that resolution found. It belongs to the
publication whose `state` it names and goes with it; the first search after a publication makes it anew
(`benchmarks.search_names` has the time), so that a night does not pay for it.
"""

import contextlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from itertools import accumulate
from pathlib import Path
from typing import Any

from ec1.errors import InputError
from ec1.extraction.folding import normalised
from ec1.graph import tables
from ec1.graph.index_file import index_of, quoted
from ec1.graph.model import Entity

_SCHEMA = """
CREATE TABLE made_from(state TEXT);
CREATE TABLE answer(id INTEGER PRIMARY KEY, key TEXT, name TEXT, entity_class TEXT, mentions INT, documents INT,
    confidence REAL, members TEXT, names TEXT);
CREATE VIRTUAL TABLE spelling USING fts5(names, content='', detail='full', tokenize='trigram');
"""
_PIECE = 3
_CANDIDATES = 150
_ROWS = 30_000
"""How many names may be weighed for one question: the weighing is what takes the time."""
_ALIKE = 0.8
"""How much of a name's letters must agree, on average over the words that were asked for."""


def index_path(graph: Path) -> Path:
    return graph.with_name(f"{graph.name}.search")


@contextlib.contextmanager
def opened(graph: Path, connection: Any) -> Iterator[sqlite3.Connection]:
    """The index of a published graph that is open as `connection`; made if there is none of this publication."""
    state = tables.meta(connection)["state"]
    path = index_path(graph)

    def fill(index: sqlite3.Connection) -> None:
        index.executemany("INSERT INTO answer VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", _answers(connection))
        index.execute("INSERT INTO spelling(rowid, names) SELECT id, names FROM answer")
        index.execute("INSERT INTO made_from VALUES (?)", (state,))

    with contextlib.closing(index_of(path, state, _SCHEMA, fill, "names")) as index:
        yield index


def search(
    index: sqlite3.Connection, text: str, entity_class: str | None = None, *, limit: int, skip: int = 0
) -> list[Entity]:
    """Entities of which a spelling contains the text, those mentioned most first; then those whose spelling is like it,
    the likest first. Without the first `skip`."""
    wanted = normalised(text)
    if not wanted:
        raise InputError("which entity? give a part of its name")
    found = list(_containing(index, wanted, entity_class, skip + limit))
    if len(found) < skip + limit:
        known = {entity.key for entity in found}
        found += [entity for entity in _like(index, wanted, entity_class) if entity.key not in known]
    return found[skip : skip + limit]


_COLUMNS = "a.key, a.name, a.entity_class, a.mentions, a.documents, a.confidence, a.members, a.names"
_OF_CLASS = "(:class IS NULL OR a.entity_class = :class)"


def _containing(index: sqlite3.Connection, wanted: str, entity_class: str | None, limit: int) -> Iterator[Entity]:
    order = f"{_OF_CLASS} ORDER BY a.mentions DESC, a.key LIMIT :limit"
    values = {"wanted": wanted, "class": entity_class, "limit": limit, "match": quoted(wanted)}
    # Fewer letters than a piece are in no index.
    where = (
        "a.id IN (SELECT rowid FROM spelling WHERE spelling MATCH :match)"
        if len(wanted) >= _PIECE
        else ("instr(a.names, :wanted) > 0")
    )
    for row in index.execute(f"SELECT {_COLUMNS} FROM answer a WHERE {where} AND {order}", values):
        yield _entity(row)


def _like(index: sqlite3.Connection, wanted: str, entity_class: str | None) -> list[Entity]:
    from rapidfuzz.distance import Indel

    pieces = {word[at : at + _PIECE] for word in wanted.split() for at in range(len(word) - _PIECE + 1)}
    if not pieces:
        return []
    query = (
        f"SELECT {_COLUMNS} FROM "
        "(SELECT rowid AS id FROM spelling WHERE spelling MATCH :match ORDER BY rank LIMIT :limit) s "
        f"JOIN answer a ON a.id = s.id WHERE {_OF_CLASS}"
    )
    if not (match := " OR ".join(map(quoted, _rarest(index, pieces)))):
        return []
    ranked = []
    for row in index.execute(query, {"match": match, "class": entity_class, "limit": _CANDIDATES}):
        words = row[-1].split()
        alike = [max(Indel.normalized_similarity(word, each) for each in words) for word in wanted.split()]
        if (score := sum(alike) / len(alike)) >= _ALIKE:
            ranked.append((-score, -row[3], row[0], row))
    return [_entity(row) for *_, row in sorted(ranked)]


def _rarest(index: sqlite3.Connection, pieces: Set[str]) -> list[str]:
    """Those of the pieces that few names have, one at least: what they say, frequent ones hardly add to."""
    index.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.piece USING fts5vocab(main, spelling, row)")
    query = "SELECT term, doc FROM temp.piece WHERE term IN (SELECT value FROM json_each(?)) ORDER BY doc, term"
    counts = index.execute(query, (json.dumps([*pieces]),)).fetchall()
    totals = accumulate(count for _, count in counts)
    return [piece for (piece, count), total in zip(counts, totals, strict=True) if total <= _ROWS or total == count]


def _entity(row: tuple[Any, ...]) -> Entity:
    key, name, entity_class, mentions, documents, confidence, members, _ = row
    return Entity(key, name, entity_class, mentions, documents, confidence, tuple(json.loads(members)))


def _answers(connection: Any) -> Iterable[tuple[Any, ...]]:
    homes: dict[str, str] = {}
    members: dict[str, list[str]] = defaultdict(list)
    shown: dict[str, tuple[str, str]] = {
        row["key"]: (row["name"], row["entity_class"]) for row in tables.all_entities(connection)
    }
    query = "MATCH (e:Entity)-[:MEMBER_OF]->(c:Cluster) RETURN e.key AS entity, c.key AS cluster, c.name AS name"
    for row in tables.rows(connection, query):
        homes[row["entity"]] = row["cluster"]
        members[row["cluster"]].append(row["entity"])
        shown[row["cluster"]] = row["name"], shown[row["cluster"]][1]
    mentions: dict[str, int] = defaultdict(int)
    documents: dict[str, int] = defaultdict(int)
    best: dict[str, float] = defaultdict(float)
    spelt: dict[str, set[str]] = defaultdict(set)
    for page in tables.mention_tables(connection, ("name", "confidence")):
        # A page has all mentions of each of its documents.
        seen: set[tuple[str, str]] = set()
        columns = (page[each].to_pylist() for each in ("document", "entity", "name", "confidence"))
        for document, entity, name, confidence in zip(*columns, strict=True):
            home = homes.get(entity, entity)
            mentions[home] += 1
            best[home] = max(best[home], confidence)
            spelt[home].add(name)
            seen.add((document, home))
        for _, home in seen:
            documents[home] += 1
    for number, key in enumerate(sorted(mentions), 1):
        names = "\n".join(sorted({normalised(name) for name in (*spelt[key], shown[key][0])}))
        yield (
            number, key, *shown[key], mentions[key], documents[key], best[key], json.dumps(sorted(members[key])), names,
        )  # fmt: skip

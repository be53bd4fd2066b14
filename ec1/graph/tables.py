"""The tables of the graph and the reads that the live and the published database share.

Belongs here: names of tables and columns, paging, row shapes. Does not: anything that writes (`ladybug_store.py`).
A mention is a relationship that carries its own evidence; a document's ledger row is the document's node, so the two
cannot disagree (docs/architecture.md, "Exactly once").
"""

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status
from ec1.files import canonical_json
from ec1.graph.model import GraphStats

SCHEMA_VERSION = "5"
SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Meta(name STRING PRIMARY KEY, value STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Document(key STRING PRIMARY KEY, stream STRING, path STRING, document_id STRING, "
    "content_sha256 STRING, fingerprint STRING, status STRING, night STRING, reason STRING, attempts INT64, "
    "mentions INT64, applied_id STRING, applied_content STRING, applied_night STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Entity(key STRING PRIMARY KEY, name STRING, entity_class STRING)",
    "CREATE REL TABLE IF NOT EXISTS MENTIONS(FROM Document TO Entity, name STRING, chunk INT64, start_char INT64, "
    "end_char INT64, confidence DOUBLE, fingerprint STRING, model STRING) WITH (storage_direction = 'fwd')",
    "CREATE REL TABLE IF NOT EXISTS RELATES(FROM Entity TO Entity, relation STRING, document STRING, chunk INT64, "
    "start_char INT64, end_char INT64, confidence DOUBLE, fingerprint STRING, model STRING)",
    "CREATE REL TABLE IF NOT EXISTS TRAIT(FROM Document TO Entity, kind STRING, value STRING)",
)
RESOLUTION_SCHEMA = (
    "CREATE NODE TABLE IF NOT EXISTS Cluster(key STRING PRIMARY KEY, name STRING, entity_class STRING, members INT64)",
    "CREATE REL TABLE IF NOT EXISTS MEMBER_OF(FROM Entity TO Cluster)",
    "CREATE REL TABLE IF NOT EXISTS SAME_AS(FROM Entity TO Entity, band STRING, score DOUBLE, reasons STRING, "
    "veto STRING)",
    "CREATE NODE TABLE IF NOT EXISTS Unresolved(key STRING PRIMARY KEY)",
)
"""Derived from the rest: may be dropped and made again at any time (`ec1/graph/resolution/tables.py`)."""
TWO_WAY_SCHEMAS = ("1", "2", "3", "4")
"""Those that stored a mention with its entity, too. They become the present one by `upgrade.py`."""
READABLE_SCHEMAS = ("2", "3", "4", SCHEMA_VERSION)
"""Those that have all that readers ask for."""
DOCUMENT_COLUMNS = (
    "key", "stream", "path", "document_id", "content_sha256", "fingerprint", "status", "night", "reason", "attempts",
    "mentions", "applied_id", "applied_content", "applied_night",
)  # fmt: skip
MENTION_COLUMNS = ("name", "chunk", "start_char", "end_char", "confidence", "fingerprint", "model")
RELATION_COLUMNS = ("relation", "document", "chunk", "start_char", "end_char", "confidence", "fingerprint", "model")
ENTITY_COLUMNS = ("key", "name", "entity_class")

TRAITS_OF = "MATCH (d:Document {key: $key})-[t:TRAIT]->(e:Entity) HINT (d JOIN t) JOIN e"
"""The traits `t` of the document `$key`. Left to itself the database goes through all entities instead: 3 ms where
there are 100,000."""

# Query results are collected in the buffer pool, which a whole graph does not fit: 600,000 mentions filled 64 MiB.
_PAGE = 20_000
_ROTTEN = "a text in the database is not text any more: its file is damaged on the disk"
_ESCAPE = re.compile(r"\\(?:\\|x([0-9a-f]{2}))")


def stored_path(path: str) -> str:
    """A file's path as text that the database accepts: bytes that are not UTF-8 become `\\xff`, and `\\` doubles."""
    return path.replace("\\", "\\\\").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def original_path(stored: str) -> str:
    """What `stored_path` was made from."""
    return _ESCAPE.sub(lambda match: chr(0xDC00 + int(match[1], 16)) if match[1] else "\\", stored)


def document_key(key: DocumentKey) -> str:
    """The primary key of a document's node."""
    return f"{key.stream}/{stored_path(key.path)}"


def ledger_entry(row: dict[str, Any]) -> LedgerEntry:
    """One document's node as a ledger row. What thousands of rows share is one string."""
    return LedgerEntry(
        key=DocumentKey(sys.intern(row["stream"]), original_path(row["path"])),
        document_id=row["document_id"],
        content_sha256=row["content_sha256"],
        fingerprint=sys.intern(row["fingerprint"]),
        status=Status(row["status"]),
        night=sys.intern(row["night"]),
        reason=row["reason"],
        attempts=row["attempts"],
        mentions=row["mentions"],
    )


def ledger(connection: Any) -> dict[DocumentKey, LedgerEntry]:
    """Every document that the graph has heard of, deleted ones included."""
    return {entry.key: entry for entry in map(ledger_entry, all_documents(connection))}


def rows(connection: Any, query: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Run a query and return its rows by column name; the result's memory is given back at once.

    Raises RuntimeError, as the database does for everything.
    """
    with connection.execute(query, parameters or {}) as result:
        names = result.get_column_names()
        try:
            return [dict(zip(names, row, strict=True)) for row in result.get_all()]
        except UnicodeDecodeError:
            raise RuntimeError(_ROTTEN) from None


def meta(connection: Any) -> dict[str, str]:
    """The graph's own record: `schema` and `state`; empty before the first use."""
    tables = {row["name"] for row in rows(connection, "CALL show_tables() RETURN name")}
    if "Meta" not in tables:
        return {}
    return {
        row["name"]: row["value"] for row in rows(connection, "MATCH (m:Meta) RETURN m.name AS name, m.value AS value")
    }


@dataclass
class GraphTotals:
    """What the graph holds in figures, kept up to date with each change, so that the whole need not be read.

    `sum` is the sum of the SHA-256 of all rows modulo 2^256: it does not depend on their order, and a change of a few
    rows changes it by a few hashes. `entities` and `mentions` count by class, `statuses` the documents.
    """

    sum: int = 0
    entities: Counter[str] = field(default_factory=Counter)
    mentions: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)

    def add(self, table: str, row: Mapping[str, Any], times: int = 1) -> None:
        """Count one row of a table in, or out with `times` -1."""
        row_hash = hashlib.sha256(table.encode() + canonical_json(row)).digest()
        self.sum = (self.sum + times * int.from_bytes(row_hash)) % 2**256
        if table == "entity":
            self.entities[row["entity_class"]] += times
        elif table == "mention":
            self.mentions[row["entity"].partition(":")[0]] += times
        elif table == "document":
            self.statuses[row["status"]] += times

    def remove(self, table: str, row: Mapping[str, Any]) -> None:
        self.add(table, row, -1)

    @property
    def digest(self) -> str:
        """SHA-256 over all that documents said, whatever the order in which it came; not over what is derived."""
        return hashlib.sha256(self.sum.to_bytes(32)).hexdigest()

    @property
    def stats(self) -> GraphStats:
        counts = {name: dict(sorted((+each).items())) for name, each in self._counters().items()}
        return GraphStats(
            documents=sum(n for status, n in counts["statuses"].items() if status != Status.DELETED),
            entities=counts["entities"],
            mentions=sum(counts["mentions"].values()),
            mentions_by_class=counts["mentions"],
            statuses=counts["statuses"],
        )

    def to_text(self) -> str:
        return json.dumps({"sum": f"{self.sum:064x}", **{name: +each for name, each in self._counters().items()}})

    @classmethod
    def from_text(cls, text: str) -> "GraphTotals":
        value = json.loads(text)
        counters = (Counter(value[name]) for name in ("entities", "mentions", "statuses"))
        return cls(int(value["sum"], 16), *counters)

    def _counters(self) -> dict[str, Counter[str]]:
        return {"entities": self.entities, "mentions": self.mentions, "statuses": self.statuses}


def totals(connection: Any) -> GraphTotals:
    """The graph's figures as they are kept in it; counted if a graph of an earlier program does not keep them."""
    kept = meta(connection).get("totals")
    return GraphTotals.from_text(kept) if kept is not None else recount(connection)


def recount(connection: Any) -> GraphTotals:
    """The graph's figures, counted: takes a while in a large one."""
    counted = GraphTotals()
    sources = (
        ("document", all_documents),
        ("entity", all_entities),
        ("mention", all_mentions),
        ("trait", all_traits),
        ("relation", all_relations),
    )
    for name, table in sources:
        for row in table(connection):
            counted.add(name, row)
    return counted


def unresolved(connection: Any) -> list[str]:
    """The keys of the documents that said something new since entities were resolved, sorted; empty if they never
    were."""
    return sorted(row["key"] for row in rows(connection, "MATCH (u:Unresolved) RETURN u.key AS key"))


def all_documents(connection: Any) -> Iterator[dict[str, Any]]:
    """Every document's node, page by page, in no particular order."""
    yield from _node_pages(connection, "Document", DOCUMENT_COLUMNS)


def all_entities(connection: Any) -> Iterator[dict[str, Any]]:
    """Every entity's node, page by page, in no particular order."""
    yield from _node_pages(connection, "Entity", ENTITY_COLUMNS)


def all_mentions(connection: Any) -> Iterator[dict[str, Any]]:
    """Every mention with `document` and `entity` keys, page by page, in no particular order."""
    for page in mention_pages(connection):
        yield from page


def mention_pages(connection: Any) -> Iterator[list[dict[str, Any]]]:
    """Every mention with `document` and `entity` keys; a page has all those of each of its documents."""
    columns = ", ".join(f"m.{name} AS {name}" for name in MENTION_COLUMNS)
    query = (
        "MATCH (d:Document)-[m:MENTIONS]->(e:Entity) WHERE offset(id(d)) >= $low AND offset(id(d)) < $high "
        f"RETURN d.key AS document, e.key AS entity, {columns}"
    )
    for low, high in mention_ranges(connection):
        yield rows(connection, query, {"low": low, "high": high})


def mention_tables(connection: Any, columns: tuple[str, ...] = MENTION_COLUMNS) -> Iterator[Any]:
    """Every mention with `document` and `entity` keys and some of its columns, as Arrow tables of a page each: a fifth
    of the time of `all_mentions`. Raises RuntimeError."""
    query = (
        "MATCH (d:Document)-[m:MENTIONS]->(e:Entity) WHERE offset(id(d)) >= $low AND offset(id(d)) < $high "
        f"RETURN d.key AS document, e.key AS entity, {', '.join(f'm.{name} AS {name}' for name in columns)}"
    )
    for low, high in mention_ranges(connection):
        with connection.execute(query, {"low": low, "high": high}) as result:
            table = result.get_as_arrow(_PAGE)
        try:
            table.validate(full=True)
        except ValueError:
            raise RuntimeError(_ROTTEN) from None
        yield table


def all_traits(connection: Any) -> Iterator[dict[str, Any]]:
    """Every trait with `document` and `entity` keys, in no particular order."""
    # A few a document at most, so one page holds them.
    yield from rows(
        connection,
        "MATCH (d:Document)-[t:TRAIT]->(e:Entity) "
        "RETURN d.key AS document, e.key AS entity, t.kind AS kind, t.value AS value",
    )


def all_relations(connection: Any) -> Iterator[dict[str, Any]]:
    """Every stated relation with its `subject` and `object` keys, page by page, in no particular order."""
    columns = ", ".join(f"r.{name} AS {name}" for name in RELATION_COLUMNS)
    query = (
        "MATCH (a:Entity)-[r:RELATES]->(b:Entity) WHERE offset(id(a)) >= $low AND offset(id(a)) < $high "
        f"RETURN a.key AS subject, b.key AS object, {columns}"
    )
    if rows(connection, "MATCH (:Entity)-[r:RELATES]->(:Entity) RETURN r.chunk LIMIT 1"):
        for low, high in _node_ranges(connection, "Entity"):
            yield from rows(connection, query, {"low": low, "high": high})


def _node_pages(connection: Any, label: str, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    returned = ", ".join(f"n.{name} AS {name}" for name in columns)
    query = f"MATCH (n:{label}) WHERE offset(id(n)) >= $low AND offset(id(n)) < $high RETURN {returned}"
    for low, high in _node_ranges(connection, label):
        yield from rows(connection, query, {"low": low, "high": high})


def _node_ranges(connection: Any, label: str) -> Iterator[tuple[int, int]]:
    top = rows(connection, f"MATCH (n:{label}) RETURN max(offset(id(n))) AS top")[0]["top"]
    for low in range(0, -1 if top is None else top + 1, _PAGE):
        yield low, low + _PAGE


def mention_ranges(connection: Any) -> Iterator[tuple[int, int]]:
    """Ranges of documents' offsets, from and up to, that hold about a page of mentions each."""
    low = count = 0
    sizes = rows(connection, "MATCH (d:Document) WHERE d.mentions > 0 RETURN offset(id(d)) AS at, d.mentions AS n")
    last = -1
    for at, n in sorted((row["at"], row["n"]) for row in sizes):
        if count and count + n > _PAGE:
            yield low, at
            low, count = at, 0
        count, last = count + n, at
    if last >= 0:
        yield low, last + 1

"""The graph written anew without some documents: in a file that never held them.

Belongs here: the rows that stay. Does not: which documents go. A database keeps the bytes of what was deleted in its
free pages, so deleting is not enough; what stays is written to a new file, which takes the old one's place.
"""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ec1.documents.ledger import DocumentKey
from ec1.graph import tables
from ec1.graph.database import GraphDatabase
from ec1.graph.ladybug_store import LadybugStore, rebuilding_folder

_BATCH = 20_000


def documents_holding(store: LadybugStore, holds: Callable[[dict[str, Any]], bool]) -> set[DocumentKey]:
    """The documents of whose rows (ledger, mentions, traits, relations, or an entity that they mention) one `holds`
    it."""
    with store.reading() as connection:
        found = {row["key"] for row in tables.all_documents(connection) if holds(row)}
        entities = {row["key"] for row in tables.all_entities(connection) if holds(row)}
        said = chain(tables.all_mentions(connection), tables.all_traits(connection))
        found |= {row["document"] for row in said if row["entity"] in entities or holds(row)}
        found |= {row["document"] for row in tables.all_relations(connection) if holds(row)}
    return {key for key in store.ledger() if tables.document_key(key) in found}


def rewrite_without(
    store: LadybugStore, documents: Collection[DocumentKey], night: str, *, published: Path, buffer_pool_mib: int
) -> None:
    """Take documents out of the graph, with their ledger rows, and write its file anew; then publish it.

    The resolution is dropped, since it is derived. A crash leaves the old graph or the new one, and doing it again
    finishes. Raises what `LadybugStore` raises.
    """
    store.retract_many(documents, night)
    beside = rebuilding_folder(published)
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        fresh = GraphDatabase(beside / "graph", buffer_pool_mib=buffer_pool_mib, published=None)
        fresh.connect()
        try:
            with store.reading() as connection:
                _copy(connection, fresh, {tables.document_key(key) for key in documents})
        finally:
            fresh.close()
        store.adopt(fresh.path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    store.publish(published)


def _copy(source: Any, fresh: GraphDatabase, gone: set[str]) -> None:
    """Write the rows of an open graph, but for the nodes of some documents that say nothing any more, to a new one."""
    totals = tables.GraphTotals()
    nodes: tuple[tuple[str, tuple[str, ...], Iterable[dict[str, Any]]], ...] = (
        ("Document", tables.DOCUMENT_COLUMNS, (row for row in tables.all_documents(source) if row["key"] not in gone)),
        ("Entity", tables.ENTITY_COLUMNS, tables.all_entities(source)),
    )
    for label, columns, rows in nodes:
        for batch in _batches(rows):
            fresh.make_room()
            with fresh.transaction():
                fresh.write_nodes(label, columns, batch)
            for row in batch:
                totals.add(label.lower(), row)
    between = (
        ("mention", "MENTIONS", "Document", "document", "entity", tables.MENTION_COLUMNS, tables.all_mentions(source)),
        ("trait", "TRAIT", "Document", "document", "entity", ("kind", "value"), tables.all_traits(source)),
        ("relation", "RELATES", "Entity", "subject", "object", tables.RELATION_COLUMNS, tables.all_relations(source)),
    )
    for name, relation, label, start, end, columns, rows in between:
        values = ", ".join(f"{column}: row_{column}" for column in columns)
        query = (
            f"LOAD FROM $batch MATCH (a:{label} {{key: row_{start}}}) MATCH (b:Entity {{key: row_{end}}}) "
            f"CREATE (a)-[:{relation} {{{values}}}]->(b) RETURN count(*) AS n"
        )
        for batch in _batches(rows):
            fresh.make_room()
            with fresh.transaction():
                (written,) = fresh.load(query, batch)
                if written["n"] != len(batch):
                    raise fresh.spoilt(f"{written['n']} of {len(batch)} rows of {relation} were written")
            fresh.written += len(batch)
            for row in batch:
                totals.add(name, row)
    with fresh.transaction():
        fresh.execute("CREATE (:Meta {name: 'totals', value: $totals})", {"totals": totals.to_text()})
    fresh.checkpoint_if_written()


def _batches(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH)):
        yield batch

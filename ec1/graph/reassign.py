"""Giving the short names of people other owners: after an operator told two from each other, or took that back, and in
a graph that an earlier program wrote.

Belongs here: which documents, and writing what they say anew. Does not: the rule (`owners.py`). A document that is
applied has its owners by the rule alone; so those with news are looked at again where operators decided something.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from typing import Any

from ec1.documents.ledger import DocumentKey
from ec1.graph import tables
from ec1.graph.changes import Changes
from ec1.graph.database import GraphDatabase
from ec1.graph.model import entity_key
from ec1.graph.news import Change
from ec1.graph.resolution.overrides import Overrides, Pair
from ec1.graph.resolution.owners import owners
from ec1.graph.resolution.profile import PERSON

_RULE = 1
"""Raise this when the rule would give another owner."""
_KEPT = "owners"


def follow(database: GraphDatabase, changes: Changes, overrides: Overrides) -> int:
    """Let short names belong to whom the rule and the decisions of now say; returns how many documents changed."""
    connection = database.connection
    apart = {pair for pair in overrides.different_pairs() if all(key.startswith(f"{PERSON}:") for key in pair)}
    now = json.dumps([_RULE, sorted(apart)])
    kept = tables.meta(connection).get(_KEPT)
    if kept == now and not apart:
        return 0
    rule, before = json.loads(kept) if kept else (None, [])
    if rule != _RULE:
        documents: Iterable[str] = _with_short_names(connection)
    else:
        turned = apart ^ {(one, other) for one, other in before}
        documents = {*tables.unresolved(connection), *_naming(connection, {key for pair in turned for key in pair})}
    changed = [change for key in sorted(documents) if (change := _rewritten(connection, key, apart)) is not None]
    changes.rewrite(changed)
    if kept != now:
        with database.transaction():
            database.execute("MATCH (m:Meta {name: $name}) DELETE m", {"name": _KEPT})
            database.execute("CREATE (:Meta {name: $name, value: $value})", {"name": _KEPT, "value": now})
    return len(changed)


def _with_short_names(connection: Any) -> Iterator[str]:
    """The documents that name somebody by one word."""
    for page in tables.mention_tables(connection, ("name",)):
        said: dict[str, set[str]] = defaultdict(set)
        for document, entity, name in zip(*(page[each].to_pylist() for each in page.column_names), strict=True):
            if entity.startswith(f"{PERSON}:"):
                said[document].add(name)
        yield from (document for document, names in said.items() if owners(names))


def _naming(connection: Any, keys: Set[str]) -> set[str]:
    query = "MATCH (d:Document)-[:MENTIONS]->(:Entity {key: $key}) RETURN DISTINCT d.key AS document"
    return {row["document"] for key in keys for row in tables.rows(connection, query, {"key": key})}


def _rewritten(connection: Any, key: str, apart: Set[Pair]) -> Change | None:
    """What a document says, by other owners; None if they are the same."""
    parameters = {"key": key}
    columns = ", ".join(f"m.{name} AS {name}" for name in tables.MENTION_COLUMNS)
    mentions = tables.rows(
        connection,
        f"MATCH (d:Document {{key: $key}})-[m:MENTIONS]->(e:Entity) "
        f"RETURN e.key AS entity, e.entity_class AS entity_class, {columns}",
        parameters,
    )
    owned = owners((row["name"] for row in mentions if row["entity_class"] == PERSON), apart)
    moved: dict[str, set[str]] = defaultdict(set)
    for row in mentions:
        if row["entity_class"] == PERSON:
            home = owned.get(row["name"]) or entity_key(row["name"], PERSON)
            moved[row["entity"]].add(home)
            row["entity"] = home
    if all(homes == {before} for before, homes in moved.items()):
        return None
    # What is stated of an entity that this document no longer names goes with its mentions.
    homes = {before: next(iter(to)) for before, to in moved.items() if len(to) == 1}
    traits = tables.rows(
        connection, f"{tables.TRAITS_OF} RETURN e.key AS entity, t.kind AS kind, t.value AS value", parameters
    )
    columns = ", ".join(f"r.{name} AS {name}" for name in tables.RELATION_COLUMNS)
    relations = tables.rows(
        connection,
        "MATCH (d:Document {key: $key})-[:MENTIONS]->(e:Entity) WITH DISTINCT e MATCH (e)-[r:RELATES]->(o:Entity) "
        f"WHERE r.document = $key RETURN e.key AS subject, o.key AS object, {columns}",
        parameters,
    )
    query = "MATCH (d:Document {key: $key}) RETURN d.stream AS stream, d.path AS path"
    (node,) = tables.rows(connection, query, parameters)
    return Change(
        key=DocumentKey(node["stream"], tables.original_path(node["path"])),
        document_id="",
        content_sha256="",
        fingerprint="",
        outcome="complete",
        mentions=tuple(mentions),
        traits=tuple({**row, "entity": homes.get(row["entity"], row["entity"])} for row in traits),
        relations=tuple(
            {**row, **{end: homes.get(row[end], row[end]) for end in ("subject", "object")}} for row in relations
        ),
    )

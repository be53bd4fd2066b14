"""Keeping the resolution of an open graph up to date: as a whole or by changes, with its state beside the graph.

Belongs here: when which of the two is done, and how graph and state stay one. Does not: deciding what is one thing
(`resolution.py`), what a change reaches (`incremental.py`).

The graph's record names the state that belongs to it by a token, and both get a new one with each change. The graph's
transaction ends first. What a crash between the two leaves is a state that does not belong to the graph: then
everything is resolved again, with the statistics that the record names if they are still there, so that a crash does
not change the result. A state that was made as a whole waits under another name until the graph knows it.
"""

import contextlib
import gc
import logging
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ec1.graph import tables
from ec1.graph.database import BATCH_MENTIONS, GraphDatabase, move_into_place
from ec1.graph.resolution import tables as resolved_tables
from ec1.graph.resolution.clusters import VERSION, Cluster, Link
from ec1.graph.resolution.incremental import ResolutionChange, resolve_changes, resolve_whole
from ec1.graph.resolution.overrides import Overrides
from ec1.graph.resolution.scoring import Statistics
from ec1.graph.resolution.state import ResolutionState, statistics_digest
from ec1.graph.resolution.tables import ResolutionRecord

log = logging.getLogger(__name__)

DRIFT = 0.1
"""Share of the entities that may come or go before frequencies are counted anew, unless the caller says otherwise."""
WHOLE_BELOW = 2_000
"""So few entities are all resolved each time: it takes about a second, and frequencies are those of now."""
# Beyond this share of the documents it is faster to resolve everything; below this number it never is.
_MANY = 0.2
_FEW = 100


def state_path(graph: Path) -> Path:
    return graph.with_name(f"{graph.name}.resolution")


def update(database: GraphDatabase, overrides: Overrides, *, drift: float, whole_below: int) -> None:
    """See `LadybugStore.update_resolution`."""
    overrides.groups()
    connection = database.connection
    totals = tables.totals(connection)
    basis = resolved_tables.basis(totals.digest, overrides)
    record = resolved_tables.record(connection)
    if record is not None and record.basis == basis:
        return
    if record is not None and record.version != VERSION:
        record = None
    path = state_path(database.path)
    _adopt_waiting(path, record)
    entities = totals.stats.total_entities
    if record is not None and (record.turned > drift * record.size or entities < whole_below):
        record = None
    documents = tables.unresolved(connection) if record is not None else []
    if len(documents) > max(_FEW, _MANY * totals.stats.documents):
        record = None
    with without_garbage_collection():
        if record is not None:
            try:
                if _by_changes(database, path, record, documents, overrides, basis):
                    return
            except sqlite3.DatabaseError as error:
                log.warning("%s is damaged (%s): all entities are resolved again", path, error)
                path.unlink(missing_ok=True)
        _whole(database, path, record, overrides, basis, entities)


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Resolution makes many small things and no cycles of them, so looking for cycles finds nothing: of a night, that
    was a third of the time, and more the more the process holds beside."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def drop(database: GraphDatabase) -> None:
    """Forget the resolution, if one is kept."""
    if "resolution" in tables.meta(database.connection):
        with database.transaction():
            _drop(database)
    state_path(database.path).unlink(missing_ok=True)


def unused(database: GraphDatabase, overrides: Overrides) -> list[str]:
    """The entities that `overrides` names and the graph lacks, sorted."""
    named = {key for decision in (*overrides.same, *overrides.different) for key in decision.entities}
    query = "LOAD FROM $batch MATCH (e:Entity {key: row_key}) RETURN e.key AS key"
    there = database.load(query, [{"key": key} for key in sorted(named)])
    return sorted(named - {row["key"] for row in there})


def _by_changes(
    database: GraphDatabase,
    path: Path,
    record: ResolutionRecord,
    documents: list[str],
    overrides: Overrides,
    basis: str,
) -> bool:
    """Whether there is a state that belongs to the graph; if so, both are up to date."""
    if not path.is_file():
        return False
    statements = resolved_tables.statements(database.connection, documents)
    with ResolutionState.open(path) as state:
        if state.kept().get("token") != record.token:
            return False
        token = uuid.uuid4().hex
        state.database.execute("BEGIN IMMEDIATE")
        change = resolve_changes(state, statements, overrides)
        state.keep(token=token)
        new = record.model_copy(update={"basis": basis, "token": token, "turned": record.turned + change.turned})
        with database.transaction():
            _take_out(database, change)
            _put_in(database, change.links_come, change.clusters_come)
            _keep(database, new)
        state.database.execute("COMMIT")
    return True


def _whole(
    database: GraphDatabase,
    path: Path,
    record: ResolutionRecord | None,
    overrides: Overrides,
    basis: str,
    entities: int,
) -> None:
    """Resolve everything; with a record, under the statistics that it names, if they are still there."""
    waiting = _waiting(path)
    waiting.unlink(missing_ok=True)
    statistics = _statistics(path, record)
    token = uuid.uuid4().hex
    connection = database.connection
    with ResolutionState.open(waiting) as state:
        links, clusters = resolve_whole(
            state,
            resolved_tables.names(connection),
            resolved_tables.traits(connection),
            overrides,
            token,
            statistics,
        )
        used = statistics_digest(state.statistics())
    new = ResolutionRecord(basis=basis, version=VERSION, statistics=used, token=token, size=entities)
    if record is not None and statistics is not None:
        # Who came or went since the record was made is not known here: a night's worth at most.
        new = new.model_copy(update={"size": record.size, "turned": record.turned})
    with database.transaction():
        _drop(database)
        _put_in(database, links, clusters)
        _keep(database, new)
    _adopt_waiting(path, new)


def _statistics(path: Path, record: ResolutionRecord | None) -> Mapping[str, Statistics] | None:
    if record is None or not path.is_file():
        return None
    try:
        with ResolutionState.open(path) as state:
            found = state.statistics()
    except (sqlite3.DatabaseError, KeyError, ValueError, TypeError):
        return None
    return found if statistics_digest(found) == record.statistics else None


def _waiting(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


def _adopt_waiting(path: Path, record: ResolutionRecord | None) -> None:
    """Let a state that was made as a whole take its place, if the graph knows it; else it was for nothing."""
    waiting = _waiting(path)
    if not waiting.is_file():
        return
    token = None
    with contextlib.suppress(sqlite3.DatabaseError), ResolutionState.open(waiting) as state:
        token = state.kept().get("token")
    if record is not None and token == record.token:
        # The log of the state that it replaces must not be replayed into it.
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        move_into_place(waiting, path)
    else:
        waiting.unlink()


def _take_out(database: GraphDatabase, change: ResolutionChange) -> None:
    # One statement each: a table of keys (`LOAD FROM`) would make the database scan all links.
    for one, other in change.links_gone:
        database.execute(
            "MATCH (a:Entity {key: $one})-[s:SAME_AS]->(b:Entity {key: $other}) DELETE s", {"one": one, "other": other}
        )
    for key in change.clusters_gone:
        database.execute("MATCH (c:Cluster {key: $key}) DETACH DELETE c", {"key": key})


def _put_in(database: GraphDatabase, links: Iterable[Link], clusters: Sequence[Cluster]) -> None:
    database.write_nodes("Cluster", resolved_tables.CLUSTER_COLUMNS, resolved_tables.cluster_rows(clusters))
    for query, records in resolved_tables.edge_rows(links, clusters):
        for start in range(0, len(records), BATCH_MENTIONS):
            database.load(query, records[start : start + BATCH_MENTIONS])


def _keep(database: GraphDatabase, record: ResolutionRecord) -> None:
    """Write the record; nothing is unresolved now."""
    database.execute("MATCH (u:Unresolved) DELETE u")
    database.execute("MATCH (m:Meta {name: 'resolution'}) DELETE m")
    database.execute("CREATE (:Meta {name: 'resolution', value: $record})", {"record": record.model_dump_json()})


def _drop(database: GraphDatabase) -> None:
    for table in ("SAME_AS", "MEMBER_OF", "Cluster", "Unresolved"):
        database.execute(f"DROP TABLE {table}")
    for statement in tables.RESOLUTION_SCHEMA:
        database.execute(statement)
    database.execute("MATCH (m:Meta {name: 'resolution'}) DELETE m")

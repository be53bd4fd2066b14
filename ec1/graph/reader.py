"""The published graph, for people and programs that only read: never the live file.

Belongs here: lists, one entity with its evidence, free queries. Does not: writing of any kind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ec1.documents.ledger import DocumentKey, LedgerEntry
from ec1.errors import InputError
from ec1.extraction.results import ENTITY_CLASSES
from ec1.graph import file_seal, search_index, tables
from ec1.graph.bounded import run_bounded
from ec1.graph.guard import checked_query
from ec1.graph.model import Entity, GraphStats, StoredMention, StoredRelation, clean_name, entity_key
from ec1.graph.resolution import tables as resolved_tables
from ec1.graph.resolution.clusters import Cluster, Link, Resolution

QUERY_SECONDS = 60.0
"""How long a free query may take, unless the caller says otherwise."""
QUERY_ROWS = 10_000
"""How many rows of a free query are fetched, unless the caller says otherwise."""
_HOME = "OPTIONAL MATCH (e)-[:MEMBER_OF]->(c:Cluster)"
_CALLS = "count(m) AS mentions, count(DISTINCT d.key) AS documents, max(m.confidence) AS confidence"


class GraphReader:
    """A published graph, opened read-only on first use. Also a context manager; `close` gives its memory back.

    It keeps showing the copy that it opened when a newer one is published: open a new reader for that.
    """

    def __init__(self, published: Path, *, buffer_pool_mib: int = 512) -> None:
        """Raises InputError if nothing is published at `published` yet."""
        if not published.is_file():
            raise InputError(f"no graph is published at {published} yet: run a night first (ec1 night)")
        self._path = published
        self._buffer_pool = buffer_pool_mib * 2**20
        self._database: Any = None
        self._connection: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        connection, database = self._connection, self._database
        self._connection = self._database = None
        if connection is not None:
            connection.close()
        if database is not None:
            database.close()

    @property
    def path(self) -> Path:
        """Where the copy that is read was published."""
        return self._path

    def stats(self) -> GraphStats:
        """Count what the graph holds."""
        with self.reading() as connection:
            found = tables.totals(connection).stats
            joined = resolved_tables.joined(connection)
        return replace(found, resolved={name: count - joined.get(name, 0) for name, count in found.entities.items()})

    def classes(self) -> tuple[str, ...]:
        """The contract's classes, and the others that the graph holds entities of, whatever the deployment has now."""
        return tuple(dict.fromkeys([*ENTITY_CLASSES, *self.stats().entities]))

    def digest(self) -> str:
        """The same figure as the writer's `digest` at the time of publication."""
        with self.reading() as connection:
            return tables.totals(connection).digest

    def recounted_digest(self) -> str:
        """The same figure from every row: shows whether what is kept is right."""
        with self.reading() as connection:
            return tables.recount(connection).digest

    def names(self) -> list[str]:
        """The name of every entity that a document mentions."""
        return [
            row["name"] for row in self.rows("MATCH (:Document)-[:MENTIONS]->(e:Entity) RETURN DISTINCT e.name AS name")
        ]

    def names_in(self, document: DocumentKey) -> list[str]:
        """The names of the entities that one document mentions, sorted."""
        query = "MATCH (d:Document {key: $key})-[:MENTIONS]->(e:Entity) RETURN DISTINCT e.name AS name"
        return sorted(row["name"] for row in self.rows(query, {"key": tables.document_key(document)}))

    def entities(
        self, limit: int | None = 50, entity_class: str | None = None, search: str | None = None, skip: int = 0
    ) -> list[Entity]:
        """Entities with their figures, those mentioned most first, then by key; without the first `skip` of them. What
        resolution found to be one is one of them, with the figures of all its members.

        entity_class: one of the contract's, or one that the graph holds. search: part of the name or of any spelling
        that a document used, in capitals or not. Raises InputError for an unknown class or a limit below 1.
        """
        self._check(entity_class, limit)
        conditions: list[str] = []
        parameters: dict[str, Any] = {}
        if entity_class is not None:
            conditions.append("e.entity_class = $class")
            parameters["class"] = entity_class
        if search is not None:
            conditions.append("(lower(e.name) CONTAINS $search OR lower(m.name) CONTAINS $search)")
            parameters["search"] = clean_name(search).lower()
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        keys = self.rows(
            f"MATCH (d:Document)-[m:MENTIONS]->(e:Entity){where} WITH e, count(m) AS n {_HOME} "
            "WITH coalesce(c.key, e.key) AS key, sum(n) AS n "
            f"RETURN key ORDER BY n DESC, key{f' SKIP {skip}' if skip else ''}{f' LIMIT {limit}' if limit else ''}",
            parameters,
        )
        return [found for row in keys if (found := self._answer(row["key"])) is not None]

    def search(self, text: str, entity_class: str | None = None, *, limit: int = 20, skip: int = 0) -> list[Entity]:
        """Entities by any spelling, in another order of words or with a slip of the pen (`search_index.py`).

        Raises InputError for a blank text, an unknown class or a limit below 1.
        """
        self._check(entity_class, limit)
        with self.reading() as connection, search_index.opened(self._path, connection) as index:
            return search_index.search(index, text, entity_class, limit=limit, skip=skip)

    def _check(self, entity_class: str | None, limit: int | None) -> None:
        if entity_class is not None and entity_class not in ENTITY_CLASSES and entity_class not in self.classes():
            raise InputError(f"unknown entity class {entity_class!r}: choose one of {', '.join(self.classes())}")
        if limit is not None and limit < 1:
            raise InputError(f"limit {limit} is too small: ask for 1 or more")

    def find(self, key_or_name: str) -> list[Entity]:
        """The entities that a key or a name stands for, each with all that is one with it.

        A key such as `Person:maria alvarez` gives one; a name gives one for each class that has it. Raises InputError
        if there is none; the message suggests some that are alike.
        """
        wanted = clean_name(key_or_name)
        if not wanted:
            raise InputError("which entity? give a key or a name")
        keys = {wanted, *(entity_key(wanted, entity_class) for entity_class in self.classes())}
        answers = (self._answer(key) for key in sorted(keys))
        found = {each.key: each for each in answers if each is not None}
        if not found:
            alike = [entity.key for entity in self.search(wanted, limit=5)]
            hint = f"; alike: {', '.join(alike)}" if alike else ""
            raise InputError(f"no entity {wanted!r} in the graph{hint}")
        return list(found.values())

    def show(self, key_or_name: str) -> list[tuple[Entity, list[StoredMention]]]:
        """As `find`, each with its mentions, those of all members, by document and place."""
        return [(entity, self.mentions_of(*(entity.members or (entity.key,)))) for entity in self.find(key_or_name)]

    def member(self, key: str) -> Entity | None:
        """One entity with its own figures, whatever it is one with; None if the graph does not have it."""
        found = self.rows(
            f"MATCH (d:Document)-[m:MENTIONS]->(e:Entity {{key: $key}}) "
            f"RETURN e.key AS key, e.name AS name, e.entity_class AS entity_class, {_CALLS}",
            {"key": key},
        )
        return Entity(**found[0]) if found else None

    def _answer(self, key: str) -> Entity | None:
        """What a key stands for, with all that is one with it; None if the graph does not have the key."""
        with self.reading() as connection:
            cluster = resolved_tables.cluster_of(connection, key)
        if cluster is None:
            return self.member(key)
        (figures,) = self.rows(
            f"MATCH (d:Document)-[m:MENTIONS]->(:Entity)-[:MEMBER_OF]->(:Cluster {{key: $key}}) RETURN {_CALLS}",
            {"key": cluster.key},
        )
        return Entity(cluster.key, cluster.name, cluster.entity_class, **figures, members=cluster.members)

    def query(
        self,
        cypher: str,
        parameters: dict[str, Any] | None = None,
        *,
        timeout_seconds: float = QUERY_SECONDS,
        max_rows: int = QUERY_ROWS,
    ) -> list[dict[str, Any]]:
        """Run one Cypher query of somebody's that only reads, in a process of its own (`bounded.py`); rows by column
        name, values as JSON has them. One row more than `max_rows` says that there are more.

        Raises InputError for a query that would do anything else (`guard.py`), that fails, or that takes more than
        `timeout_seconds`, fetching included, or too much memory.
        """
        text = checked_query(cypher)
        self._open()
        return run_bounded(self._path, text, parameters or {}, seconds=timeout_seconds, max_rows=max_rows)

    def relations_of(self, key: str) -> list[StoredRelation]:
        """What documents state of an entity, as subject or object, by relation, document and place."""
        found = []
        for ends in (
            "(a:Entity {key: $key})-[r:RELATES]->(b:Entity)",
            "(a:Entity)-[r:RELATES]->(b:Entity {key: $key})",
        ):
            found += self.rows(
                f"MATCH {ends} MATCH (d:Document {{key: r.document}}) RETURN r.relation AS relation, a.key AS subject, "
                "b.key AS object, d.stream AS stream, d.path AS path, d.applied_id AS document_id, "
                "d.applied_content AS content_sha256, r.chunk AS chunk, r.start_char AS `start`, r.end_char AS `end`, "
                "r.confidence AS confidence, r.fingerprint AS fingerprint, r.model AS model, d.applied_night AS night",
                {"key": key},
            )
        relations = [StoredRelation(**row | {"path": tables.original_path(row["path"])}) for row in found]
        return sorted(relations, key=lambda each: (each.relation, each.subject, each.object, each.path, each.start))

    def resolution(self) -> Resolution:
        """Which entities are one, and what is for review."""
        with self.reading() as connection:
            return resolved_tables.read(connection)

    def cluster_of(self, key: str) -> tuple[Cluster | None, list[Link]]:
        """The cluster of an entity, if it is in one, and all its links."""
        with self.reading() as connection:
            return resolved_tables.cluster_of(connection, key), resolved_tables.links_of(connection, key)

    def links_of(self, *keys: str) -> list[Link]:
        """The links of some entities, each once, the best first."""
        with self.reading() as connection:
            found = {link for key in keys for link in resolved_tables.links_of(connection, key)}
        return sorted(found, key=lambda link: (-link.score, link))

    def export(self, directory: Path) -> list[Path]:
        """Write the graph as Parquet, like the writer's `export`."""
        from ec1.graph.export import write_parquet

        with self.reading() as connection:
            return write_parquet(connection, directory)

    def _open(self) -> Any:
        if self._connection is None:
            import ladybug

            if file_seal.is_damaged(self._path):
                raise InputError(f"{self._path} is damaged on the disk: run `ec1 night`, which publishes it again")
            try:
                self._database = ladybug.Database(self._path, read_only=True, buffer_pool_size=self._buffer_pool)
                self._connection = ladybug.Connection(self._database)
                schema = tables.meta(self._connection).get("schema")
            except RuntimeError as error:
                self.close()
                raise InputError(f"{self._path} cannot be opened as a graph: {_first_line(error)}") from None
            if schema not in tables.READABLE_SCHEMAS:
                self.close()
                raise InputError(
                    f"{self._path} has schema {schema}, this program reads {tables.SCHEMA_VERSION}: run `ec1 night`, "
                    "which publishes it again"
                )
        return self._connection

    def rows(self, query: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a query of our own; others' go through `query`."""
        with self.reading() as connection:
            return tables.rows(connection, query, parameters)

    def ledger(self) -> dict[DocumentKey, LedgerEntry]:
        """Every document that the graph has heard of, as of the publication."""
        with self.reading() as connection:
            return tables.ledger(connection)

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """The connection; whatever the database raises becomes one line."""
        connection = self._open()
        try:
            yield connection
        except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
            raise InputError(f"{self._path}: the query failed: {_first_line(error)}") from None

    def mentions_of(self, *keys: str) -> list[StoredMention]:
        """The mentions of some entities, by document and place."""
        found = []
        for key in keys:
            rows = self.rows(
                "MATCH (d:Document)-[m:MENTIONS]->(:Entity {key: $key}) RETURN d.stream AS stream, d.path AS path, "
                "d.applied_id AS document_id, d.applied_content AS content_sha256, m.name AS name, m.chunk AS chunk, "
                "m.start_char AS `start`, m.end_char AS `end`, m.confidence AS confidence, "
                "m.fingerprint AS fingerprint, m.model AS model, d.applied_night AS night",
                {"key": key},
            )
            found += [StoredMention(**row | {"path": tables.original_path(row["path"]), "entity": key}) for row in rows]
        return sorted(found, key=lambda mention: tuple(asdict(mention)[name] for name in ("stream", "path", "start")))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else "no message"


def published_ledger(published: Path) -> dict[DocumentKey, LedgerEntry]:
    """The ledger as of the last publication; empty if nothing is published yet."""
    if not published.is_file():
        return {}
    with GraphReader(published) as reader:
        return reader.ledger()

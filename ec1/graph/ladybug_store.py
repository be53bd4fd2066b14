"""The live graph in LadybugDB and its only writer.

Belongs here: opening, recovery, applying documents, publishing, export. Does not: reading the published copy
(`reader.py`), what an identity is (`model.py`), deciding which documents are read (`ec1/documents/`).

How LadybugDB 0.22 wants to be used (each point was measured, see `benchmarks/apply_entities.py`):
- `LOAD FROM $batch MATCH (n {key: …})` goes through the key's index, so its time does not grow with the graph; `MERGE`
  and `UNWIND … MERGE` scan the whole table. So: look up, then CREATE what is missing and SET what changed.
- From a document or an entity to its mentions, `LOAD FROM` scans all of them (and filled a 256 MiB pool at 600,000);
  one prepared single-row query a node does not.
- The live file must not be opened, hashed or copied while the database is open: see `writer_lock.py`.
- https://docs.ladybugdb.com/concurrency
"""

import contextlib
import logging
import math
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status
from ec1.errors import BusyError, PermanentError
from ec1.extraction.results import ExtractionResult, Mention
from ec1.files import digest_of, fsync_dir, write_atomic
from ec1.graph import resolved_tables, tables
from ec1.graph.model import GraphStats, clean_name, entity_key, preferred_name
from ec1.graph.overrides import Overrides
from ec1.graph.resolution import Resolution, resolve
from ec1.graph.writer_lock import writer_lock

log = logging.getLogger(__name__)

# A transaction holds whole documents, up to about this many mentions or documents.
_BATCH_MENTIONS = 10_000
_BATCH_DOCUMENTS = 1_000
# A connection keeps the plan of a query for every Arrow table that it was ever given, 256 KiB of the pool a time, and
# the database keeps what was written since it was opened, about 100 KiB a small document even after a checkpoint: 250
# documents one by one filled 64 MiB. Renewing a connection takes 0.1 ms, opening the database again 50 ms.
_LOADS_PER_CONNECTION = 40
_TRANSACTIONS_PER_OPENING = 200
_MENTIONS_PER_OPENING = 50_000
_DAMAGE = (".wal", "wal file", "not a valid lbug database", "cannot read checkpoint", "corrupt")
QUARANTINE_AFTER = 3
"""Nights on which one version of a document may be deferred, unless the caller says otherwise."""


@dataclass(frozen=True)
class Applied:
    """What became of one document: the ledger's status, whether anything was written, and how many mentions were
    written and taken back."""

    key: DocumentKey
    status: Status
    changed: bool
    mentions: int = 0
    retracted: int = 0


@dataclass(frozen=True)
class _Change:
    """One document's news, whatever its kind."""

    key: DocumentKey
    document_id: str
    content_sha256: str
    fingerprint: str
    outcome: str
    reason: str | None = None
    mentions: tuple[dict[str, Any], ...] = ()
    traits: tuple[dict[str, Any], ...] = ()
    relations: tuple[dict[str, Any], ...] = ()


@dataclass
class _Plan:
    """What one change does to one document's node."""

    change: _Change
    node: dict[str, Any]
    is_new: bool
    retract: int = 0
    mentions: tuple[dict[str, Any], ...] = ()


@dataclass
class _Touched:
    """Names that entities gained and lost in one transaction, by entity key."""

    gained: dict[str, set[str]] = field(default_factory=dict)
    lost: dict[str, set[str]] = field(default_factory=dict)


class LadybugStore:
    """The single writer. Get one from `LadybugStore.open`; use it from the process that opened it."""

    def __init__(self, path: Path, *, buffer_pool_mib: int, published: Path | None) -> None:
        self._path = path
        self._buffer_pool = buffer_pool_mib * 2**20
        self._published = published
        self._recovered: str | None = None
        self._pid = os.getpid()
        self._database: Any = None
        self._connection: Any = None
        self._loads = self._transactions = self._written = 0
        self._relates = False
        """Whether any document states a relation: where none does, there is nothing to take back."""
        self._digest: tuple[str, str] | None = None
        """The graph's state and its digest, which takes a while."""

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        path: Path,
        *,
        buffer_pool_mib: int,
        wait_seconds: float,
        published: Path | None = None,
    ) -> Iterator["LadybugStore"]:
        """Open the live graph for writing; it is created on first use.

        A live graph that is damaged (a torn log after a crash) or gone is set aside in `<path>.damaged/` and the
        `published` copy takes its place, or an empty graph if there is none; `recovered` then says so. The ledger is
        in the graph, so the next listing finds the documents that are missing and applies them from the outbox.

        buffer_pool_mib: memory for the database, MiB. wait_seconds: how long to wait for another writer.

        Raises BusyError if another writer holds the graph, PermanentError if it was written by another version.
        """
        path = path.resolve()
        with writer_lock(path.with_name(path.name + ".lock"), wait_seconds):
            store = cls(path, buffer_pool_mib=buffer_pool_mib, published=published)
            try:
                store._open_or_recover()
                yield store
                store._checkpoint_if_written()
            finally:
                store._close()

    @property
    def recovered(self) -> str | None:
        """None, or what was wrong with the live graph and what took its place when it was opened."""
        return self._recovered

    def ledger(self) -> dict[DocumentKey, LedgerEntry]:
        """Every document that the graph has heard of, deleted ones included."""
        with self._reading():
            return tables.ledger(self._connection)

    def apply(
        self,
        key: DocumentKey,
        document_id: str,
        result: ExtractionResult,
        night: str,
        *,
        quarantine_after: int = QUARANTINE_AFTER,
    ) -> Applied:
        """Let one document's extraction count, in one transaction. Doing it again changes nothing.

        complete: the mentions replace those of the document's older version.
        deferred: the older mentions stay; the ledger counts the night and quarantines after `quarantine_after`.
        rejected: the older mentions go if they were read from other content, since that text no longer exists.
        """
        return self.apply_many([(key, document_id, result)], night, quarantine_after=quarantine_after)[0]

    def apply_many(
        self,
        results: Iterable[tuple[DocumentKey, str, ExtractionResult]],
        night: str,
        *,
        quarantine_after: int = QUARANTINE_AFTER,
    ) -> list[Applied]:
        """`apply` for many documents; a transaction holds several whole documents, so each counts entirely or not.

        Raises PermanentError if the store fails; the transactions before it have counted.
        """
        return self._apply(
            (
                _Change(
                    key=key,
                    document_id=document_id,
                    content_sha256=result.content_sha256,
                    fingerprint=result.fingerprint,
                    outcome=result.status,
                    reason=result.reason,
                    mentions=_mention_rows(result) if result.status == "complete" else (),
                    traits=_trait_rows(result) if result.status == "complete" else (),
                    relations=_relation_rows(result) if result.status == "complete" else (),
                )
                for key, document_id, result in results
            ),
            night,
            quarantine_after,
        )

    def reject(
        self, key: DocumentKey, document_id: str, content_sha256: str, fingerprint: str, reason: str, night: str
    ) -> Applied:
        """Record that a document cannot be read at all, such as a binary file; see `apply` for its older mentions."""
        return self.reject_many([(key, document_id, content_sha256, fingerprint, reason)], night)[0]

    def reject_many(self, rejected: Iterable[tuple[DocumentKey, str, str, str, str]], night: str) -> list[Applied]:
        """`reject` for many documents: key, document id, content, fingerprint and reason of each."""
        return self._apply(
            (
                _Change(key, document_id, content_sha256, fingerprint, "rejected", reason)
                for key, document_id, content_sha256, fingerprint, reason in rejected
            ),
            night,
        )

    def retract(self, key: DocumentKey, night: str) -> Applied:
        """Record that a document vanished: its mentions go, its ledger row says `deleted`."""
        return self._apply([_Change(key, "", "", "", "deleted")], night)[0]

    def retract_many(self, keys: Iterable[DocumentKey], night: str) -> list[Applied]:
        """`retract` for many documents."""
        return self._apply((_Change(key, "", "", "", "deleted") for key in keys), night)

    def resolve(self, overrides: Overrides) -> Resolution:
        """Say which entities are one (`resolution.py`) and keep it beside the graph, in one transaction.

        An unchanged graph under unchanged overrides is not resolved again. Raises InputError for overrides that
        contradict each other.
        """
        digest = self.digest()
        basis = resolved_tables.basis(digest, overrides)
        with self._reading():
            if tables.meta(self._connection).get("resolution") == basis:
                return resolved_tables.read(self._connection)
            resolution = resolve(resolved_tables.profiles(self._connection), overrides)
        self._give_memory_back()
        with self._transaction():
            self._drop_resolution()
            self._write_nodes("Cluster", resolved_tables.CLUSTER_COLUMNS, resolved_tables.cluster_rows(resolution))
            for query, records in resolved_tables.edge_rows(resolution):
                for start in range(0, len(records), _BATCH_MENTIONS):
                    self._load(query, records[start : start + _BATCH_MENTIONS])
            self._execute("CREATE (:Meta {name: 'resolution', value: $basis})", {"basis": basis})
        # Only what is derived was written.
        self._digest = tables.meta(self._connection)["state"], digest
        return resolution

    def drop_resolution(self) -> None:
        """Forget which entities are one, if that is kept; what the documents said is not touched."""
        with self._reading():
            kept = "resolution" in tables.meta(self._connection)
        if kept:
            with self._transaction():
                self._drop_resolution()

    def digest_with_resolution(self) -> str:
        """SHA-256 over what the documents said and what was made of it."""
        with self._reading():
            resolution = tables.meta(self._connection).get("resolution")
        return digest_of([self.digest(), resolution])

    def _drop_resolution(self) -> None:
        for table in ("SAME_AS", "MEMBER_OF", "Cluster"):
            self._execute(f"DROP TABLE {table}")
        for statement in tables.RESOLUTION_SCHEMA:
            self._execute(statement)
        self._execute("MATCH (m:Meta {name: 'resolution'}) DELETE m")

    def stats(self) -> GraphStats:
        """Count what the graph holds."""
        with self._reading():
            return tables.stats(self._connection)

    def digest(self) -> str:
        """SHA-256 over all that documents said and the ledger, whatever the order in which it came."""
        with self._reading():
            state = tables.meta(self._connection)["state"]
            if self._digest is None or self._digest[0] != state:
                self._digest = state, tables.digest(self._connection)
            return self._digest[1]

    def publish(self, destination: Path) -> Path:
        """Put a read-only copy of the graph at `destination` in one step; an unchanged graph writes nothing.

        Readers of an older copy keep it until they open again. The store stays open. Raises PermanentError if the
        live graph cannot be written to disk.
        """
        with self._reading():
            state = tables.meta(self._connection)["state"]
            if destination.exists() and self._state_of(destination) == state:
                return destination
            self._connection.execute("CHECKPOINT").close()
        self._close()
        try:
            # Closed, the live file may be read; the lock beside it keeps other writers out.
            _copy(self._path, destination)
        finally:
            self._connect()
        return destination

    def adopt(self, graph: Path) -> None:
        """Move the closed database file `graph`, of the same file system, to the live one's place, in one step.

        The store stays open.
        """
        with self._reading():
            self._connection.execute("CHECKPOINT").close()
        self._close()
        try:
            # An old log beside the new file would be replayed into it. After a checkpoint it holds nothing.
            for path in self._companions():
                path.unlink(missing_ok=True)
            _move(graph, self._path)
        finally:
            self._connect()

    def export(self, directory: Path) -> list[Path]:
        """Write all tables as sorted Parquet files, the neutral copy of a night.

        Equal graphs give equal bytes. Memory grows with the graph: about 400 bytes a mention.
        """
        from ec1.graph.export import write_parquet

        with self._reading():
            return write_parquet(self._connection, directory)

    # --- opening, closing, recovery

    def _open_or_recover(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        problem = "a recovery was interrupted" if self._marker.exists() else None
        if problem is None and not self._path.exists() and (self._companions() or self._has_published()):
            problem = f"{self._path} is missing"
        if problem is None:
            try:
                self._connect()
            except _DamagedError as error:
                problem = str(error)
        if problem is not None:
            self._recover(problem)
            self._connect()

    def _connect(self) -> None:
        import ladybug

        self._loads = self._transactions = self._written = 0
        with _translated(self._path, opening=True):
            # One thread: the queries are small, and waking a second one for each took twice the time on a busy machine.
            self._database = ladybug.Database(self._path, buffer_pool_size=self._buffer_pool, max_num_threads=1)
            self._connection = ladybug.Connection(self._database)
            # Otherwise closing rewrites the file even where nothing was written.
            self._connection.execute("CALL force_checkpoint_on_close=false").close()
            record = tables.meta(self._connection)
            if not record:
                self._create_tables()
            elif record.get("schema") in tables.EARLIER_SCHEMAS:
                self._add_tables()
            elif record.get("schema") != tables.SCHEMA_VERSION:
                raise PermanentError(
                    f"{self._path} has schema {record.get('schema')}, this program needs {tables.SCHEMA_VERSION}: move "
                    "the file and its published copy away, and the next night builds the graph again from the outbox"
                )

            states = "MATCH (:Entity)-[r:RELATES]->(:Entity) RETURN r.chunk LIMIT 1"
            self._relates = bool(tables.rows(self._connection, states))

    def _give_memory_back(self) -> None:
        import ladybug

        if self._transactions >= _TRANSACTIONS_PER_OPENING or self._written >= _MENTIONS_PER_OPENING:
            self._checkpoint_if_written()
            self._close()
            self._connect()
        elif self._loads >= _LOADS_PER_CONNECTION:
            self._connection.close()
            self._connection = ladybug.Connection(self._database)
            self._loads = 0

    def _add_tables(self) -> None:
        for statement in (*tables.SCHEMA, *tables.RESOLUTION_SCHEMA):
            self._execute(statement)
        with self._transaction():
            self._execute("MATCH (m:Meta {name: 'schema'}) SET m.value = $schema", {"schema": tables.SCHEMA_VERSION})

    def _create_tables(self) -> None:
        for statement in (*tables.SCHEMA, *tables.RESOLUTION_SCHEMA):
            self._execute(statement)
        # One statement, so both records appear together and last: an interrupted start is simply done again.
        self._execute(
            "CREATE (:Meta {name: 'schema', value: $schema}), (:Meta {name: 'state', value: $state})",
            {"schema": tables.SCHEMA_VERSION, "state": uuid.uuid4().hex},
        )

    def _checkpoint_if_written(self) -> None:
        if self._transactions and self._connection is not None:
            self._execute("CHECKPOINT")
            self._transactions = 0

    def _close(self) -> None:
        connection, database = self._connection, self._database
        self._connection = self._database = None
        if connection is not None:
            connection.close()
        if database is not None:
            database.close()

    @property
    def _marker(self) -> Path:
        return self._path.with_name(self._path.name + ".recovering")

    def _companions(self) -> list[Path]:
        """The database's own files beside the live one: its log and what a checkpoint leaves."""
        ours = {self._path.name + suffix for suffix in (".lock", ".recovering", ".damaged")}
        return [path for path in sorted(self._path.parent.glob(f"{self._path.name}.*")) if path.name not in ours]

    def _has_published(self) -> bool:
        return self._published is not None and self._published.is_file()

    def _recover(self, problem: str) -> None:
        self._close()
        aside = self._path.with_name(self._path.name + ".damaged")
        if not self._marker.exists():
            shutil.rmtree(aside, ignore_errors=True)
        # While the marker stands, whatever lies at the live path is not trusted.
        write_atomic(self._marker, problem)
        aside.mkdir(exist_ok=True)
        # The log goes first: an old log beside a restored file would be replayed into it.
        for path in [*self._companions(), self._path]:
            if path.exists():
                path.replace(aside / path.name)
        if self._published is not None and self._has_published():
            _copy(self._published, self._path)
            self._recovered = f"{problem}; restored {self._published}, damaged files are in {aside}"
        else:
            self._recovered = f"{problem}; started empty, damaged files are in {aside}"
        self._marker.unlink()
        fsync_dir(self._path.parent)
        log.warning("graph recovered: %s", self._recovered)

    def _state_of(self, destination: Path) -> str | None:
        """The state that a published copy holds; None if it cannot be read and must be written again."""
        import ladybug

        try:
            with (
                ladybug.Database(destination, read_only=True, buffer_pool_size=2**26) as database,
                ladybug.Connection(database) as connection,
            ):
                return tables.meta(connection).get("state")
        except RuntimeError:
            return None

    # --- applying

    def _apply(self, changes: Iterable[_Change], night: str, quarantine_after: int = QUARANTINE_AFTER) -> list[Applied]:
        self._check_usable()
        done: list[Applied] = []
        for batch in _batches(changes):
            self._give_memory_back()
            done.extend(self._apply_batch(batch, night, quarantine_after))
        return done

    def _apply_batch(self, batch: list[_Change], night: str, quarantine_after: int) -> list[Applied]:
        nodes = self._document_nodes([tables.document_key(change.key) for change in batch])
        plans = [
            self._plan(change, nodes.get(tables.document_key(change.key)), night, quarantine_after) for change in batch
        ]
        todo = [plan for plan in plans if isinstance(plan, _Plan)]
        if todo:
            with self._transaction():
                touched = _Touched()
                self._take_back([plan for plan in todo if plan.retract], touched)
                self._write_nodes("Document", tables.DOCUMENT_COLUMNS, [plan.node for plan in todo if plan.is_new])
                self._set_nodes("Document", tables.DOCUMENT_COLUMNS, [plan.node for plan in todo if not plan.is_new])
                self._write_entities(todo, touched)
                self._write_mentions(todo)
                self._write_traits(todo)
                self._write_relations(todo)
                self._settle(touched)
                self._written += sum(len(plan.mentions) + plan.retract for plan in todo)
        return [
            plan
            if isinstance(plan, Applied)
            else Applied(plan.change.key, Status(plan.node["status"]), True, len(plan.mentions), plan.retract)
            for plan in plans
        ]

    def _plan(self, change: _Change, old: dict[str, Any] | None, night: str, quarantine_after: int) -> _Plan | Applied:
        """The new node of a document, or what already counts if the change says nothing new."""
        if old is None and change.outcome == "deleted":
            return Applied(change.key, Status.DELETED, False)
        same = old is not None and (old["content_sha256"], old["fingerprint"]) == (
            change.content_sha256,
            change.fingerprint,
        )
        if old is not None and _says_nothing_new(change, old, same, night):
            return Applied(change.key, Status(old["status"]), False)
        node = dict(old) if old is not None else self._empty_node(change.key)
        held = node["mentions"]
        node.update(status=change.outcome, night=night, reason=change.reason, attempts=0)
        if change.outcome == "deleted":
            node.update(mentions=0, applied_id=None, applied_content=None, applied_night=None)
            return _Plan(change, node, old is None, retract=held)
        node.update(
            document_id=change.document_id, content_sha256=change.content_sha256, fingerprint=change.fingerprint
        )
        if change.outcome == "complete":
            node.update(
                status=Status.APPLIED,
                mentions=len(change.mentions),
                applied_id=change.document_id,
                applied_content=change.content_sha256,
                applied_night=night,
            )
            return _Plan(change, node, old is None, retract=held, mentions=change.mentions)
        if change.outcome == "deferred":
            node["attempts"] = 1 + (old["attempts"] if old is not None and same and old["status"] == "deferred" else 0)
            if node["attempts"] >= quarantine_after:
                node["status"] = Status.QUARANTINED
            return _Plan(change, node, old is None)
        if node["applied_content"] == change.content_sha256:
            return _Plan(change, node, old is None)
        node.update(mentions=0, applied_id=None, applied_content=None, applied_night=None)
        return _Plan(change, node, old is None, retract=held)

    @staticmethod
    def _empty_node(key: DocumentKey) -> dict[str, Any]:
        node: dict[str, Any] = dict.fromkeys(tables.DOCUMENT_COLUMNS)
        path = tables.stored_path(key.path)
        return node | {"key": tables.document_key(key), "stream": key.stream, "path": path, "mentions": 0}

    def _document_nodes(self, keys: list[str]) -> dict[str, dict[str, Any]]:
        returned = ", ".join(f"d.{name} AS {name}" for name in tables.DOCUMENT_COLUMNS)
        found = self._load(
            f"LOAD FROM $batch MATCH (d:Document {{key: row_key}}) RETURN {returned}",
            [{"key": key} for key in keys],
        )
        return {row["key"]: row for row in found}

    def _take_back(self, plans: Sequence[_Plan], touched: _Touched) -> None:
        for plan in plans:
            match = {"key": plan.node["key"]}
            if self._relates:
                # An entity that is mentioned twice is reached twice, and a relation goes once.
                self._execute(
                    "MATCH (d:Document {key: $key})-[:MENTIONS]->(e:Entity) WITH DISTINCT e "
                    "MATCH (e)-[r:RELATES]->(:Entity) WHERE r.document = $key DELETE r",
                    match,
                )
            gone = self._execute(
                "MATCH (d:Document {key: $key})-[m:MENTIONS]->(e:Entity) DELETE m "
                "RETURN e.key AS entity, m.name AS name",
                match,
            )
            self._check_count(plan.retract, len(gone), f"of {plan.node['key']} were taken back")
            for row in gone:
                touched.lost.setdefault(row["entity"], set()).add(row["name"])
            self._execute("MATCH (d:Document {key: $key})-[t:TRAIT]->(:Entity) DELETE t", match)

    def _check_count(self, wanted: int, written: int, what: str) -> None:
        """A MATCH that finds nothing writes nothing and says nothing, so what was written is counted."""
        if written != wanted:
            raise PermanentError(f"{self._path}: {written} mentions {what} where {wanted} should be; nothing was kept")

    def _write_entities(self, plans: Sequence[_Plan], touched: _Touched) -> None:
        """Create the entities that are missing; the preferred spelling of the others is settled by what they gained."""
        classes: dict[str, str] = {}
        for plan in plans:
            for mention in plan.mentions:
                classes[mention["entity"]] = mention["entity_class"]
                touched.gained.setdefault(mention["entity"], set()).add(mention["name"])
        known = {row["key"]: row["name"] for row in self._entity_names(sorted(classes))}
        fresh = [
            {"key": key, "name": preferred_name(touched.gained[key]), "entity_class": classes[key]}
            for key in sorted(classes)
            if key not in known
        ]
        self._write_nodes("Entity", tables.ENTITY_COLUMNS, fresh)
        better = []
        for key, name in known.items():
            if touched.gained[key] != {name} and name not in touched.lost.get(key, ()):
                best = preferred_name({name, *touched.gained[key]})
                if best != name:
                    better.append({"key": key, "name": best})
        self._set_nodes("Entity", ("key", "name"), better)

    def _write_mentions(self, plans: Sequence[_Plan]) -> None:
        mentions = [mention for plan in plans for mention in plan.mentions]
        if not mentions:
            return
        values = ", ".join(f"{name}: row_{name}" for name in tables.MENTION_COLUMNS)
        columns = {name: [mention[name] for mention in mentions] for name in ("entity", *tables.MENTION_COLUMNS)}
        columns["document"] = [plan.node["key"] for plan in plans for _ in plan.mentions]
        (written,) = self._load_columns(
            "LOAD FROM $batch MATCH (d:Document {key: row_document}) MATCH (e:Entity {key: row_entity}) "
            f"CREATE (d)-[:MENTIONS {{{values}}}]->(e) RETURN count(*) AS n",
            columns,
        )
        self._check_count(len(mentions), written["n"], "were written")

    def _write_traits(self, plans: Sequence[_Plan]) -> None:
        self._load(
            "LOAD FROM $batch MATCH (d:Document {key: row_document}) MATCH (e:Entity {key: row_entity}) "
            "CREATE (d)-[:TRAIT {kind: row_kind, value: row_value}]->(e)",
            [
                {"document": plan.node["key"], **trait}
                for plan in plans
                if plan.mentions
                for trait in plan.change.traits
            ],
        )

    def _write_relations(self, plans: Sequence[_Plan]) -> None:
        relations = [
            {"document": plan.node["key"], **relation}
            for plan in plans
            if plan.mentions
            for relation in plan.change.relations
        ]
        values = ", ".join(f"{name}: row_{name}" for name in tables.RELATION_COLUMNS)
        self._load(
            "LOAD FROM $batch MATCH (a:Entity {key: row_subject}) MATCH (b:Entity {key: row_object}) "
            f"CREATE (a)-[:RELATES {{{values}}}]->(b)",
            relations,
        )
        self._relates = self._relates or bool(relations)

    def _settle(self, touched: _Touched) -> None:
        """Remove entities that nothing mentions any more, and find the preferred spelling of those that lost theirs."""
        names = {row["key"]: row["name"] for row in self._entity_names(sorted(touched.lost))}
        gone, renamed = [], []
        for key in sorted(touched.lost):
            held = {names[key], *touched.gained.get(key, ())}
            if names[key] in touched.lost[key] - touched.gained.get(key, set()) and not self._spelt(key, names[key]):
                left = self._execute(
                    "MATCH (e:Entity {key: $key})<-[m:MENTIONS]-(:Document) RETURN DISTINCT m.name AS name",
                    {"key": key},
                )
                held = {row["name"] for row in left}
            if not held:
                gone.append(key)
            elif (best := preferred_name(held)) != names[key]:
                renamed.append({"key": key, "name": best})
        for key in gone:
            self._execute("MATCH (e:Entity {key: $key}) DETACH DELETE e", {"key": key})
        self._set_nodes("Entity", ("key", "name"), renamed)

    def _spelt(self, key: str, name: str) -> bool:
        """Whether some document still spells the entity so; stops at the first."""
        query = "MATCH (e:Entity {key: $key})<-[m:MENTIONS]-(:Document) WHERE m.name = $name RETURN m.chunk LIMIT 1"
        return bool(self._execute(query, {"key": key, "name": name}))

    def _entity_names(self, keys: list[str]) -> list[dict[str, Any]]:
        return self._load(
            "LOAD FROM $batch MATCH (e:Entity {key: row_key}) RETURN e.key AS key, e.name AS name",
            [{"key": key} for key in keys],
        )

    # --- the database

    def _write_nodes(self, label: str, columns: tuple[str, ...], nodes: list[dict[str, Any]]) -> None:
        values = ", ".join(f"{name}: row_{name}" for name in columns)
        self._load(
            f"LOAD FROM $batch CREATE (:{label} {{{values}}})",
            [{name: node[name] for name in columns} for node in nodes],
        )

    def _set_nodes(self, label: str, columns: tuple[str, ...], nodes: list[dict[str, Any]]) -> None:
        values = ", ".join(f"n.{name} = row_{name}" for name in columns if name != "key")
        self._load(
            f"LOAD FROM $batch MATCH (n:{label} {{key: row_key}}) SET {values}",
            [{name: node[name] for name in columns} for node in nodes],
        )

    def _load(self, query: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run a query that reads `$batch`; with no records there is nothing to do (an empty list is an error there)."""
        if not records:
            return []
        return self._load_columns(query, {name: [record[name] for record in records] for name in records[0]})

    def _load_columns(self, query: str, columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
        """Run a query that reads `$batch`, whose columns are named `row_…` so that no query takes them for a node's."""
        import pyarrow as pa

        self._loads += 1
        arrays = [pa.array(values, type=_arrow_type(name, pa)) for name, values in columns.items()]
        batch = pa.Table.from_arrays(arrays, names=[f"row_{name}" for name in columns])
        return self._execute(query, {"batch": batch})

    def _execute(self, query: str, parameters: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        with _translated(self._path):
            return tables.rows(self._connection, query, parameters)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("this graph store was opened before a fork: open it in the process that uses it")
        if self._connection is None:
            raise RuntimeError(f"the graph store {self._path} is closed")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        self._check_usable()
        with _translated(self._path):
            yield

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._transactions += 1
        self._execute("BEGIN TRANSACTION")
        try:
            yield
            state = {"state": uuid.uuid4().hex}
            self._execute("MATCH (m:Meta {name: 'state'}) SET m.value = $state", state)
            self._execute("COMMIT")
        except BaseException:
            # An error inside the database has already rolled back, and says that there is nothing to roll back.
            with contextlib.suppress(RuntimeError):
                self._connection.execute("ROLLBACK").close()
            raise


class _DamagedError(Exception):
    """The live graph's files cannot be opened as they are."""


@contextlib.contextmanager
def _translated(path: Path, *, opening: bool = False) -> Iterator[None]:
    """LadybugDB raises RuntimeError for everything: tell its messages apart."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).splitlines()[0] if str(error) else "no message"
        low = message.replace(str(path), "").lower()
        if "could not set lock" in low:
            raise BusyError(f"{path} is open in a program that did not take its writer lock: close it") from None
        if "different version" in low:
            raise PermanentError(
                f"{path} was written by another version of ladybug ({message}): install that version, or move the file "
                "and its published copy away, and the next night builds the graph again from the outbox"
            ) from None
        if "buffer pool is full" in low:
            raise PermanentError(f"{path}: the buffer pool is too small: raise graph.buffer_pool_mib") from error
        if opening and any(word in low for word in _DAMAGE):
            raise _DamagedError(message) from None
        raise PermanentError(f"{path}: {message}") from error


def _says_nothing_new(change: _Change, old: dict[str, Any], same: bool, night: str) -> bool:
    status = old["status"]
    if change.outcome == "deleted":
        return bool(status == Status.DELETED)
    if not same or status == Status.DELETED:
        return False
    if change.outcome == "complete":
        return bool(status == Status.APPLIED)
    if change.outcome == "rejected":
        return bool(status == Status.REJECTED and old["reason"] == change.reason)
    # A night counts once, and what counts or was given up is not deferred again.
    return status in (Status.APPLIED, Status.QUARANTINED) or (status == Status.DEFERRED and old["night"] == night)


def _mention_rows(result: ExtractionResult) -> tuple[dict[str, Any], ...]:
    """The result's mentions, one an entity and place: overlapping chunks may both have found it."""
    models = {answer.chunk: answer.model for answer in result.answers}
    best: dict[tuple[str, int, int], Mention] = {}
    for mention in result.mentions:
        if not math.isfinite(mention.confidence):
            raise PermanentError(f"the result for {result.content_sha256[:12]} has a confidence that is no number")
        if not clean_name(mention.name):
            continue
        place = (entity_key(mention.name, mention.entity_class), mention.start, mention.end)
        other = best.get(place)
        if other is None or _rank(mention) < _rank(other):
            best[place] = mention
    return tuple(
        {
            "entity": place[0],
            "entity_class": mention.entity_class,
            "name": clean_name(mention.name),
            "chunk": mention.chunk,
            "start_char": mention.start,
            "end_char": mention.end,
            "confidence": mention.confidence,
            "fingerprint": result.fingerprint,
            "model": models.get(mention.chunk, ""),
        }
        for place, mention in sorted(best.items(), key=itemgetter(0))
    )


def _rank(mention: Mention) -> tuple[float, int, str]:
    return -mention.confidence, mention.chunk, mention.name


def _trait_rows(result: ExtractionResult) -> tuple[dict[str, Any], ...]:
    """The result's traits of entities that it also mentions."""
    if not result.traits:
        return ()
    mentioned = {entity_key(mention.name, mention.entity_class) for mention in result.mentions}
    found = {
        (key, trait.kind, clean_name(trait.value))
        for trait in result.traits
        if (key := entity_key(trait.name, trait.entity_class)) in mentioned
    }
    return tuple({"entity": entity, "kind": kind, "value": value} for entity, kind, value in sorted(found))


def _relation_rows(result: ExtractionResult) -> tuple[dict[str, Any], ...]:
    """The result's relations between entities that it also mentions."""
    if not result.relations:
        return ()
    models = {answer.chunk: answer.model for answer in result.answers}
    mentioned = {entity_key(mention.name, mention.entity_class) for mention in result.mentions}
    found = []
    for each in result.relations:
        subject, target = entity_key(each.subject, each.subject_class), entity_key(each.object, each.object_class)
        if {subject, target} <= mentioned:
            found.append(
                {
                    "subject": subject,
                    "object": target,
                    "relation": each.relation,
                    "chunk": each.chunk,
                    "start_char": each.start,
                    "end_char": each.end,
                    "confidence": each.confidence,
                    "fingerprint": result.fingerprint,
                    "model": models.get(each.chunk, ""),
                }
            )
    return tuple(found)


def _batches(changes: Iterable[_Change]) -> Iterator[list[_Change]]:
    """Whole documents, no document twice in a batch."""
    batch: list[_Change] = []
    keys: set[DocumentKey] = set()
    mentions = 0
    for change in changes:
        full = len(batch) >= _BATCH_DOCUMENTS or mentions + len(change.mentions) > _BATCH_MENTIONS
        if batch and (full or change.key in keys):
            yield batch
            batch, keys, mentions = [], set(), 0
        batch.append(change)
        keys.add(change.key)
        mentions += len(change.mentions)
    if batch:
        yield batch


def _arrow_type(name: str, pa: Any) -> Any:
    # Stated, not guessed from the first row, which may hold a None.
    if name in ("chunk", "start_char", "end_char", "attempts", "mentions", "members"):
        return pa.int64()
    return pa.float64() if name in ("confidence", "score") else pa.string()


def _copy(source: Path, destination: Path) -> None:
    """Copy a file into place in one step. The temporary name is fixed: what a crash left is overwritten."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    temporary = destination.with_name(f".{destination.name}.tmp")
    shutil.copyfile(source, temporary)
    _move(temporary, destination)


def _move(source: Path, destination: Path) -> None:
    """Let a written file take another's place, so that a crash leaves one or the other, whole."""
    with source.open("rb") as stream:
        os.fsync(stream.fileno())
    source.replace(destination)
    fsync_dir(destination.parent)

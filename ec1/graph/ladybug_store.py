"""The live graph in LadybugDB and its only writer.

Belongs here: what the writer offers: applying, resolving, publishing, export. Does not: the database file
(`database.py`), how documents become rows (`changes.py`), reading the published copy (`reader.py`), what an identity is
(`model.py`), deciding which documents are read (`ec1/documents/`).
"""

import contextlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ec1.documents.ledger import DocumentKey, LedgerEntry
from ec1.extraction.results import ExtractionResult
from ec1.files import digest_of
from ec1.graph import file_seal, reassign, tables
from ec1.graph.changes import Changes
from ec1.graph.database import GraphDatabase, copy_into_place
from ec1.graph.document_plans import Applied
from ec1.graph.model import GraphStats
from ec1.graph.news import Change
from ec1.graph.resolution import resolver
from ec1.graph.resolution import tables as resolved_tables
from ec1.graph.resolution.clusters import Cluster, Resolution
from ec1.graph.resolution.overrides import Overrides
from ec1.graph.resolution.resolver import DRIFT, WHOLE_BELOW
from ec1.graph.search_index import index_path
from ec1.graph.sentence_index import sentence_index_path
from ec1.graph.writer_lock import writer_lock

QUARANTINE_AFTER = 3
"""Nights on which one version of a document may be deferred, unless the caller says otherwise."""


def rebuilding_folder(published: Path) -> Path:
    """Where a graph is rebuilt before it takes the place of the live one (`rebuild.py`)."""
    return published.with_name("beside")


class LadybugStore:
    """The single writer. Get one from `LadybugStore.open`; use it from the process that opened it."""

    def __init__(self, path: Path, *, buffer_pool_mib: int, published: Path | None) -> None:
        self._db = GraphDatabase(path, buffer_pool_mib=buffer_pool_mib, published=published)
        self._changes = Changes(self._db)

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
                store._db.open_or_recover()
                yield store
                store._db.checkpoint_if_written()
            finally:
                store._db.close()
            store._db.seal()

    @property
    def recovered(self) -> str | None:
        """None, or what was wrong with the live graph and what took its place when it was opened."""
        return self._db.recovered

    @contextlib.contextmanager
    def reading(self) -> Iterator[Any]:
        """The open database, for reading its tables (`tables`)."""
        with self._db.reading():
            yield self._db.connection

    def ledger(self) -> dict[DocumentKey, LedgerEntry]:
        """Every document that the graph has heard of, deleted ones included."""
        with self._db.reading():
            return tables.ledger(self._db.connection)

    def apply(
        self,
        key: DocumentKey,
        document_id: str,
        result: ExtractionResult,
        night: str,
        *,
        quarantine_after: int = QUARANTINE_AFTER,
    ) -> Applied:
        """Let one document's extraction count, in one transaction. Idempotent.

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
        return self._changes.apply(
            (Change.of(key, document_id, result) for key, document_id, result in results), night, quarantine_after
        )

    def fill(self, nodes: Sequence[dict[str, Any]], changes: Iterable[Change]) -> None:
        """Make an empty graph one of documents that another has: what they say as `changes`, their nodes as they are
        there."""
        self._changes.fill(nodes, changes)

    def reject_many(self, rejected: Iterable[tuple[DocumentKey, str, str, str, str]], night: str) -> list[Applied]:
        """Record that documents cannot be read at all, such as binary files: key, document id, content, fingerprint and
        reason of each. See `apply` for their older mentions."""
        return self._changes.apply(
            (
                Change(key, document_id, content_sha256, fingerprint, "rejected", reason)
                for key, document_id, content_sha256, fingerprint, reason in rejected
            ),
            night,
            QUARANTINE_AFTER,
        )

    def retract_many(self, keys: Iterable[DocumentKey], night: str) -> list[Applied]:
        """Record that documents vanished: their mentions go, their ledger rows say `deleted`."""
        return self._changes.apply((Change(key, "", "", "", "deleted") for key in keys), night, QUARANTINE_AFTER)

    def resolve(self, overrides: Overrides, *, drift: float = DRIFT, whole_below: int = WHOLE_BELOW) -> Resolution:
        """Say which entities are one (`resolution.py`) and keep it beside the graph; returns all of it, which takes
        time in a large graph. See `update_resolution`."""
        unused = self.update_resolution(overrides, drift=drift, whole_below=whole_below)
        with self._db.reading():
            return replace(resolved_tables.read(self._db.connection), unused_overrides=tuple(unused))

    def update_resolution(
        self, overrides: Overrides, *, drift: float = DRIFT, whole_below: int = WHOLE_BELOW
    ) -> list[str]:
        """Bring the resolution up to date, in one transaction; returns the entities that `overrides` names and the
        graph lacks.

        Only what new, changed or removed documents touch is resolved again, with the result that resolving everything
        under the same statistics gives. Everything is resolved, with statistics of now, if more than `drift` (a share)
        of the entities came or went since they were taken, or if there are fewer than `whole_below` entities. An
        unchanged graph under unchanged overrides is not resolved again.

        Raises InputError for overrides that contradict each other.
        """
        self._db.make_room()
        with self._db.reading():
            reassign.follow(self._db, self._changes, overrides)
            resolver.update(self._db, overrides, drift=drift, whole_below=whole_below)
            return resolver.unused(self._db, overrides)

    def resolution_counts(self) -> resolved_tables.Counts:
        """How many links and clusters are kept."""
        with self._db.reading():
            return resolved_tables.counts(self._db.connection)

    def resolution(self) -> Resolution:
        """All links and clusters that are kept."""
        with self._db.reading():
            return resolved_tables.read(self._db.connection)

    def clusters(self) -> tuple[Cluster, ...]:
        """All clusters that are kept."""
        with self._db.reading():
            return resolved_tables.clusters(self._db.connection)

    def drop_resolution(self) -> None:
        """Forget which entities are one, if that is kept; what the documents said is not touched."""
        with self._db.reading():
            resolver.drop(self._db)

    def digest_with_resolution(self) -> str:
        """SHA-256 over what the documents said and what was made of it."""
        with self._db.reading():
            record = resolved_tables.record(self._db.connection)
        return digest_of([self.digest(), record.digest if record else None])

    def stats(self) -> GraphStats:
        """Count what the graph holds."""
        with self._db.reading():
            return tables.totals(self._db.connection).stats

    def digest(self) -> str:
        """SHA-256 over all that documents said and the ledger, whatever the order in which it came. It is kept with the
        graph, so asking costs nothing."""
        with self._db.reading():
            return tables.totals(self._db.connection).digest

    def recounted_digest(self) -> str:
        """The same figure from every row of the graph: takes a while, and shows whether what is kept is right."""
        with self._db.reading():
            return tables.recount(self._db.connection).digest

    def publish(self, destination: Path) -> Path:
        """Put a read-only copy of the graph at `destination` in one step; an unchanged graph writes nothing.

        Readers of an older copy keep it until they open again. The store stays open. Raises PermanentError if the
        live graph cannot be written to disk, DamagedError, with the copy before left as it is, if it was spoilt.
        """
        # What a rebuilding that was killed left.
        shutil.rmtree(rebuilding_folder(destination), ignore_errors=True)
        with self._db.reading():
            state = tables.meta(self._db.connection)["state"]
            # A copy of another state is replaced: nobody need read it from end to end first.
            known = destination.exists() and file_seal.state_of(destination) in (None, state)
            if known and not file_seal.is_damaged(destination) and self._db.state_of(destination) == state:
                return destination

        def check(copy: Path) -> None:
            if self._db.state_of(copy) != state:
                raise self._db.spoilt("its file was damaged while it was open")

        with self._db.closed():
            # The lock beside the live file keeps other writers out.
            # What was found in it before is of the copy before, and may say what is forgotten now.
            for index in (index_path(destination), sentence_index_path(destination)):
                index.unlink(missing_ok=True)
            copy_into_place(self._db.path, destination, check)
            file_seal.seal_copy(destination, self._db.path, state)
        return destination

    def adopt(self, graph: Path) -> None:
        """Move the closed database file `graph`, of the same file system, to the live one's place, in one step.

        The store stays open.
        """
        with self._db.closed():
            self._db.replace_closed(graph)

    def export(self, directory: Path) -> list[Path]:
        """Write all tables as sorted Parquet files; see `export.write_parquet`.

        Equal graphs give equal bytes. Memory grows with the graph: about 400 bytes a mention.
        """
        from ec1.graph.export import write_parquet

        with self._db.reading():
            return write_parquet(self._db.connection, directory)

"""What service-content should hold, what we sent to it, and what still has to be sent: an outbox in one SQLite file.

Belongs here: choosing what to send so that a later write is never a worse one, and comparing with what the service
holds. Does not: the service's wire (`service_content.py`) and rules (`service_names.py`), or which documents count.

A node there holds one name, one class and one confidence, and the last write wins. So we keep what every document says
(a claim) and send, for each key, the best of all documents:
- a Person and a Location of one name are one node there: the class with the highest confidence wins, then the one that
  more documents give, then the order of `ENTITY_CLASSES`;
- its confidence is the highest of that class, its document the one that has it (the first by id);
- its name is the preferred spelling of that class, as in our own graph.
A deployment's own classes are sent as the contract's class that it names for each; one of a class that it no longer has
is refused and counted. Entities that our resolution made one are sent as one, under their common name. The service
makes one identity of two entities with similar names if one request holds both, so a request never holds two that it
could confuse. A name that its clean-up deletes is not sent: it would be missing, and sent again, for ever.

The service has no way to take an entity back: what no document says any more stays there, and is counted as retracted.
"""

import random
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import ConfigDict, Field

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status, extractor_fingerprint
from ec1.errors import DeferredError, PermanentError, RejectedError
from ec1.extraction.results import ENTITY_CLASSES, ExtractionResult
from ec1.files import digest_of
from ec1.graph.model import clean_name, entity_key, preferred_name
from ec1.graph.service_content import (
    MAX_CONTEXT,
    ServiceContentClient,
    ServiceEntity,
)
from ec1.graph.service_names import alias_block, could_alias, is_cleaned, service_key
from ec1.records import Record
from ec1.vocabulary import CONTRACT, Vocabulary

if TYPE_CHECKING:
    from ec1.extraction.reading.outbox import Outbox
    from ec1.graph.resolution.clusters import Cluster

_Write = tuple[str, ServiceEntity | None]
# How many entities are looked up one by one per night.
SAMPLE = 40
_CLEANED = "its clean-up deletes such names"
_MAX_EXAMPLES = 10
# Requests that are filled at one time: an entity that fits none of them opens a further one.
_OPEN_BATCHES = 20
_VERSION = 2
_DROPPED = """
DROP TABLE IF EXISTS documents;
DROP TABLE IF EXISTS claims;
DROP TABLE IF EXISTS merged;
"""
"""What is made again from the ledger and the outbox when this file is of an earlier version."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents(stream TEXT, path TEXT, content TEXT, fingerprint TEXT, PRIMARY KEY(stream, path));
CREATE TABLE IF NOT EXISTS claims(stream TEXT, path TEXT, key TEXT, entity_class TEXT, name TEXT, confidence REAL,
  source_doc TEXT, entity TEXT, PRIMARY KEY(stream, path, entity_class, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claims_by_key ON claims(key);
CREATE INDEX IF NOT EXISTS claims_by_entity ON claims(entity);
CREATE TABLE IF NOT EXISTS merged(entity TEXT PRIMARY KEY, name TEXT);
CREATE TABLE IF NOT EXISTS resent(key TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS sent(key TEXT PRIMARY KEY, name TEXT, entity_class TEXT, confidence REAL, source_doc TEXT,
  night TEXT, retracted INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS waiting(key TEXT PRIMARY KEY);
"""


class DeliveryRecord(Record):
    """What a night sent, what is left for a later one, and how what we sent compares with what the service holds.

    `differ`, `missing` and `unconfirmed` are of the `looked_up` ones: `missing` is what the service shows that it does
    not hold, `unconfirmed` what it did not show, which proves nothing where it knows many similar names. `held` is
    None if the service did not say. It grows while entities are sent.
    """

    model_config = ConfigDict(frozen=False)
    step: ClassVar[str] = "service_content"

    sent: int = 0
    batches: int = 0
    deferred: int = 0
    refused: dict[str, int] = Field({})
    expected: int = 0
    retracted: int = 0
    held: int | None = None
    looked_up: int = 0
    missing: int = 0
    unconfirmed: int = 0
    differ: int = 0
    examples: list[str] = Field([])
    problem: str | None = None

    def plus(self, later: Self) -> Self:
        """What was sent adds up; the rest is the later run's."""
        return later.model_copy(
            update={name: getattr(self, name) + getattr(later, name) for name in ("sent", "batches", "retracted")}
        )


class ServiceContentStore:
    """The second graph store, for one tenant; `state` is the SQLite file. What has not changed is not sent again."""

    def __init__(self, state: Path, client: ServiceContentClient, vocabulary: Vocabulary = CONTRACT) -> None:
        self._state = state
        self._client = client
        self._vocabulary = vocabulary
        sent_as = sorted((own.name, str(own.sent_as)) for own in vocabulary.own)
        # What a class is sent as is part of what a document says there: after a change it is said again.
        self._mapping = f" {digest_of(sent_as)[:16]}" if sent_as else ""

    def deliver(
        self,
        ledger: Mapping[DocumentKey, LedgerEntry],
        outbox: "Outbox",
        night: str,
        clusters: "Iterable[Cluster]" = (),
    ) -> DeliveryRecord:
        """Bring the service to what the ledger's documents say, as far as it lets us, and compare. The members of one
        of the `clusters` are sent as one entity.

        Never raises for the service's sake: what it did not take waits for the next night, and `problem` says why.
        """
        delivery = DeliveryRecord()
        with self._open() as state:
            self._merge(state, clusters)
            self._claim(state, ledger, outbox, delivery)
            try:
                self._send(state, night, delivery)
                self._compare(state, night, delivery)
            except (DeferredError, PermanentError) as error:
                delivery.problem = delivery.problem or str(error)
            delivery.deferred = state.execute("SELECT count(*) FROM waiting").fetchone()[0]
            delivery.expected = state.execute("SELECT count(*) FROM sent").fetchone()[0]
            delivery.retracted = state.execute("SELECT count(*) FROM sent WHERE retracted").fetchone()[0]
        return delivery

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self._state.parent.mkdir(parents=True, exist_ok=True)
        state = sqlite3.connect(self._state, isolation_level=None)
        try:
            state.execute("PRAGMA journal_mode=WAL")
            (version,) = state.execute("PRAGMA user_version").fetchone()
            state.executescript((_DROPPED if version < _VERSION else "") + _SCHEMA)
            state.execute(f"PRAGMA user_version={_VERSION}")
            yield state
        finally:
            state.close()

    # --- what documents say

    @staticmethod
    def _merge(state: sqlite3.Connection, clusters: "Iterable[Cluster]") -> None:
        """Keep under which name a cluster's members are sent; what that changes waits to be sent."""
        known = dict(state.execute("SELECT entity, name FROM merged"))
        wanted = {member: each.name for each in clusters for member in each.members}
        changed = [entity for entity in known.keys() | wanted.keys() if known.get(entity) != wanted.get(entity)]
        if not changed:
            return
        with _transaction(state):
            for entity in sorted(changed):
                waits = "INSERT OR IGNORE INTO waiting SELECT key FROM claims WHERE entity = ?"
                state.execute(waits, (entity,))
                state.execute("DELETE FROM merged WHERE entity = ?", (entity,))
                if (name := wanted.get(entity)) is not None:
                    state.execute("INSERT INTO merged VALUES (?, ?)", (entity, name))
                    state.execute("UPDATE claims SET key = ? WHERE entity = ?", (service_key(name), entity))
                else:
                    for (said,) in state.execute("SELECT DISTINCT name FROM claims WHERE entity = ?", (entity,)):
                        alone = (service_key(said), entity, said)
                        state.execute("UPDATE claims SET key = ? WHERE entity = ? AND name = ?", alone)
                state.execute(waits, (entity,))

    def _claim(
        self,
        state: sqlite3.Connection,
        ledger: Mapping[DocumentKey, LedgerEntry],
        outbox: "Outbox",
        delivery: DeliveryRecord,
    ) -> None:
        """Replace the claims of the documents that changed. The ledger is what counts, so a night that broke off
        between graph and service is made up by the next."""
        known = {
            DocumentKey(stream, path): (content, fingerprint)
            for stream, path, content, fingerprint in state.execute("SELECT * FROM documents")
        }
        with _transaction(state):
            for key in sorted(known.keys() - ledger.keys()):
                self._replace(state, key, None, delivery)
            for key, entry in ledger.items():
                fingerprint = extractor_fingerprint(entry.fingerprint)
                version = (entry.content_sha256, f"{fingerprint}{self._mapping}")
                if entry.status is Status.APPLIED and known.get(key) != version:
                    result = outbox.get(fingerprint, entry.content_sha256)
                    if result is not None:
                        self._replace(state, key, (entry, result), delivery)
                elif key in known and (
                    entry.status is Status.DELETED
                    or (entry.status is Status.REJECTED and known[key][0] != entry.content_sha256)
                ):
                    self._replace(state, key, None, delivery)

    def _replace(
        self,
        state: sqlite3.Connection,
        key: DocumentKey,
        version: tuple[LedgerEntry, ExtractionResult] | None,
        delivery: DeliveryRecord,
    ) -> None:
        document = (key.stream, key.path)
        state.execute(
            "INSERT OR IGNORE INTO waiting SELECT DISTINCT key FROM claims WHERE stream = ? AND path = ?", document
        )
        state.execute("DELETE FROM claims WHERE stream = ? AND path = ?", document)
        state.execute("DELETE FROM documents WHERE stream = ? AND path = ?", document)
        if version is None:
            return
        entry, result = version
        state.execute(
            "INSERT INTO documents VALUES (?, ?, ?, ?)",
            (*document, result.content_sha256, f"{result.fingerprint}{self._mapping}"),
        )
        for each, entity in self._claims_of(entry, result, delivery):
            merged = state.execute("SELECT name FROM merged WHERE entity = ?", (entity,)).fetchone()
            sent_as = service_key(merged[0]) if merged else each.key
            state.execute(
                "INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*document, sent_as, each.classification, each.entity_name, each.confidence, each.source_doc, entity),
            )
            state.execute("INSERT OR IGNORE INTO waiting VALUES (?)", (sent_as,))

    def _claims_of(
        self, entry: LedgerEntry, result: ExtractionResult, delivery: DeliveryRecord
    ) -> list[tuple[ServiceEntity, str]]:
        """What one document says: each spelling and class once, with its highest confidence, and the key of the entity
        in our graph. A class that is not the contract's has become one of them."""
        best: dict[tuple[str, str], tuple[ServiceEntity, str]] = {}
        for mention in result.mentions:
            known_there = self._vocabulary.sent_as(mention.entity_class) or mention.entity_class
            said = ServiceEntity(clean_name(mention.name), known_there, mention.confidence, entry.document_id)
            try:
                said.check()
            except RejectedError as error:
                delivery.refused[str(error)] = delivery.refused.get(str(error), 0) + 1
                continue
            place = (said.entity_name, said.classification)
            if place not in best or best[place][0].confidence < said.confidence:
                best[place] = said, entity_key(said.entity_name, mention.entity_class)
        return list(best.values())

    # --- sending

    def _send(self, state: sqlite3.Connection, night: str, delivery: DeliveryRecord) -> None:
        """Send what waits, in bounded batches; each batch counts once the service has taken it."""
        for batch in _batches(self._changes(state, delivery), self._client.batch_entities):
            if entities := [entity for _, entity in batch if entity is not None]:
                try:
                    self._client.mutate(entities)
                except PermanentError as error:
                    # This batch it will never take as it is; the others must not wait behind it.
                    delivery.problem = str(error)
                    continue
                delivery.batches += 1
                delivery.sent += len(entities)
            with _transaction(state):
                for key, entity in batch:
                    state.execute("DELETE FROM waiting WHERE key = ?", (key,))
                    if entity is None:
                        state.execute("UPDATE sent SET retracted = 1 WHERE key = ?", (key,))
                    else:
                        state.execute(
                            "INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?, ?, ?, 0)",
                            (key, *_row(entity), night),
                        )

    @staticmethod
    def _changes(state: sqlite3.Connection, delivery: DeliveryRecord) -> list[_Write]:
        """What to write, by key; None for a key that no document claims any more, or that would not stay there."""
        changes: list[_Write] = []
        for (key,) in state.execute("SELECT key FROM waiting ORDER BY key").fetchall():
            wanted = _best(state, key)
            if wanted is not None and is_cleaned(wanted.entity_name, wanted.classification):
                delivery.refused[_CLEANED] = delivery.refused.get(_CLEANED, 0) + 1
                wanted = None
            if wanted is None or _sent(state, key) != wanted:
                changes.append((key, wanted))
            else:
                # Said again as it was: there is nothing to write.
                state.execute("DELETE FROM waiting WHERE key = ?", (key,))
        return changes

    # --- comparing

    def _compare(self, state: sqlite3.Connection, night: str, delivery: DeliveryRecord) -> None:
        """Count, and look some entities up. What the service lost is queued to be sent again."""
        delivery.held = self._client.count()
        ours = [row[0] for row in state.execute("SELECT key FROM sent WHERE NOT retracted ORDER BY key")]
        sample = ours if len(ours) <= SAMPLE else random.Random(night).sample(ours, SAMPLE)
        lost = []
        for key in sample:
            wanted = _sent(state, key)
            assert wanted is not None
            found = self._client.find(wanted.entity_name)
            held = [each for each in found if each.key == key]
            delivery.looked_up += 1
            if any(_same(each, wanted) for each in held):
                state.execute("DELETE FROM resent WHERE key = ?", (key,))
            elif held:
                delivery.differ += 1
                _example(
                    delivery,
                    f"{wanted.entity_name} ({wanted.classification}, {wanted.confidence:g}) is there as "
                    f"{held[0].entity_name} ({held[0].classification}, {held[0].confidence:g})",
                )
            elif self._may_be_there(state, key, wanted, found):
                delivery.unconfirmed += 1
            else:
                lost.append(key)
                _example(delivery, f"{wanted.entity_name}: not there")
        delivery.missing = len(lost)
        if len(lost) * 2 > len(sample) and delivery.held < len(ours):
            # It was emptied or restored: the sample stands for the rest.
            lost = ours
        with _transaction(state):
            state.executemany("DELETE FROM sent WHERE key = ?", [(key,) for key in lost])
            state.executemany("INSERT OR IGNORE INTO waiting VALUES (?)", [(key,) for key in lost])
            state.executemany("INSERT OR IGNORE INTO resent VALUES (?)", [(key,) for key in lost])

    @staticmethod
    def _may_be_there(state: sqlite3.Connection, key: str, wanted: ServiceEntity, found: list[ServiceEntity]) -> bool:
        """Whether an entity that was not shown may be held all the same: among too many matches, behind the similar one
        that answers in its place since an earlier request, or because sending it again did not show it either."""
        if len(found) >= MAX_CONTEXT or state.execute("SELECT 1 FROM resent WHERE key = ?", (key,)).fetchone():
            return True
        return any(_could_alias(each, wanted) for each in found)


def _best(state: sqlite3.Connection, key: str) -> ServiceEntity | None:
    """What all documents together say about a key; see the module's rule."""
    claims = state.execute(
        "SELECT entity_class, name, confidence, source_doc FROM claims WHERE key = ?", (key,)
    ).fetchall()
    if not claims:
        return None
    by_class: dict[str, list[tuple[str, float, str]]] = {}
    for entity_class, name, confidence, source_doc in claims:
        by_class.setdefault(entity_class, []).append((name, confidence, source_doc))

    def rank(entity_class: str) -> tuple[float, int, int]:
        said = by_class[entity_class]
        order = [str(each) for each in ENTITY_CLASSES].index(entity_class)
        return -max(confidence for _, confidence, _ in said), -len({source for _, _, source in said}), order

    winner = min(by_class, key=rank)
    said = by_class[winner]
    confidence = max(each for _, each, _ in said)
    # Spellings of what was merged may have other keys: the one that is sent must have this one.
    names = [name for name, _, _ in said if service_key(name) == key]
    names = names or [name for (name,) in state.execute("SELECT name FROM merged") if service_key(name) == key]
    names = [name for name in names if not is_cleaned(name, winner)] or names
    return ServiceEntity(
        entity_name=preferred_name(names),
        classification=winner,
        confidence=confidence,
        source_doc=min(source for _, each, source in said if each == confidence),
    )


def _sent(state: sqlite3.Connection, key: str) -> ServiceEntity | None:
    row = state.execute(
        "SELECT name, entity_class, confidence, source_doc FROM sent WHERE key = ? AND NOT retracted", (key,)
    ).fetchone()
    return None if row is None else ServiceEntity(*row)


def _row(entity: ServiceEntity) -> tuple[str, str, float, str]:
    return entity.entity_name, entity.classification, entity.confidence, entity.source_doc


def _same(held: ServiceEntity, wanted: ServiceEntity) -> bool:
    # A service may keep confidences with fewer digits than ours.
    alike = abs(held.confidence - wanted.confidence) < 1e-4
    return alike and (held.entity_name, held.classification) == (wanted.entity_name, wanted.classification)


def _block(entity: ServiceEntity) -> tuple[str, str]:
    return alias_block(entity.entity_name, entity.classification)


def _could_alias(one: ServiceEntity, other: ServiceEntity) -> bool:
    return _block(one) == _block(other) and could_alias(one.entity_name, other.entity_name)


def _example(delivery: DeliveryRecord, text: str) -> None:
    if len(delivery.examples) < _MAX_EXAMPLES:
        delivery.examples.append(text)


def _batches(changes: Iterable[_Write], size: int) -> Iterator[list[_Write]]:
    """Batches of up to `size`; in none of them could the service take two entities for one."""
    batches: list[_Batch] = []
    for key, entity in changes:
        batch = next((each for each in batches if each.fits(entity)), None)
        if batch is None:
            batch = _Batch()
            batches.append(batch)
        batch.add(key, entity)
        if len(batch.writes) >= size or len(batches) > _OPEN_BATCHES:
            fullest = max(batches, key=lambda each: len(each.writes))
            batches.remove(fullest)
            yield fullest.writes
    for batch in batches:
        yield batch.writes


@dataclass(eq=False)
class _Batch:
    """A request on its way: what it writes, and its names by what the service could confuse."""

    writes: list[_Write] = field(default_factory=list)
    blocks: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def fits(self, entity: ServiceEntity | None) -> bool:
        if entity is None:
            return True
        return not any(could_alias(entity.entity_name, each) for each in self.blocks.get(_block(entity), ()))

    def add(self, key: str, entity: ServiceEntity | None) -> None:
        self.writes.append((key, entity))
        if entity is not None:
            self.blocks.setdefault(_block(entity), []).append(entity.entity_name)


@contextmanager
def _transaction(state: sqlite3.Connection) -> Iterator[None]:
    state.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        state.execute("ROLLBACK")
        raise
    state.execute("COMMIT")

"""What service-content should hold, what we sent to it, and what still has to be sent: an outbox in one SQLite file.

Belongs here: choosing what to send so that a later write is never a worse one, and comparing with what the service
holds. Does not: the service's wire and rules (`service_content.py`), or which documents count (the ledger's matter).

A node there holds one name, one class and one confidence, and the last write wins. So we keep what every document says
(a claim) and send, for each key, the best of all documents:
- a Person and a Location of one name are one node there: the class with the highest confidence wins, then the one that
  more documents give, then the order of `ENTITY_CLASSES`;
- its confidence is the highest of that class, its document the one that has it (the first by id);
- its name is the preferred spelling of that class, as in our own graph.
Names that differ in more than the service's key says (`Acme, Inc` and `Acme`) are sent together, the best last.

The service has no way to take an entity back: what no document says any more stays there, and is counted as retracted.
"""

import random
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.documents.ledger import DocumentKey, LedgerEntry, Status, extractor_fingerprint
from ec1.errors import DeferredError, PermanentError, RejectedError
from ec1.extraction.results import ENTITY_CLASSES, ExtractionResult
from ec1.graph.model import clean_name, preferred_name
from ec1.graph.service_content import ServiceContentClient, ServiceEntity

if TYPE_CHECKING:
    from ec1.extraction.outbox import Outbox

# How many entities a night looks up one by one.
SAMPLE = 40
_MAX_EXAMPLES = 10
_KEY_ENDS = ".,;:™®©_"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents(stream TEXT, path TEXT, content TEXT, fingerprint TEXT, PRIMARY KEY(stream, path));
CREATE TABLE IF NOT EXISTS claims(stream TEXT, path TEXT, key TEXT, entity_class TEXT, name TEXT, confidence REAL,
  source_doc TEXT, PRIMARY KEY(stream, path, key, entity_class, name)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS claims_by_key ON claims(key);
CREATE TABLE IF NOT EXISTS sent(key TEXT PRIMARY KEY, name TEXT, entity_class TEXT, confidence REAL, source_doc TEXT,
  night TEXT, retracted INTEGER DEFAULT 0);
CREATE TABLE IF NOT EXISTS waiting(key TEXT PRIMARY KEY);
"""


@dataclass
class Delivery:
    """What a night sent, what is left for a later one, and how what we sent compares with what the service holds.

    `differ` and `missing` are of the `looked_up` ones; `held` is None if the service did not say.
    """

    sent: int = 0
    batches: int = 0
    deferred: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    expected: int = 0
    retracted: int = 0
    held: int | None = None
    looked_up: int = 0
    missing: int = 0
    differ: int = 0
    examples: list[str] = field(default_factory=list)
    problem: str | None = None

    def record(self) -> dict[str, Any]:
        return asdict(self)


class ServiceContentStore:
    """The second graph store, for one tenant; `state` is the SQLite file. What has not changed is not sent again."""

    def __init__(self, state: Path, client: ServiceContentClient) -> None:
        self._state = state
        self._client = client

    def deliver(self, ledger: Mapping[DocumentKey, LedgerEntry], outbox: "Outbox", night: str) -> Delivery:
        """Bring the service to what the ledger's documents say, as far as it lets us, and compare.

        Never raises for the service's sake: what it did not take waits for the next night, and `problem` says why.
        """
        delivery = Delivery()
        with self._open() as state:
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
            state.executescript(_SCHEMA)
            yield state
        finally:
            state.close()

    # --- what documents say

    def _claim(
        self,
        state: sqlite3.Connection,
        ledger: Mapping[DocumentKey, LedgerEntry],
        outbox: "Outbox",
        delivery: Delivery,
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
                version = (entry.content_sha256, extractor_fingerprint(entry.fingerprint))
                if entry.status is Status.APPLIED and known.get(key) != version:
                    result = outbox.get(version[1], version[0])
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
        delivery: Delivery,
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
            "INSERT INTO documents VALUES (?, ?, ?, ?)", (*document, result.content_sha256, result.fingerprint)
        )
        claims = self._claims_of(entry, result, delivery)
        state.executemany(
            "INSERT INTO claims VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (*document, each.key, each.classification, each.entity_name, each.confidence, each.source_doc)
                for each in claims
            ],
        )
        state.executemany("INSERT OR IGNORE INTO waiting VALUES (?)", [(each.key,) for each in claims])

    @staticmethod
    def _claims_of(entry: LedgerEntry, result: ExtractionResult, delivery: Delivery) -> list[ServiceEntity]:
        """What one document says: each spelling and class once, with its highest confidence."""
        best: dict[tuple[str, str], ServiceEntity] = {}
        for mention in result.mentions:
            said = ServiceEntity(clean_name(mention.name), mention.entity_class, mention.confidence, entry.document_id)
            try:
                said.check()
            except RejectedError as error:
                delivery.refused[str(error)] = delivery.refused.get(str(error), 0) + 1
                continue
            place = (said.entity_name, said.classification)
            if place not in best or best[place].confidence < said.confidence:
                best[place] = said
        return list(best.values())

    # --- sending

    def _send(self, state: sqlite3.Connection, night: str, delivery: Delivery) -> None:
        """Send what waits, in bounded batches; each batch counts once the service has taken it."""
        for batch in _batches(self._changes(state), self._client.batch_entities):
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

    def _changes(self, state: sqlite3.Connection) -> list[list[tuple[str, ServiceEntity | None]]]:
        """Groups of keys to write, None for a key that nobody claims any more; the keys of a group go in one batch."""
        groups: dict[str, set[str]] = {}
        for (key,) in state.execute("SELECT key FROM waiting").fetchall():
            groups.setdefault(key.rstrip(_KEY_ENDS), set()).add(key)
        changes = []
        for stem in sorted(groups):
            # Keys that a reading of the rule other than ours would take for one: the best of them is written last.
            for (key,) in state.execute(
                "SELECT DISTINCT key FROM claims WHERE key >= ? AND key < ?", (stem, stem + "\U0010ffff")
            ):
                if key.rstrip(_KEY_ENDS) == stem:
                    groups[stem].add(key)
            wanted = [(key, _best(state, key)) for key in sorted(groups[stem])]
            if any(entity is None or _sent(state, key) != entity for key, entity in wanted):
                changes.append(sorted(wanted, key=lambda each: (each[1].confidence if each[1] else -1.0, each[0])))
            else:
                # Said again as it was: there is nothing to write.
                state.executemany("DELETE FROM waiting WHERE key = ?", [(key,) for key, _ in wanted])
        return changes

    # --- comparing

    def _compare(self, state: sqlite3.Connection, night: str, delivery: Delivery) -> None:
        """Count, and look some entities up. What the service lost is queued to be sent again."""
        delivery.held = self._client.count()
        ours = [row[0] for row in state.execute("SELECT key FROM sent WHERE NOT retracted ORDER BY key")]
        sample = ours if len(ours) <= SAMPLE else random.Random(night).sample(ours, SAMPLE)
        lost = []
        for key in sample:
            wanted = _sent(state, key)
            assert wanted is not None
            held = [each for each in self._client.find(wanted.entity_name) if each.key == key]
            delivery.looked_up += 1
            if not held:
                lost.append(key)
                _example(delivery, f"{wanted.entity_name}: not there")
            elif not any(_same(each, wanted) for each in held):
                delivery.differ += 1
                found = held[0]
                _example(
                    delivery,
                    f"{wanted.entity_name} ({wanted.classification}, {wanted.confidence:g}) is there as "
                    f"{found.entity_name} ({found.classification}, {found.confidence:g})",
                )
        delivery.missing = len(lost)
        if len(lost) * 2 > len(sample) and delivery.held < len(ours):
            # It was emptied or restored: the sample stands for the rest.
            lost = ours
        with _transaction(state):
            state.executemany("DELETE FROM sent WHERE key = ?", [(key,) for key in lost])
            state.executemany("INSERT OR IGNORE INTO waiting VALUES (?)", [(key,) for key in lost])


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
    return ServiceEntity(
        entity_name=preferred_name(name for name, _, _ in said),
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


def _example(delivery: Delivery, text: str) -> None:
    if len(delivery.examples) < _MAX_EXAMPLES:
        delivery.examples.append(text)


def _batches(
    groups: Iterable[list[tuple[str, ServiceEntity | None]]], size: int
) -> Iterator[list[tuple[str, ServiceEntity | None]]]:
    """Whole groups, about `size` entities a batch."""
    batch: list[tuple[str, ServiceEntity | None]] = []
    for group in groups:
        if batch and len(batch) + len(group) > size:
            yield batch
            batch = []
        batch = batch + group
    if batch:
        yield batch


@contextmanager
def _transaction(state: sqlite3.Connection) -> Iterator[None]:
    state.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        state.execute("ROLLBACK")
        raise
    state.execute("COMMIT")

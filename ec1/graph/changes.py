"""Letting documents count: what one transaction takes back, writes and settles.

Belongs here: the rules by which a document's news become rows. Does not: the database file (`database.py`), publishing
and resolution (`ladybug_store.py`), which documents are read (`ec1/documents/`).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from ec1.documents.ledger import DocumentKey, Status
from ec1.errors import PermanentError
from ec1.extraction.results import ExtractionResult, Mention
from ec1.graph import tables
from ec1.graph.database import BATCH_MENTIONS, GraphDatabase
from ec1.graph.model import clean_name, entity_key, preferred_name
from ec1.graph.resolution.owners import is_own_name, owners
from ec1.graph.resolution.profile import PERSON

_BATCH_DOCUMENTS = 1_000
_ASKED_ONE_BY_ONE = 16


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
class Change:
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

    @classmethod
    def of(cls, key: DocumentKey, document_id: str, result: ExtractionResult) -> "Change":
        """What an extraction says of a document. Raises PermanentError for a result that cannot be meant."""
        # A deferred document may have mentions already: of the chunks that were answered.
        complete = result.status in ("complete", "deferred")
        keys = _Keys(result) if complete else None
        return cls(
            key=key,
            document_id=document_id,
            content_sha256=result.content_sha256,
            fingerprint=result.fingerprint,
            outcome=result.status,
            reason=result.reason,
            mentions=_mention_rows(result, keys) if keys else (),
            traits=_trait_rows(result, keys) if keys else (),
            relations=_relation_rows(result, keys) if keys else (),
        )


@dataclass
class _Plan:
    """What one change does to one document's node."""

    change: Change
    node: dict[str, Any]
    old: dict[str, Any] | None
    retract: int = 0
    mentions: tuple[dict[str, Any], ...] = ()


@dataclass
class _Touched:
    """Names that entities gained and lost in one transaction, by entity key, and the graph's figures after it."""

    totals: tables.GraphTotals
    gained: dict[str, set[str]] = field(default_factory=dict)
    lost: dict[str, set[str]] = field(default_factory=dict)

    def gain(self, entity: str, name: str) -> None:
        _note_name(self.gained, entity, name)

    def lose(self, entity: str, name: str) -> None:
        _note_name(self.lost, entity, name)


class Changes:
    """Applies changes to an open database."""

    def __init__(self, database: GraphDatabase) -> None:
        self._db = database
        self._relates = False
        """Whether any document states a relation: where none does, there is nothing to take back."""
        self._resolved = False
        """Whether entities were resolved: then it is noted what resolution has not seen."""

    def apply(self, changes: Iterable[Change], night: str, quarantine_after: int) -> list[Applied]:
        self._look()
        done: list[Applied] = []
        for batch in _batches(changes):
            self._db.make_room()
            done.extend(self._apply_batch(batch, night, quarantine_after))
        return done

    def rewrite(self, changes: Iterable[Change]) -> None:
        """Let documents that count say the same of other entities; their nodes stay as they are."""
        self._look()
        for batch in _batches(changes):
            self._db.make_room()
            nodes = self._document_nodes([tables.document_key(change.key) for change in batch])
            plans = []
            for change in batch:
                node = nodes[tables.document_key(change.key)]
                plans.append(_Plan(change, node, node, node["mentions"], change.mentions))
            self._write(plans)

    def _look(self) -> None:
        self._db.check_usable()
        states = "MATCH (:Entity)-[r:RELATES]->(:Entity) RETURN r.chunk LIMIT 1"
        self._relates = bool(self._db.execute(states))
        self._resolved = "resolution" in tables.meta(self._db.connection)

    def fill(self, nodes: Sequence[dict[str, Any]], changes: Iterable[Change]) -> None:
        """Apply changes to an empty graph; afterwards its documents' nodes are `nodes`."""
        self.apply(changes, "", 1)
        with self._db.transaction():
            for start in range(0, len(nodes), BATCH_MENTIONS):
                self._db.set_nodes("Document", tables.DOCUMENT_COLUMNS, list(nodes[start : start + BATCH_MENTIONS]))
            self._keep(tables.recount(self._db.connection), ())

    def _apply_batch(self, batch: list[Change], night: str, quarantine_after: int) -> list[Applied]:
        nodes = self._document_nodes([tables.document_key(change.key) for change in batch])
        plans = [
            self._plan(change, nodes.get(tables.document_key(change.key)), night, quarantine_after) for change in batch
        ]
        todo = [plan for plan in plans if isinstance(plan, _Plan)]
        if todo:
            self._write(todo)
        return [
            plan
            if isinstance(plan, Applied)
            else Applied(plan.change.key, Status(plan.node["status"]), True, len(plan.mentions), plan.retract)
            for plan in plans
        ]

    def _write(self, plans: list[_Plan]) -> None:
        """Write the news of documents, in one transaction."""
        with self._db.transaction():
            touched = _Touched(tables.totals(self._db.connection))
            self._take_back([plan for plan in plans if plan.retract], touched)
            self._db.write_nodes("Document", tables.DOCUMENT_COLUMNS, [plan.node for plan in plans if plan.old is None])
            self._db.set_nodes(
                "Document", tables.DOCUMENT_COLUMNS, [plan.node for plan in plans if plan.old is not None]
            )
            self._write_entities(plans, touched)
            self._write_mentions(plans, touched.totals)
            self._write_traits(plans, touched.totals)
            self._write_relations(plans, touched.totals)
            self._settle(touched)
            self._note([plan.node["key"] for plan in plans if plan.retract or plan.mentions])
            self._keep(touched.totals, plans)
            self._db.written += sum(len(plan.mentions) + plan.retract for plan in plans)

    def _note(self, documents: list[str]) -> None:
        """Note whose news resolution has to look at (`incremental.py`), in the same transaction as the news."""
        if self._resolved:
            news = [{"key": key} for key in documents]
            query = "LOAD FROM $batch MATCH (u:Unresolved {key: row_key}) RETURN u.key AS key"
            noted = {row["key"] for row in self._db.load(query, news)}
            self._db.write_nodes("Unresolved", ("key",), [row for row in news if row["key"] not in noted])

    def _keep(self, totals: tables.GraphTotals, plans: Sequence[_Plan]) -> None:
        """Count the documents, and keep the figures in the same transaction as what they are of."""
        for plan in plans:
            if plan.old is not None:
                totals.remove("document", plan.old)
            totals.add("document", plan.node)
        self._db.execute("MATCH (m:Meta {name: 'totals'}) DELETE m")
        self._db.execute("CREATE (:Meta {name: 'totals', value: $totals})", {"totals": totals.to_text()})

    def _plan(self, change: Change, old: dict[str, Any] | None, night: str, quarantine_after: int) -> _Plan | Applied:
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
            return _Plan(change, node, old, retract=held)
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
            return _Plan(change, node, old, retract=held, mentions=change.mentions)
        if change.outcome == "deferred":
            node["attempts"] = 1 + (old["attempts"] if old is not None and same and old["status"] == "deferred" else 0)
            if node["attempts"] >= quarantine_after:
                node["status"] = Status.QUARANTINED
            more = node["applied_content"] == change.content_sha256 and len(change.mentions) > held
            if change.mentions and (node["applied_content"] is None or more):
                # Better a part of it than nothing, and more than less, until all of it counts; an older version of the
                # document that counts as a whole is better still.
                node.update(
                    mentions=len(change.mentions),
                    applied_id=change.document_id,
                    applied_content=change.content_sha256,
                    applied_night=night,
                )
                return _Plan(change, node, old, retract=held, mentions=change.mentions)
            return _Plan(change, node, old)
        if node["applied_content"] == change.content_sha256:
            return _Plan(change, node, old)
        node.update(mentions=0, applied_id=None, applied_content=None, applied_night=None)
        return _Plan(change, node, old, retract=held)

    @staticmethod
    def _empty_node(key: DocumentKey) -> dict[str, Any]:
        node: dict[str, Any] = dict.fromkeys(tables.DOCUMENT_COLUMNS)
        path = tables.stored_path(key.path)
        return node | {"key": tables.document_key(key), "stream": key.stream, "path": path, "mentions": 0}

    def _document_nodes(self, keys: list[str]) -> dict[str, dict[str, Any]]:
        returned = ", ".join(f"d.{name} AS {name}" for name in tables.DOCUMENT_COLUMNS)
        found = self._db.load(
            f"LOAD FROM $batch MATCH (d:Document {{key: row_key}}) RETURN {returned}",
            [{"key": key} for key in keys],
        )
        return {row["key"]: row for row in found}

    def _take_back(self, plans: Sequence[_Plan], touched: _Touched) -> None:
        for plan in plans:
            match = {"key": plan.node["key"]}
            if self._relates:
                # An entity that is mentioned twice is reached twice, and a relation goes once.
                for row in self._db.execute(
                    "MATCH (d:Document {key: $key})-[:MENTIONS]->(e:Entity) WITH DISTINCT e "
                    "MATCH (e)-[r:RELATES]->(o:Entity) WHERE r.document = $key DELETE r "
                    f"RETURN e.key AS subject, o.key AS object, {_returned('r', tables.RELATION_COLUMNS)}",
                    match,
                ):
                    touched.totals.remove("relation", row)
            gone = self._db.execute(
                "MATCH (d:Document {key: $key})-[m:MENTIONS]->(e:Entity) DELETE m "
                f"RETURN d.key AS document, e.key AS entity, {_returned('m', tables.MENTION_COLUMNS)}",
                match,
            )
            self._check_count(plan.retract, len(gone), f"of {plan.node['key']} were taken back")
            for row in gone:
                touched.lose(row["entity"], row["name"])
                touched.totals.remove("mention", row)
            for row in self._db.execute(
                f"{tables.TRAITS_OF} DELETE t "
                "RETURN d.key AS document, e.key AS entity, t.kind AS kind, t.value AS value",
                match,
            ):
                touched.totals.remove("trait", row)

    def _check_count(self, wanted: int, written: int, what: str) -> None:
        """A MATCH that finds nothing writes nothing and says nothing, so what was written is counted."""
        if written != wanted:
            raise PermanentError(
                f"{self._db.path}: {written} mentions {what} where {wanted} should be; nothing was kept"
            )

    def _write_entities(self, plans: Sequence[_Plan], touched: _Touched) -> None:
        """Create the entities that are missing; the preferred spelling of the others is settled by what they gained."""
        classes: dict[str, str] = {}
        for plan in plans:
            for mention in plan.mentions:
                classes[mention["entity"]] = mention["entity_class"]
                touched.gain(mention["entity"], mention["name"])
        known = {row["key"]: row["name"] for row in self._entity_names(sorted(classes))}
        fresh = [
            {"key": key, "name": preferred_name(touched.gained[key]), "entity_class": classes[key]}
            for key in sorted(classes)
            if key not in known
        ]
        self._db.write_nodes("Entity", tables.ENTITY_COLUMNS, fresh)
        for row in fresh:
            touched.totals.add("entity", row)
        better = []
        for key, name in known.items():
            if touched.gained[key] != {name} and name not in touched.lost.get(key, ()):
                best = preferred_name({name, *touched.gained[key]})
                if best != name:
                    better.append({"key": key, "name": best})
        self._rename(better, known, touched)

    def _rename(self, renamed: list[dict[str, Any]], names: Mapping[str, str], touched: _Touched) -> None:
        self._db.set_nodes("Entity", ("key", "name"), renamed)
        for row in renamed:
            touched.totals.remove("entity", _entity_row(row["key"], names[row["key"]]))
            touched.totals.add("entity", _entity_row(row["key"], row["name"]))

    def _write_mentions(self, plans: Sequence[_Plan], totals: tables.GraphTotals) -> None:
        mentions = [mention for plan in plans for mention in plan.mentions]
        if not mentions:
            return
        values = ", ".join(f"{name}: row_{name}" for name in tables.MENTION_COLUMNS)
        columns = {name: [mention[name] for mention in mentions] for name in ("entity", *tables.MENTION_COLUMNS)}
        columns["document"] = [plan.node["key"] for plan in plans for _ in plan.mentions]
        (written,) = self._db.load_columns(
            "LOAD FROM $batch MATCH (d:Document {key: row_document}) MATCH (e:Entity {key: row_entity}) "
            f"CREATE (d)-[:MENTIONS {{{values}}}]->(e) RETURN count(*) AS n",
            columns,
        )
        self._check_count(len(mentions), written["n"], "were written")
        for plan in plans:
            for mention in plan.mentions:
                values_of = {name: mention[name] for name in ("entity", *tables.MENTION_COLUMNS)}
                totals.add("mention", {"document": plan.node["key"], **values_of})

    def _write_traits(self, plans: Sequence[_Plan], totals: tables.GraphTotals) -> None:
        traits = [
            {"document": plan.node["key"], **trait} for plan in plans if plan.mentions for trait in plan.change.traits
        ]
        self._db.load(
            "LOAD FROM $batch MATCH (d:Document {key: row_document}) MATCH (e:Entity {key: row_entity}) "
            "CREATE (d)-[:TRAIT {kind: row_kind, value: row_value}]->(e)",
            traits,
        )
        for trait in traits:
            totals.add("trait", trait)

    def _write_relations(self, plans: Sequence[_Plan], totals: tables.GraphTotals) -> None:
        relations = [
            {"document": plan.node["key"], **relation}
            for plan in plans
            if plan.mentions
            for relation in plan.change.relations
        ]
        values = ", ".join(f"{name}: row_{name}" for name in tables.RELATION_COLUMNS)
        self._db.load(
            "LOAD FROM $batch MATCH (a:Entity {key: row_subject}) MATCH (b:Entity {key: row_object}) "
            f"CREATE (a)-[:RELATES {{{values}}}]->(b)",
            relations,
        )
        for relation in relations:
            totals.add("relation", relation)
        self._relates = self._relates or bool(relations)

    def _settle(self, touched: _Touched) -> None:
        """Remove entities that nothing mentions any more, and find the preferred spelling of those that lost theirs."""
        names = {row["key"]: row["name"] for row in self._entity_names(sorted(touched.lost))}
        doubtful = [key for key in names if names[key] in touched.lost[key] - touched.gained.get(key, set())]
        spellings = self._spellings(doubtful)
        gone, renamed = [], []
        for key in sorted(touched.lost):
            held = spellings.get(key, {names[key], *touched.gained.get(key, ())})
            if not held:
                gone.append(key)
            elif (best := preferred_name(held)) != names[key]:
                renamed.append({"key": key, "name": best})
        for key in gone:
            self._db.execute("MATCH (e:Entity {key: $key}) DETACH DELETE e", {"key": key})
            touched.totals.remove("entity", _entity_row(key, names[key]))
        self._rename(renamed, names, touched)

    def _spellings(self, keys: Sequence[str]) -> dict[str, set[str]]:
        """How the documents spell some entities. A mention is stored with its document, so each question goes through
        the neighbours of all documents, and many of them are dearer than to read all mentions."""
        found: dict[str, set[str]] = {key: set() for key in keys}
        if len(keys) > _ASKED_ONE_BY_ONE:
            import pyarrow as pa
            import pyarrow.compute as pc

            for page in tables.mention_tables(self._db.connection, ("name",)):
                ours = page.filter(pc.is_in(page["entity"], pa.array(keys, pa.string())))
                for key, name in zip(ours["entity"].to_pylist(), ours["name"].to_pylist(), strict=True):
                    _note_name(found, key, name)
            return found
        query = "MATCH (e:Entity {key: $key})<-[m:MENTIONS]-(:Document) RETURN DISTINCT m.name AS name"
        for key in keys:
            for row in self._db.execute(query, {"key": key}):
                _note_name(found, key, row["name"])
        return found

    def _entity_names(self, keys: list[str]) -> list[dict[str, Any]]:
        return self._db.load(
            "LOAD FROM $batch MATCH (e:Entity {key: row_key}) RETURN e.key AS key, e.name AS name",
            [{"key": key} for key in keys],
        )


def _note_name(names: dict[str, set[str]], entity: str, name: str) -> None:
    """A short name that an entity owns is none of its spellings; the document has its full name as well."""
    found = names.setdefault(entity, set())
    if is_own_name(entity, name):
        found.add(name)


def _returned(name: str, columns: tuple[str, ...]) -> str:
    return ", ".join(f"{name}.{column} AS {column}" for column in columns)


def _entity_row(key: str, name: str) -> dict[str, Any]:
    return {"key": key, "name": name, "entity_class": key.partition(":")[0]}


def _says_nothing_new(change: Change, old: dict[str, Any], same: bool, night: str) -> bool:
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


class _Keys:
    """The entities that a result's names stand for; short names of people stand for their owners (`owners.py`)."""

    def __init__(self, result: ExtractionResult) -> None:
        people = (each.name for each in result.mentions if each.entity_class == PERSON)
        self._owners = owners(name for each in people if (name := clean_name(each)))

    def __call__(self, name: str, entity_class: str) -> str:
        owner = self._owners.get(clean_name(name)) if entity_class == PERSON else None
        return owner or entity_key(name, entity_class)


def _mention_rows(result: ExtractionResult, key_of: _Keys) -> tuple[dict[str, Any], ...]:
    """The result's mentions, one per entity and place: overlapping chunks may both have found it."""
    models = {answer.chunk: answer.model for answer in result.answers}
    best: dict[tuple[str, int, int], Mention] = {}
    for mention in result.mentions:
        if not math.isfinite(mention.confidence):
            raise PermanentError(f"the result for {result.content_sha256[:12]} has a confidence that is not a number")
        if not clean_name(mention.name):
            continue
        place = (key_of(mention.name, mention.entity_class), mention.start, mention.end)
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


def _trait_rows(result: ExtractionResult, key_of: _Keys) -> tuple[dict[str, Any], ...]:
    """The result's traits of entities that it also mentions."""
    if not result.traits:
        return ()
    mentioned = {key_of(mention.name, mention.entity_class) for mention in result.mentions}
    found = {
        (key, trait.kind, clean_name(trait.value))
        for trait in result.traits
        if (key := key_of(trait.name, trait.entity_class)) in mentioned
    }
    return tuple({"entity": entity, "kind": kind, "value": value} for entity, kind, value in sorted(found))


def _relation_rows(result: ExtractionResult, key_of: _Keys) -> tuple[dict[str, Any], ...]:
    """The result's relations between entities that it also mentions."""
    if not result.relations:
        return ()
    models = {answer.chunk: answer.model for answer in result.answers}
    mentioned = {key_of(mention.name, mention.entity_class) for mention in result.mentions}
    found = []
    for each in result.relations:
        subject, target = key_of(each.subject, each.subject_class), key_of(each.object, each.object_class)
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


def _batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Whole documents, no document twice in a batch."""
    batch: list[Change] = []
    keys: set[DocumentKey] = set()
    mentions = 0
    for change in changes:
        full = len(batch) >= _BATCH_DOCUMENTS or mentions + len(change.mentions) > BATCH_MENTIONS
        if batch and (full or change.key in keys):
            yield batch
            batch, keys, mentions = [], set(), 0
        batch.append(change)
        keys.add(change.key)
        mentions += len(change.mentions)
    if batch:
        yield batch

"""Letting documents count: what one transaction takes back, writes and settles.

Belongs here: the statements of one transaction. Does not: what a document says (`news.py`), what that does to its node
(`document_plans.py`), the database file (`database.py`), publishing and resolution (`ladybug_store.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ec1.documents.ledger import DocumentKey, Status
from ec1.errors import PermanentError
from ec1.graph import tables
from ec1.graph.database import BATCH_MENTIONS, GraphDatabase
from ec1.graph.document_plans import Applied, DocumentPlan, planned
from ec1.graph.model import preferred_name
from ec1.graph.news import Change
from ec1.graph.resolution.owners import is_own_name

_BATCH_DOCUMENTS = 1_000
_ASKED_ONE_BY_ONE = 16


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
                plans.append(DocumentPlan(change, node, node, node["mentions"], change.mentions))
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
            planned(change, nodes.get(tables.document_key(change.key)), night, quarantine_after) for change in batch
        ]
        todo = [plan for plan in plans if isinstance(plan, DocumentPlan)]
        if todo:
            self._write(todo)
        return [
            plan
            if isinstance(plan, Applied)
            else Applied(plan.change.key, Status(plan.node["status"]), True, len(plan.mentions), plan.retract)
            for plan in plans
        ]

    def _write(self, plans: list[DocumentPlan]) -> None:
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

    def _keep(self, totals: tables.GraphTotals, plans: Sequence[DocumentPlan]) -> None:
        """Count the documents, and keep the figures in the same transaction as what they are of."""
        for plan in plans:
            if plan.old is not None:
                totals.remove("document", plan.old)
            totals.add("document", plan.node)
        self._db.execute("MATCH (m:Meta {name: 'totals'}) DELETE m")
        self._db.execute("CREATE (:Meta {name: 'totals', value: $totals})", {"totals": totals.to_text()})

    def _document_nodes(self, keys: list[str]) -> dict[str, dict[str, Any]]:
        returned = ", ".join(f"d.{name} AS {name}" for name in tables.DOCUMENT_COLUMNS)
        found = self._db.load(
            f"LOAD FROM $batch MATCH (d:Document {{key: row_key}}) RETURN {returned}",
            [{"key": key} for key in keys],
        )
        return {row["key"]: row for row in found}

    def _take_back(self, plans: Sequence[DocumentPlan], touched: _Touched) -> None:
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

    def _write_entities(self, plans: Sequence[DocumentPlan], touched: _Touched) -> None:
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

    def _write_mentions(self, plans: Sequence[DocumentPlan], totals: tables.GraphTotals) -> None:
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

    def _write_traits(self, plans: Sequence[DocumentPlan], totals: tables.GraphTotals) -> None:
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

    def _write_relations(self, plans: Sequence[DocumentPlan], totals: tables.GraphTotals) -> None:
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
        the neighbours of all documents, and many of them cost more than reading all mentions."""
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

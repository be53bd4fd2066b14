"""Resolution as tables: what it is made from, and how it lies beside what the documents said.

Belongs here: row shapes and reads that the live and the published database share. Does not: deciding what is one thing
(`resolution.py`), or transactions (`ladybug_store.py`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from ec1.files import digest_of
from ec1.graph import tables
from ec1.graph.resolution.clusters import VERSION, Band, Cluster, Link, Resolution
from ec1.graph.resolution.overrides import Overrides
from ec1.graph.resolution.profile import KINDS
from ec1.graph.resolution.state import Statements

CLUSTER_COLUMNS = ("key", "name", "entity_class", "members")
LINK_COLUMNS = ("one", "other", "band", "score", "reasons", "veto")
_MEMBERS = (
    "LOAD FROM $batch MATCH (e:Entity {key: row_entity}) MATCH (c:Cluster {key: row_cluster}) "
    "CREATE (e)-[:MEMBER_OF]->(c)"
)
_LINKS = (
    "LOAD FROM $batch MATCH (a:Entity {key: row_one}) MATCH (b:Entity {key: row_other}) "
    "CREATE (a)-[:SAME_AS {band: row_band, score: row_score, reasons: row_reasons, veto: row_veto}]->(b)"
)


@dataclass(frozen=True)
class Counts:
    """How many clusters there are, and links by band."""

    clusters: int
    links: dict[str, int]


def basis(graph_digest: str, overrides: Overrides) -> str:
    """What a resolution was made from, as a digest."""
    return digest_of([VERSION, graph_digest, overrides.model_dump(mode="json")])


class ResolutionRecord(BaseModel):
    """What the graph says about its resolution, kept with it in one transaction."""

    basis: str
    version: int
    statistics: str
    """Digest of the statistics that its weights come from."""
    token: str
    """Names the state (`state.py`) that belongs to it."""
    size: int
    """Entities when the statistics were taken."""
    turned: int = 0
    """Entities that came or went since."""

    @property
    def digest(self) -> str:
        return digest_of([self.basis, self.statistics])


def record(connection: Any) -> ResolutionRecord | None:
    """The record of the resolution that is kept; None if there is none, or one of an earlier program."""
    try:
        return ResolutionRecord.model_validate_json(tables.meta(connection).get("resolution", ""))
    except ValidationError:
        return None


def names(connection: Any) -> Iterator[tuple[str, str, str]]:
    """Every mention as (entity, document, name)."""
    for page in tables.mention_tables(connection, ("name",)):
        yield from zip(*(page[column].to_pylist() for column in ("entity", "document", "name")), strict=True)


def traits(connection: Any) -> Iterator[tuple[str, str, str, str]]:
    """Every trait that is weighed, as (entity, document, kind, value)."""
    for row in tables.all_traits(connection):
        if row["kind"] in KINDS:
            yield row["entity"], row["document"], row["kind"], row["value"]


def statements(connection: Any, documents: Iterable[str]) -> dict[str, Statements]:
    """What documents say now, by key; empty for one that is gone."""
    spelt = "MATCH (d:Document {key: $key})-[m:MENTIONS]->(e:Entity) RETURN e.key AS entity, m.name AS name"
    shown = f"{tables.TRAITS_OF} RETURN e.key AS entity, t.kind AS kind, t.value AS v"
    return {
        key: Statements(
            frozenset((row["entity"], row["name"]) for row in tables.rows(connection, spelt, {"key": key})),
            frozenset(
                (row["entity"], row["kind"], row["v"])
                for row in tables.rows(connection, shown, {"key": key})
                if row["kind"] in KINDS
            ),
        )
        for key in documents
    }


def cluster_rows(clusters: Iterable[Cluster]) -> list[dict[str, Any]]:
    """The nodes of table Cluster."""
    return [
        {"key": each.key, "name": each.name, "entity_class": each.entity_class, "members": len(each.members)}
        for each in clusters
    ]


def edge_rows(links: Iterable[Link], clusters: Iterable[Cluster]) -> list[tuple[str, list[dict[str, Any]]]]:
    """The edges, as queries over `$batch` with their rows."""
    members = [{"entity": member, "cluster": each.key} for each in clusters for member in each.members]
    return [(_MEMBERS, members), (_LINKS, [{**asdict(link), "band": str(link.band)} for link in links])]


def counts(connection: Any) -> Counts:
    """How many links and clusters there are."""
    bands = tables.rows(connection, "MATCH (:Entity)-[s:SAME_AS]->(:Entity) RETURN s.band AS band, count(*) AS n")
    (nodes,) = tables.rows(connection, "MATCH (c:Cluster) RETURN count(*) AS n")
    return Counts(nodes["n"], {row["band"]: row["n"] for row in bands})


def joined(connection: Any) -> dict[str, int]:
    """By class, by how many there are fewer things than entities, since some are one."""
    query = "MATCH (c:Cluster) RETURN c.entity_class AS entity_class, sum(c.members) - count(*) AS n"
    return {row["entity_class"]: int(row["n"]) for row in tables.rows(connection, query)}


def read(connection: Any) -> Resolution:
    """The resolution that is kept; empty if there is none. What overrides were unused is not kept."""
    return Resolution(tuple(sorted(_links(connection))), clusters(connection))


def clusters(connection: Any) -> tuple[Cluster, ...]:
    """All clusters, sorted."""
    members: dict[str, list[str]] = defaultdict(list)
    for row in tables.rows(connection, "MATCH (e:Entity)-[:MEMBER_OF]->(c:Cluster) RETURN e.key AS e, c.key AS c"):
        members[row["c"]].append(row["e"])
    columns = ", ".join(f"c.{name} AS {name}" for name in CLUSTER_COLUMNS)
    found = [
        Cluster(row["key"], row["name"], row["entity_class"], tuple(sorted(members[row["key"]])))
        for row in tables.rows(connection, f"MATCH (c:Cluster) RETURN {columns}")
    ]
    return tuple(sorted(found))


def links_of(connection: Any, key: str) -> list[Link]:
    """The links of one entity, the best first."""
    found = _links(connection, "{key: $key}", "", {"key": key}) + _links(connection, "", "{key: $key}", {"key": key})
    return sorted(found, key=lambda link: (-link.score, link))


def cluster_of(connection: Any, key: str) -> Cluster | None:
    """The cluster that an entity is in, or None if it is in none."""
    found = tables.rows(
        connection,
        "MATCH (:Entity {key: $key})-[:MEMBER_OF]->(c:Cluster)<-[:MEMBER_OF]-(e:Entity) "
        "RETURN c.key AS key, c.name AS name, c.entity_class AS entity_class, e.key AS member",
        {"key": key},
    )
    if not found:
        return None
    first = found[0]
    # The path back to the entity itself may or may not be among the rows.
    members = tuple(sorted({key, *(row["member"] for row in found)}))
    return Cluster(first["key"], first["name"], first["entity_class"], members)


def _links(
    connection: Any,
    one: str = "",
    other: str = "",
    parameters: dict[str, Any] | None = None,
) -> list[Link]:
    found = tables.rows(
        connection,
        f"MATCH (a:Entity {one})-[s:SAME_AS]->(b:Entity {other}) RETURN a.key AS one, b.key AS other, "
        f"s.band AS band, s.score AS score, s.reasons AS reasons, s.veto AS veto",
        parameters,
    )
    return [Link(**row | {"band": Band(row["band"])}) for row in found]

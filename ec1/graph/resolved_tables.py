"""Resolution as tables: what it is made from, and how it lies beside what the documents said.

Belongs here: row shapes and reads that the live and the published database share. Does not: deciding what is one thing
(`resolution.py`), or transactions (`ladybug_store.py`).
"""

from collections import defaultdict
from dataclasses import asdict
from typing import Any

from ec1.files import digest_of
from ec1.graph import tables
from ec1.graph.overrides import Overrides
from ec1.graph.resolution import VERSION, Band, Cluster, Link, Resolution
from ec1.graph.scoring import KINDS, Profile

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


def basis(graph_digest: str, overrides: Overrides) -> str:
    """What a resolution was made from, as a digest."""
    return digest_of([VERSION, graph_digest, overrides.model_dump(mode="json")])


def profiles(connection: Any) -> list[Profile]:
    """Every entity with its evidence. Memory grows with the graph: about 100 bytes a mention."""
    names: dict[str, set[str]] = defaultdict(set)
    documents: dict[str, set[str]] = defaultdict(set)
    for page in tables.mention_tables(connection, ("name",)):
        columns = (page[column].to_pylist() for column in ("entity", "name", "document"))
        for entity_key, name, document in zip(*columns, strict=True):
            names[entity_key].add(name)
            documents[entity_key].add(document)
    traits: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for trait in tables.all_traits(connection):
        if trait["kind"] in KINDS:
            traits[trait["entity"]][trait["kind"]].add(trait["value"])
    return [
        Profile(
            entity["key"],
            entity["entity_class"],
            frozenset(names[entity["key"]] or {entity["name"]}),
            {kind: frozenset(values) for kind, values in traits.get(entity["key"], {}).items()},
            frozenset(documents[entity["key"]]),
        )
        for entity in tables.all_entities(connection)
    ]


def cluster_rows(resolution: Resolution) -> list[dict[str, Any]]:
    """The nodes of table Cluster."""
    return [
        {"key": each.key, "name": each.name, "entity_class": each.entity_class, "members": len(each.members)}
        for each in resolution.clusters
    ]


def edge_rows(resolution: Resolution) -> list[tuple[str, list[dict[str, Any]]]]:
    """The edges, as queries over `$batch` with their rows."""
    members = [{"entity": member, "cluster": each.key} for each in resolution.clusters for member in each.members]
    links = [{**asdict(link), "band": str(link.band)} for link in resolution.links]
    return [(_MEMBERS, members), (_LINKS, links)]


def read(connection: Any) -> Resolution:
    """The resolution that is kept; empty if there is none. What overrides were unused is not kept."""
    members: dict[str, list[str]] = defaultdict(list)
    for row in tables.rows(connection, "MATCH (e:Entity)-[:MEMBER_OF]->(c:Cluster) RETURN e.key AS e, c.key AS c"):
        members[row["c"]].append(row["e"])
    columns = ", ".join(f"c.{name} AS {name}" for name in CLUSTER_COLUMNS)
    clusters = [
        Cluster(row["key"], row["name"], row["entity_class"], tuple(sorted(members[row["key"]])))
        for row in tables.rows(connection, f"MATCH (c:Cluster) RETURN {columns}")
    ]
    return Resolution(tuple(sorted(_links(connection))), tuple(sorted(clusters)))


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


def _links(connection: Any, one: str = "", other: str = "", parameters: dict[str, Any] | None = None) -> list[Link]:
    found = tables.rows(
        connection,
        f"MATCH (a:Entity {one})-[s:SAME_AS]->(b:Entity {other}) RETURN a.key AS one, b.key AS other, "
        "s.band AS band, s.score AS score, s.reasons AS reasons, s.veto AS veto",
        parameters,
    )
    return [Link(**row | {"band": Band(row["band"])}) for row in found]

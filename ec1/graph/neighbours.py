"""What stands around an entity in the published graph, and that as GraphML or as a page to look at.

Belongs here: the neighbourhood and its forms. Does not: reading one entity (`reader.py`).
"""

import html
import math
import zlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.files import write_atomic
from ec1.graph.model import Entity
from ec1.graph.reader import GraphReader

if TYPE_CHECKING:
    import networkx as nx

MAX_NODES = 500
_COLOURS = {
    "Person": "#4477aa", "Company": "#cc6677", "Project": "#117733", "Account": "#ddaa33", "Location": "#999999",
}  # fmt: skip
# For classes that are not the contract's: told apart from those colours, and from each other by the name alone.
_OWN_COLOURS = ("#66ccee", "#aa3377", "#bbcc33", "#ee8866", "#332288", "#44aa99", "#882255", "#999933")
_TOGETHER = "mentioned together"
_NEXT = "OPTIONAL MATCH (b)-[:MEMBER_OF]->(c:Cluster)"
_COLUMNS = (
    "coalesce(c.key, b.key) AS key, coalesce(c.name, b.name) AS name, "
    "coalesce(c.entity_class, b.entity_class) AS entity_class"
)


@dataclass(frozen=True, order=True)
class Neighbour:
    """An entity and how it stands to the one that was asked about: `how` is a stated relation or `mentioned together`;
    `documents` is in how many documents that is so."""

    key: str
    name: str
    entity_class: str
    how: str
    documents: int


def neighbours(reader: GraphReader, entity: Entity, *, limit: int = 50) -> list[Neighbour]:
    """What is next to an entity and all that is one with it: what documents state, then what is mentioned together with
    it most often, `limit` of those at most. A neighbour that is several in one is there once."""
    found: dict[tuple[str, str], Neighbour] = {}
    for member in entity.members or (entity.key,):
        for pattern, label in (("-[r:RELATES]->", "{}"), ("<-[r:RELATES]-", "is the object of {}")):
            for row in reader.rows(
                f"MATCH (:Entity {{key: $key}}){pattern}(b:Entity) {_NEXT} "
                f"RETURN {_COLUMNS}, r.relation AS relation, count(DISTINCT r.document) AS documents",
                {"key": member},
            ):
                how = label.format(row.pop("relation"))
                before = found.get((row["key"], how))
                row["documents"] += before.documents if before else 0
                found[row["key"], how] = Neighbour(**row, how=how)
    one = "(:Cluster {key: $key})<-[:MEMBER_OF]-(:Entity)" if entity.members else "(:Entity {key: $key})"
    for row in reader.rows(
        f"MATCH {one}<-[:MENTIONS]-(d:Document) WITH DISTINCT d MATCH (d)-[:MENTIONS]->(b:Entity) {_NEXT} "
        f"WITH {_COLUMNS}, count(DISTINCT d.key) AS documents WHERE key <> $key "
        f"RETURN key, name, entity_class, documents ORDER BY documents DESC, key LIMIT {int(limit)}",
        {"key": entity.key},
    ):
        found[row["key"], _TOGETHER] = Neighbour(**row, how=_TOGETHER)
    return [each for each in found.values() if each.key != entity.key]


def neighbourhood(reader: GraphReader, key: str, *, depth: int = 1, limit: int = 20) -> "nx.MultiGraph":
    """The graph around an entity, `depth` steps far with `limit` neighbours at each; `MAX_NODES` nodes at most.

    Nodes carry `name` and `entity_class`, edges `how` and `documents`.
    """
    import networkx as nx

    graph = nx.MultiGraph()
    entity, *_ = reader.find(key)
    graph.add_node(entity.key, name=entity.name, entity_class=entity.entity_class)
    border = [entity.key]
    for _ in range(depth):
        further: list[str] = []
        for at in border:
            for each in neighbours(reader, reader.find(at)[0], limit=limit):
                if each.key not in graph:
                    if len(graph) >= MAX_NODES:
                        continue
                    graph.add_node(each.key, name=each.name, entity_class=each.entity_class)
                    further.append(each.key)
                if not any(known["how"] == each.how for known in (graph.get_edge_data(at, each.key) or {}).values()):
                    graph.add_edge(at, each.key, how=each.how, documents=each.documents)
        border = further
    return graph


def write_graphml(graph: "nx.MultiGraph", path: Path) -> None:
    """GraphML, as Gephi, yEd, Cytoscape and igraph read it."""
    import networkx as nx

    write_atomic(path, "\n".join(nx.generate_graphml(graph, prettyprint=True)) + "\n")


def write_html(graph: "nx.MultiGraph", path: Path) -> None:
    """A standalone page that shows the graph: drawn here, moved and enlarged in the browser, nothing is loaded."""
    import networkx as nx

    side = 90 * math.sqrt(len(graph))
    places = {
        key: (round(side * x), round(side * y))
        for key, (x, y) in nx.spring_layout(graph, seed=1, method="force", k=2 / math.sqrt(len(graph))).items()
    }
    numbers = {key: number for number, key in enumerate(graph)}
    between: dict[tuple[str, str], list[str]] = {}
    for one, other, data in graph.edges(data=True):
        between.setdefault((one, other), []).append(f"{data['how']} ({data['documents']} documents)")
    lines = [
        f'<path data-ends="{numbers[one]} {numbers[other]}"><title>{html.escape(chr(10).join(kinds))}</title></path>'
        for (one, other), kinds in between.items()
    ]
    nodes = [
        f'<g data-at="{places[key][0]} {places[key][1]}"><circle r="9" fill="{_colour(data["entity_class"])}"/>'
        f'<text x="13" y="5">{html.escape(data["name"])}</text>'
        f"<title>{html.escape(data['entity_class'])}: {html.escape(data['name'])}</title></g>"
        for key, data in graph.nodes(data=True)
    ]
    classes = dict.fromkeys(data["entity_class"] for _, data in graph.nodes(data=True))
    legend = [f'<li style="color:{_colour(each)}">{html.escape(each)}</li>' for each in classes]
    page = files("ec1.graph").joinpath("neighbourhood.html").read_text(encoding="utf-8")
    for mark, drawn in (("LINES", lines), ("NODES", nodes), ("LEGEND", legend)):
        page = page.replace(f"<!-- {mark} -->", "\n".join(drawn), 1)
    write_atomic(path, page)


def _colour(entity_class: str) -> str:
    return _COLOURS.get(entity_class) or _OWN_COLOURS[zlib.crc32(entity_class.encode()) % len(_OWN_COLOURS)]

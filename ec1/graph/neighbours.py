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
from ec1.plural import counted

if TYPE_CHECKING:
    import networkx as nx

MAX_NODES = 500
# Pixels: between two rings, and between two names on one.
_RING, _LINE = 210, 17
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
    """A standalone page that shows the graph around its first node, in rings by distance; nothing is loaded."""
    places = _rings(graph)
    numbers = {key: number for number, key in enumerate(graph)}
    between: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for one, other, data in graph.edges(data=True):
        pair = (one, other) if numbers[one] < numbers[other] else (other, one)
        between.setdefault(pair, []).append((data["how"], data["documents"]))
    lines, labels = [], []
    for (one, other), kinds in between.items():
        stated = [how for how, _ in kinds if how != _TOGETHER]
        said = "\n".join(f"{how} ({counted(documents, 'document')})" for how, documents in kinds)
        near = places[other].parent == one
        form = "stated" if stated else "near" if near else "far"
        ends = f"{numbers[one]} {numbers[other]}"
        weight = 1 + math.log2(max(documents for _, documents in kinds) or 1)
        lines.append(
            f'<path class="{form}" data-ends="{ends}" stroke-width="{weight:.1f}" '
            f'd="M{places[one].at}L{places[other].at}"><title>{html.escape(said)}</title></path>'
        )
        if stated:
            middle = _between(places[one], places[other])
            labels.append(f'<text class="how" data-ends="{ends}" {middle}>{html.escape(", ".join(stated))}</text>')
    nodes = [_drawn(graph.nodes[key], places[key], numbers[key]) for key in graph]
    classes = dict.fromkeys(data["entity_class"] for _, data in graph.nodes(data=True))
    legend = [f'<li style="color:{_colour(each)}">{html.escape(each)}</li>' for each in classes]
    page = files("ec1.graph").joinpath("neighbourhood.html").read_text(encoding="utf-8")
    for mark, drawn in (("LINES", [*lines, *labels]), ("NODES", nodes), ("LEGEND", legend)):
        page = page.replace(f"<!-- {mark} -->", "\n".join(drawn), 1)
    write_atomic(path, page)


@dataclass(frozen=True)
class _Spot:
    """Where a node is drawn: an angle on a ring, and the node on the ring within that it hangs on."""

    angle: float
    radius: float
    parent: str | None

    @property
    def at(self) -> str:
        return f"{self.radius * math.cos(self.angle):.0f} {self.radius * math.sin(self.angle):.0f}"


def _rings(graph: "nx.MultiGraph") -> dict[str, _Spot]:
    """Every node on a ring by its distance from the first, beside those that hang on the same; each has the angle that
    its own need, so that names, which stand along the radius, do not cover each other."""
    first = next(iter(graph))
    parents: dict[str, str | None] = {first: None}
    rings = [[first]]
    while rings[-1]:
        rings.append([])
        for at in rings[-2]:
            for near in graph[at]:
                if near not in parents:
                    parents[near] = at
                    rings[-1].append(near)
    # Nodes that hang on none come from a neighbourhood that was cut; on the outermost ring they are seen.
    rings[-1] = [key for key in graph if key not in parents]
    parents |= dict.fromkeys(rings[-1])
    needs = dict.fromkeys(graph, 1.0)
    for ring in reversed(rings):
        for key in ring:
            hanging = sum(needs[each] for each in graph[key] if parents.get(each) == key)
            needs[key] = max(1.0, hanging)
    found: dict[str, _Spot] = {first: _Spot(0.0, 0.0, None)}
    begins = {first: 0.0}
    turn = 2 * math.pi / (needs[first] + len(rings[-1]))
    loose = needs[first] * turn
    radius = 0.0
    for ring in rings[1:]:
        radius = max(radius + _RING, _LINE / turn if len(ring) > 1 else 0.0) if ring else radius
        for key in ring:
            parent = parents[key]
            start = begins[parent] if parent is not None else loose
            begins[key] = start
            if parent is not None:
                begins[parent] += needs[key] * turn
            else:
                loose += turn
            found[key] = _Spot(start + needs[key] * turn / 2, radius, parent)
    return found


def _drawn(data: dict[str, str], spot: _Spot, number: int) -> str:
    degrees = math.degrees(spot.angle) % 360
    left = 90 < degrees < 270
    turn = f"rotate({degrees - 180 * left:.1f})" if spot.parent is not None else ""
    text = f'x="{-13 if left else 13}" y="4" text-anchor="{"end" if left else "start"}"' if turn else 'x="0" y="-15"'
    name, kind = html.escape(data["name"], quote=True), html.escape(data["entity_class"])
    return (
        f'<g data-at="{number}" data-name="{name.casefold()}" transform="translate({spot.at})">'
        f'<circle r="{7 if turn else 11}" fill="{_colour(data["entity_class"])}"/>'
        f'<text transform="{turn}" {text}>{name}</text><title>{kind}: {name}</title></g>'
    )


def _between(one: _Spot, other: _Spot) -> str:
    (x, y), (farther, deeper) = (tuple(map(float, spot.at.split())) for spot in (one, other))
    angle = math.degrees(math.atan2(deeper - y, farther - x))
    turned = angle + 180 if abs(angle) > 90 else angle
    return f'transform="translate({(x + farther) / 2:.0f} {(y + deeper) / 2:.0f}) rotate({turned:.1f})" y="-4"'


def _colour(entity_class: str) -> str:
    return _COLOURS.get(entity_class) or _OWN_COLOURS[zlib.crc32(entity_class.encode()) % len(_OWN_COLOURS)]

"""What faces ask of the published graph; a reader answers the rest itself (counts, free queries).

Belongs here: answers that are put together from several reads. Does not: reading itself (`ec1.graph.reader`).
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.files import checked_name, digest_of
from ec1.graph import neighbours as around
from ec1.graph.model import Entity, Evidence, GraphStats, Quote, StoredMention, StoredRelation, entity_key
from ec1.graph.neighbours import Neighbour
from ec1.graph.quotes import Quotes
from ec1.graph.reader import QUERY_ROWS, GraphReader
from ec1.graph.resolution.clusters import Band, Link
from ec1.graph.resolution.overrides import load_overrides
from ec1.graph.resolution.owners import is_own_name
from ec1.graph.schema_page import GraphTable, schema_of
from ec1.graph.visible import publish_visible
from ec1.home import Home
from ec1.queries.page import Page, cut, page_of, start_of

# With what a face needs to name of the rooms below.
__all__ = [
    "QUERY_ROWS", "Entity", "EntityPage", "Evidence", "GraphReader", "GraphStats", "GraphTable", "Joint", "Link",
    "Neighbour", "Page", "Quote", "Quotes", "neighbours", "open_graph", "quotes_of", "review", "schema_of", "search",
    "show",
]  # fmt: skip

Place = TypeVar("Place", StoredMention, StoredRelation)


@dataclass(frozen=True)
class Joint:
    """Why two keys are one thing: a link of resolution, or a short name that documents use for it; how often a mention
    depends on that; a sentence of each; and the command that undoes it."""

    one: str
    other: str
    why: str
    mentions: int
    sentences: tuple[StoredMention, ...]
    undo: str


@dataclass(frozen=True, kw_only=True)
class EntityPage(Entity):
    """An entity with the places that name it (`evidence`, the first ones if there was a limit), what documents state of
    it, why it is one (`joined`) and what it may be one with, or is not (`links`)."""

    evidence: tuple[StoredMention, ...]
    relations: tuple[StoredRelation, ...]
    joined: tuple[Joint, ...]
    links: tuple[Link, ...]


@dataclass(frozen=True)
class Review:
    """Pairs that may be one, the likeliest first. `clusters` and `pairs` count the whole graph's."""

    clusters: int
    pairs: int
    page: Page[Link]


Labels = frozenset[str] | None
"""The access labels that somebody has; None: all there are."""
NO_LABELS: frozenset[str] = frozenset()


def open_graph(home: Home, deployment: Deployment, labels: Labels = NO_LABELS) -> GraphReader:
    """The graph as it was last published, of the documents that somebody with these access labels may read; a context
    manager. Where nothing has a label it is the whole graph.

    For those who may not read everything a copy is made of what they may, once for each publication. Raises InputError
    if none was published.
    """
    published, pool = home.published_graph, deployment.graph.buffer_pool_mib
    if labels is None or not deployment.documents.labelled or not published.is_file():
        return GraphReader(published, buffer_pool_mib=pool)
    found = published.stat()
    overrides = load_overrides(deployment.graph.overrides, home.overrides)
    of = deployment.documents
    rules = [sorted(labels), {folder: sorted(each) for folder, each in of.labelled.items()}, sorted(of.all_streams)]
    state = [found.st_size, found.st_mtime_ns, found.st_ino, overrides.model_dump(mode="json")]
    mine, now = digest_of(rules)[:16], digest_of(state)[:16]
    path = home.visible_graphs / f"{mine}-{now}"
    if not path.is_file():
        publish_visible(
            published, path, lambda key: of.labels_of(key) <= labels, overrides=overrides, buffer_pool_mib=pool
        )
        for earlier in home.visible_graphs.glob(f"{mine}-*"):
            if earlier != path:
                earlier.unlink(missing_ok=True)
    return GraphReader(path, buffer_pool_mib=pool)


def labels_of(text: str | None) -> Labels:
    """What `--as` says: names with commas between them; `*` for all; none if it is not given."""
    if text is None:
        return NO_LABELS
    if text.strip() == "*":
        return None
    return frozenset(checked_name(each.strip(), "label") for each in text.split(",") if each.strip())


def check_sees_all(deployment: Deployment, labels: Labels, what: str) -> None:
    """Raises InputError for what shows all documents to somebody who may not read all."""
    if labels is not None and deployment.documents.labelled:
        raise InputError(f"{what} shows what all documents say, and this deployment has access labels: --as '*'")


def quotes_of(home: Home, deployment: Deployment) -> Quotes:
    """Where sentences are read again: the deployment's documents."""
    return Quotes(deployment.document_reader(home))


def search(
    reader: GraphReader, text: str, entity_class: str | None = None, limit: int = 20, cursor: str | None = None
) -> Page[Entity]:
    """Entities by a part of their name in any spelling, those mentioned most first, then by names that are like it.
    Raises InputError for a blank text, an unknown class, a limit below 1, or a cursor that is not one."""
    start = start_of(cursor)
    return cut(reader.search(text, entity_class, limit=limit + 1 if limit > 0 else limit, skip=start), start, limit)


def show(
    reader: GraphReader, entity: str, limit: int | None = None, quotes: Quotes | None = None
) -> tuple[EntityPage, ...]:
    """The entities that a key or a name stands for, with at most `limit` mentions each. Raises InputError if none."""

    def quoted(found: Iterable[Place]) -> tuple[Place, ...]:
        if quotes is None:
            return tuple(found)
        return tuple(replace(each, quote=replace(quotes.of(each), date=quotes.date_of(each))) for each in found)

    found = []
    for each, mentions in reader.show(entity):
        members = each.members or (each.key,)
        links = reader.links_of(*members)
        inner = [link for link in links if link.band is Band.MERGE and {link.one, link.other} <= set(members)]
        joined = [*_short_names(mentions), *_links(inner, mentions)]
        relations = {relation for key in members for relation in reader.relations_of(key)}
        found.append(
            EntityPage(
                **vars(each),
                evidence=quoted(mentions[:limit]),
                relations=quoted(
                    sorted(relations, key=lambda it: (it.relation, it.subject, it.object, it.path, it.start))
                ),
                joined=tuple(replace(joint, sentences=quoted(joint.sentences)) for joint in joined[:limit]),
                links=tuple(link for link in links if link not in inner),
            )
        )
    return tuple(found)


def _place(of: StoredRelation) -> tuple[str, str, str, str, int]:
    return of.relation, of.subject, of.object, of.path, of.start


def _short_names(mentions: Iterable[StoredMention]) -> Iterator[Joint]:
    """The short names that documents use for their owner (`ec1/graph/resolution/owners.py`)."""
    by_name: dict[tuple[str, str], list[StoredMention]] = {}
    for each in mentions:
        if not is_own_name(each.entity, each.name):
            by_name.setdefault((entity_key(each.name, "Person"), each.entity), []).append(each)
    for (short, key), places in sorted(by_name.items()):
        count = len({place.path for place in places})
        why = f"the one whom {places[0].name!r} fits among those whom the document names in full ({count} documents)"
        yield Joint(short, key, why, len(places), (places[0],), _undo(short, key))


def _links(links: Iterable[Link], mentions: Iterable[StoredMention]) -> Iterator[Joint]:
    by_key: dict[str, list[StoredMention]] = {}
    for each in mentions:
        by_key.setdefault(each.entity, []).append(each)
    for link in links:
        sides = [by_key.get(end, []) for end in (link.one, link.other)]
        why = f"{link.reasons} ({link.score:.1f} bits)"
        first = tuple(side[0] for side in sides if side)
        yield Joint(link.one, link.other, why, min(map(len, sides)), first, _undo(link.one, link.other))


def _undo(one: str, other: str) -> str:
    return f"ec1 graph decide --different {shlex.quote(one)} {shlex.quote(other)}"


def neighbours(reader: GraphReader, entity: str, limit: int = 20) -> tuple[Neighbour, ...]:
    """What stands around an entity, named by key or name. Raises InputError if there is no such entity."""
    found, *_ = reader.find(entity)
    return tuple(around.neighbours(reader, found, limit=limit))


def review(reader: GraphReader, limit: int | None = None, cursor: str | None = None) -> Review:
    """The pairs of the review band. Raises InputError for a limit below 1 or a cursor that is not one."""
    resolution = reader.resolution()
    pairs = resolution.band(Band.REVIEW)
    return Review(len(resolution.clusters), len(pairs), page_of(pairs, limit, cursor))

"""What faces ask of the published graph; a reader answers the rest itself (counts, free queries).

Belongs here: answers that are put together from several reads. Does not: reading itself (`ec1.graph.reader`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.files import checked_name, digest_of
from ec1.graph import neighbours as around
from ec1.graph.model import Entity, Evidence, GraphStats, StoredMention, StoredRelation
from ec1.graph.neighbours import Neighbour
from ec1.graph.quotes import Quotes
from ec1.graph.reader import QUERY_ROWS, GraphReader
from ec1.graph.resolution.clusters import Band, Cluster, Link
from ec1.graph.resolution.overrides import load_overrides
from ec1.graph.schema_page import GraphTable, schema_of
from ec1.graph.visible import publish_visible
from ec1.home import Home
from ec1.queries.page import Page, cut, page_of, start_of

# With what a face needs to name of the rooms below.
__all__ = [
    "QUERY_ROWS", "Entity", "EntityPage", "Evidence", "GraphReader", "GraphStats", "GraphTable", "Link", "Neighbour",
    "Page", "neighbours", "open_graph", "quotes_of", "review", "schema_of", "search", "show",
]  # fmt: skip

Place = TypeVar("Place", StoredMention, StoredRelation)


@dataclass(frozen=True, kw_only=True)
class EntityPage(Entity):
    """An entity with the places that name it (`evidence`, the first ones if there was a limit), what documents state of
    it, and what it is one with."""

    evidence: tuple[StoredMention, ...]
    relations: tuple[StoredRelation, ...]
    cluster: Cluster | None
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
    overrides = load_overrides(deployment.graph.overrides)
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
    """Entities by a part of their name in any spelling, those mentioned most first. Raises InputError for an unknown
    class, a limit below 1, or a cursor that is not one."""
    start = start_of(cursor)
    return cut(reader.entities(limit + 1 if limit > 0 else limit, entity_class, text, skip=start), start, limit)


def show(
    reader: GraphReader, entity: str, limit: int | None = None, quotes: Quotes | None = None
) -> tuple[EntityPage, ...]:
    """The entities that a key or a name stands for, with at most `limit` mentions each. Raises InputError if none."""

    def quoted(found: Iterable[Place]) -> tuple[Place, ...]:
        return tuple(replace(each, quote=quotes.of(each)) if quotes else each for each in found)

    found = []
    for each, mentions in reader.show(entity):
        cluster, links = reader.cluster_of(each.key)
        found.append(
            EntityPage(
                **vars(each),
                evidence=quoted(mentions[:limit]),
                relations=quoted(reader.relations_of(each.key)),
                cluster=cluster,
                links=tuple(links),
            )
        )
    return tuple(found)


def neighbours(reader: GraphReader, entity: str, limit: int = 20) -> tuple[Neighbour, ...]:
    """What stands around an entity, named by key or name. Raises InputError if there is no such entity."""
    (found, _), *_ = reader.show(entity)
    return tuple(around.neighbours(reader, found.key, limit=limit))


def review(reader: GraphReader, limit: int | None = None, cursor: str | None = None) -> Review:
    """The pairs of the review band. Raises InputError for a limit below 1 or a cursor that is not one."""
    resolution = reader.resolution()
    pairs = resolution.band(Band.REVIEW)
    return Review(len(resolution.clusters), len(pairs), page_of(pairs, limit, cursor))

"""What faces ask of one entity through time: the nights that changed it, what it is one with and why, and what people
decided about it.

Belongs here: putting these together. Does not: deciding (`doors`), an entity as it is now (`graph`).
"""

from dataclasses import dataclass

from ec1.graph.differences import EntityNight, entity_history
from ec1.graph.resolution.overrides import load_overrides
from ec1.queries.desk import Desk
from ec1.queries.graph import EntityPage, check_sees_all, open_graph, quotes_of, show

__all__ = ["EntityNight", "EntityPast", "PairDecision", "past_of"]

_SENTENCES = 20


@dataclass(frozen=True)
class PairDecision:
    """What a person decided about two entities by key: that they are one (`same`), or two."""

    one: str
    other: str
    same: bool
    reason: str


@dataclass(frozen=True)
class EntityPast:
    """An entity as it is now, the nights that changed it (the newest first, as far as exports are kept), and decisions
    about it or about what it is one with."""

    now: EntityPage
    nights: tuple[EntityNight, ...]
    decisions: tuple[PairDecision, ...]


def past_of(desk: Desk, entity: str) -> EntityPast:
    """The past of an entity, by key or name. Raises InputError if there is none, or for somebody who may not read all
    documents: exports hold what all of them say."""
    check_sees_all(desk.deployment, desk.labels, "the history of an entity")
    with open_graph(desk.home, desk.deployment, desk.labels) as reader:
        now, *_ = show(reader, entity, _SENTENCES, quotes_of(desk.home, desk.deployment))
    decided = load_overrides(desk.deployment.graph.overrides, desk.home.overrides)
    mine = {now.key, *now.members}
    decisions = tuple(
        PairDecision(*pair, same, reason)
        for same, pairs in ((True, decided.same_pairs()), (False, decided.different_pairs()))
        for pair, reason in sorted(pairs.items())
        if mine.intersection(pair)
    )
    return EntityPast(now, entity_history(desk.home.graph_exports, now.key), decisions)

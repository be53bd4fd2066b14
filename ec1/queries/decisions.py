"""What a page asks before somebody decides: the pairs of entities that may be one, with sentences of each.

Belongs here: which pairs, and what is shown of each side. Does not: writing a decision (`doors`).
"""

from dataclasses import dataclass

from ec1.graph.review import pairs_to_decide
from ec1.queries.desk import Desk
from ec1.queries.graph import EntityPage, Link, open_graph, quotes_of, show


@dataclass(frozen=True)
class PairToDecide:
    """Two entities with some sentences of each, and why they may be one. `weight`: mentions that would change hands."""

    one: EntityPage
    other: EntityPage
    link: Link
    weight: int


@dataclass(frozen=True)
class PairsToDecide:
    """The first pairs, those that would change most first; `waiting` counts all that nobody decided."""

    waiting: int
    pairs: tuple[PairToDecide, ...]


def pairs(desk: Desk, limit: int, sentences: int = 3) -> PairsToDecide:
    """The pairs of the review band that no decision speaks about. Raises InputError if no graph was published."""
    quotes = quotes_of(desk.home, desk.deployment)
    with open_graph(desk.home, desk.deployment, desk.labels) as reader:
        found = pairs_to_decide(reader, desk.deployment.graph.overrides or desk.home.overrides)

        def side(key: str) -> EntityPage:
            return show(reader, key, sentences, quotes)[0]

        shown = [
            PairToDecide(side(pair.one.key), side(pair.other.key), pair.link, pair.weight) for pair in found[:limit]
        ]
    return PairsToDecide(len(found), tuple(shown))

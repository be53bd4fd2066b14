"""Which entities of the graph are one and the same thing: a layer over the graph that can be dropped and made again.

Belongs here: bands, clusters, what operators decided. Does not: weights (`scoring.py`), pairs (`blocking.py`), storage
(`resolved_tables.py`). The result is a function of the set of entities and their evidence: no order enters it.

merge: linked, unless somebody says otherwise. review: shown to a person, not linked. new: two things; such a pair is
kept only if a veto stopped what would have been a link.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum

from ec1.graph.blocking import candidate_pairs
from ec1.graph.model import preferred_name
from ec1.graph.overrides import NO_OVERRIDES, Overrides, Pair
from ec1.graph.scoring import MERGE_BITS, REVIEW_BITS, Profile, Scorer, veto

VERSION = 3
"""Raise this when equal entities would give another resolution."""
# Two links that contradict each other are both left to a person, unless one is so much better, or beyond doubt.
_CLEARLY_BETTER_BITS = 6.0
_BEYOND_DOUBT_BITS = MERGE_BITS + 10


class Band(StrEnum):
    MERGE = "merge"
    REVIEW = "review"
    NEW = "new"


@dataclass(frozen=True, order=True)
class Link:
    """What was decided about one pair, `one` < `other` by key. `score` is the odds in bits; `reasons` is text."""

    one: str
    other: str
    band: Band
    score: float
    reasons: str
    veto: str | None = None


@dataclass(frozen=True, order=True)
class Cluster:
    """Entities that are one thing, two at least. The key is that of the first member, the name their best spelling."""

    key: str
    name: str
    entity_class: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class Resolution:
    """All links and clusters, sorted; and the entities that overrides name and the graph lacks."""

    links: tuple[Link, ...]
    clusters: tuple[Cluster, ...]
    unused_overrides: tuple[str, ...] = ()

    def band(self, band: Band) -> list[Link]:
        """The links of one band, the best first."""
        return sorted((link for link in self.links if link.band is band), key=lambda link: (-link.score, link))


def resolve(profiles: Iterable[Profile], overrides: Overrides = NO_OVERRIDES) -> Resolution:
    """Resolve a set of entities. Raises InputError if the overrides contradict each other."""
    known = {profile.key: profile for profile in sorted(profiles, key=lambda profile: profile.key)}
    same, different = overrides.same_pairs(), overrides.different_pairs()
    decided = same.keys() | different.keys()
    by_class: dict[str, list[Profile]] = defaultdict(list)
    for profile in known.values():
        by_class[profile.entity_class].append(profile)
    found = [link for _, members in sorted(by_class.items()) for link in _links(members, decided)]
    found = _without_contested(found, known, decided)
    clusters, found = _clusters(found, known, overrides)
    for pairs, band in ((same, Band.MERGE), (different, Band.NEW)):
        found += [
            Link(one, other, band, 0.0, f"operator: {reason}")
            for (one, other), reason in pairs.items()
            if one in known and other in known
        ]
    unused = sorted({key for pair in decided for key in pair} - known.keys())
    return Resolution(tuple(sorted(found)), clusters, tuple(unused))


def _links(members: Sequence[Profile], decided: Set[Pair]) -> list[Link]:
    scorer = Scorer(members)
    links = []
    for first, second in candidate_pairs(members).tolist():
        one, other = members[first], members[second]
        if (one.key, other.key) in decided:
            continue
        found = scorer.compare(one, other)
        if found.bits < REVIEW_BITS:
            continue
        if found.veto:
            band = Band.NEW
        elif found.bits >= MERGE_BITS and found.singled_out:
            band = Band.MERGE
        else:
            band = Band.REVIEW
        links.append(Link(one.key, other.key, band, round(found.bits, 3), ", ".join(found.reasons), found.veto))
    return links


def _without_contested(links: list[Link], known: Mapping[str, Profile], decided: Set[Pair]) -> list[Link]:
    """Send to review what could be either of two: `J. Smith` where there are Jane and John Smith."""
    of: dict[str, list[tuple[Link, str]]] = defaultdict(list)
    for link in links:
        if link.band is not Band.NEW and link.score < _BEYOND_DOUBT_BITS:
            of[link.one].append((link, link.other))
            of[link.other].append((link, link.one))
    contested: set[Link] = set()
    for mine in of.values():
        mine.sort(key=lambda end: (-end[0].score, end[0]))
        for place, (link, far) in enumerate(mine):
            for rival, farther in mine[place + 1 :]:
                if link.score - rival.score > _CLEARLY_BETTER_BITS:
                    break
                if _pair(far, farther) not in decided and veto(known[far], known[farther]):
                    contested |= {link, rival}
    return [
        replace(link, band=Band.REVIEW, veto="could be either of two") if link in contested else link for link in links
    ]


def _clusters(
    links: list[Link], known: Mapping[str, Profile], overrides: Overrides
) -> tuple[tuple[Cluster, ...], list[Link]]:
    """Join the ends of merge links, the best first, unless two members may not be one: such a link is for review."""
    home: dict[str, frozenset[str]] = {}
    for group in overrides.groups():
        members = group & known.keys()
        home.update(dict.fromkeys(members, members))
    different = overrides.different_pairs()
    final = []
    for link in sorted(links, key=lambda link: (-link.score, link)):
        ours, theirs = home.get(link.one, frozenset({link.one})), home.get(link.other, frozenset({link.other}))
        if link.band is Band.MERGE and ours != theirs:
            obstacle = _obstacle(ours, theirs, known, different)
            if obstacle:
                link = replace(link, band=Band.REVIEW, veto=obstacle)
            else:
                home.update(dict.fromkeys(ours | theirs, ours | theirs))
        final.append(link)
    found = sorted({min(members): members for members in home.values() if len(members) > 1}.items())
    return tuple(_cluster(sorted(members), known) for _, members in found), final


def _obstacle(
    ours: Iterable[str], theirs: Iterable[str], known: Mapping[str, Profile], different: Mapping[Pair, str]
) -> str | None:
    for one in sorted(ours):
        for other in sorted(theirs):
            if _pair(one, other) in different:
                return f"an operator told {one} from {other}"
            if reason := veto(known[one], known[other]):
                return f"{reason}: {one} and {other}"
    return None


def _cluster(members: Sequence[str], known: Mapping[str, Profile]) -> Cluster:
    name = preferred_name(name for key in members for name in known[key].names)
    return Cluster(members[0], name, known[members[0]].entity_class, tuple(members))


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)

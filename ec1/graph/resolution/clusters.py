"""Which entities of the graph are one and the same thing: a layer over the graph that can be dropped and made again.

Belongs here: bands, clusters, what operators decided. Does not: weights (`scoring.py`), pairs (`blocking.py`), storage
(`tables.py`), doing it again for a part only (`incremental.py`). The result is a function of the set of
entities and their evidence, and of the statistics that weigh it: no order enters it.

merge: linked, unless somebody says otherwise. review: shown to a person, not linked. new: two things; such a pair is
kept only if a veto stopped what would have been a link.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum

from ec1.graph.model import preferred_name
from ec1.graph.resolution.blocking import candidate_pairs
from ec1.graph.resolution.overrides import NO_OVERRIDES, Overrides, Pair
from ec1.graph.resolution.profile import Profile
from ec1.graph.resolution.scoring import ACRONYM, CALLED, MERGE_BITS, NO_STATISTICS, REVIEW_BITS, Scorer, Statistics
from ec1.graph.resolution.vetoes import OTHER_FIRST_NAME, is_proven, same_words, veto

VERSION = 10
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


@dataclass(frozen=True)
class Finding:
    """A resolution with what led to it, which `incremental.py` keeps. `found` is each link as the comparison of the two
    alone says; `contested` holds those that could be either of two, with the ends at which they have a rival."""

    resolution: Resolution
    found: Mapping[Pair, Link]
    contested: Mapping[Pair, frozenset[str]]


def resolve(
    profiles: Iterable[Profile],
    overrides: Overrides = NO_OVERRIDES,
    statistics: Mapping[str, Statistics] | None = None,
) -> Resolution:
    """Resolve a set of entities. Weights come from `statistics` by class, by default from the entities themselves.

    Raises InputError if the overrides contradict each other.
    """
    return find(profiles, overrides, statistics).resolution


def find(
    profiles: Iterable[Profile], overrides: Overrides, statistics: Mapping[str, Statistics] | None = None
) -> Finding:
    """As `resolve`, with what led to it."""
    known = {profile.key: profile for profile in sorted(profiles, key=lambda profile: profile.key)}
    same, different = overrides.same_pairs(), overrides.different_pairs()
    decided = same.keys() | different.keys()
    by_class = profiles_by_class(known.values())
    if statistics is None:
        statistics = {name: Statistics.of(members) for name, members in by_class.items()}
    found = {
        (link.one, link.other): link
        for name, members in sorted(by_class.items())
        for link in _links(members, decided, statistics.get(name, NO_STATISTICS))
    }
    ends: dict[str, list[Link]] = defaultdict(list)
    for link in found.values():
        ends[link.one].append(link)
        ends[link.other].append(link)
    contested: dict[Pair, frozenset[str]] = defaultdict(frozenset)
    for key, mine in ends.items():
        for pair in contested_at(key, mine, known, decided):
            contested[pair] |= {key}
    links = [contest(link) if pair in contested else link for pair, link in found.items()]
    clusters, final = join(links, known, overrides)
    final += operator_links(overrides, known.keys())
    unused = sorted({key for pair in decided for key in pair} - known.keys())
    return Finding(Resolution(tuple(sorted(final)), clusters, tuple(unused)), found, contested)


def profiles_by_class(profiles: Iterable[Profile]) -> dict[str, list[Profile]]:
    by_class: dict[str, list[Profile]] = defaultdict(list)
    for profile in profiles:
        by_class[profile.entity_class].append(profile)
    return by_class


def operator_links(overrides: Overrides, known: Set[str]) -> list[Link]:
    """The links that operators made or forbade, of pairs that are both known."""
    return [
        Link(one, other, band, 0.0, f"operator: {reason}")
        for pairs, band in ((overrides.same_pairs(), Band.MERGE), (overrides.different_pairs(), Band.NEW))
        for (one, other), reason in pairs.items()
        if one in known and other in known
    ]


def _links(members: Sequence[Profile], decided: Set[Pair], statistics: Statistics) -> Iterator[Link]:
    scorer = Scorer(statistics)
    # Two lists of numbers: a list for each of millions of pairs takes a twentieth of the memory.
    for first, second in zip(*candidate_pairs(members).T.tolist(), strict=True):
        one, other = members[first], members[second]
        if (one.key, other.key) not in decided and (link := compare(scorer, one, other)):
            yield link


def compare(scorer: Scorer, one: Profile, other: Profile) -> Link | None:
    """What two entities alone, `one` < `other` by key, say about being one; None if nothing speaks for it."""
    found = scorer.compare(one, other)
    if found.bits < REVIEW_BITS:
        return None
    if found.veto:
        band = Band.NEW
    elif found.bits >= MERGE_BITS and found.singled_out:
        band = Band.MERGE
    else:
        band = Band.REVIEW
    return Link(one.key, other.key, band, round(found.bits, 3), ", ".join(found.reasons), found.veto)


def contested_at(key: str, links: Iterable[Link], known: Mapping[str, Profile], decided: Set[Pair]) -> set[Pair]:
    """Those of an entity's links that could be either of two: `J. Smith` where there are Jane and John Smith.

    `known` has the entities at the other ends of the links.
    """
    mine = sorted(
        (
            (link, link.other if link.one == key else link.one)
            for link in links
            if link.band is not Band.NEW and link.score < _BEYOND_DOUBT_BITS
        ),
        key=lambda end: (-end[0].score, end[0]),
    )
    contested: set[Pair] = set()
    for number, (link, far) in enumerate(mine):
        for rival, farther in mine[number + 1 :]:
            if link.score - rival.score > _CLEARLY_BETTER_BITS:
                break
            if _pair(far, farther) in decided:
                continue
            if veto(known[far], known[farther]) or _two_of_one_form(link, rival, known[far], known[farther]):
                contested |= {(link.one, link.other), (rival.one, rival.other)}
    return contested


def _two_of_one_form(link: Link, rival: Link, far: Profile, farther: Profile) -> bool:
    """Whether a short form alone says that both far ends are one: `BBC` is short for more than one name."""
    if CALLED in link.reasons and CALLED in rival.reasons:
        return {name.letters for name in far.persons}.isdisjoint(name.letters for name in farther.persons)
    return ACRONYM in link.reasons and ACRONYM in rival.reasons and not same_words(far, farther)


def contest(link: Link) -> Link:
    """A link that has a rival is for a person."""
    return replace(link, band=Band.REVIEW, veto="could be either of two")


def join(
    links: Iterable[Link], known: Mapping[str, Profile], overrides: Overrides
) -> tuple[tuple[Cluster, ...], list[Link]]:
    """Join the ends of merge links, the best first, unless two members may not be one: such a link is for review.

    Groups of entities that no merge link and no override connects do not depend on each other.
    """
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
            reason = veto(known[one], known[other])
            if reason == OTHER_FIRST_NAME and _has_both_names(one, other, {*ours, *theirs}, known):
                continue
            if reason:
                return f"{reason}: {one} and {other}"
    return None


def _has_both_names(one: str, other: str, together: Iterable[str], known: Mapping[str, Profile]) -> bool:
    """Whether somebody who would be in the group is proven to be the one, under another name, and may be the other."""
    return any(
        far not in (one, other) and is_proven(known[far], known[end]) and veto(known[far], known[near]) is None
        for far in together
        for end, near in ((one, other), (other, one))
    )


def _cluster(members: Sequence[str], known: Mapping[str, Profile]) -> Cluster:
    name = preferred_name(name for key in members for name in known[key].names)
    return Cluster(members[0], name, known[members[0]].entity_class, tuple(members))


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)

"""Names that several people share: which document speaks of whom, as far as it can be told.

An entity is a name, so two people of one name are one entity. Belongs here: telling them apart by what documents say
of them. Does not: reading the graph (`reader.py`); the graph itself is left as it is.

Two people are told apart by facts that contradict each other, one of them a fact that lasts (a number, the date of
birth), since who changes the employer has another e-mail, telephone and address. Whom they are named with does not
tell them apart: real people are named with circles that do not touch (`benchmarks/homonyms.py` has the figures). But
where facts tell people, company tells whom a document without facts means.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ec1.graph.scoring import KINDS, NO_STATISTICS, Level, Scorer

CONTRADICTION_BITS = -8.0
"""From so many bits against it on, two groups of documents do not speak of one person: two facts that differ, where an
address is one fact. Chosen on FEBRL 1 and 3; FEBRL 2 and 4 were not looked at."""

COMPANY_DOCUMENTS = 20
"""Who is named in more documents than these says nothing about whom one of them means."""


@dataclass(frozen=True)
class Sighting:
    """What one document says of a name: facts by kind (`scoring.KINDS`), and whom else it names, by key."""

    document: str
    facts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Namesakes:
    """The people of one name, each as documents in order: those with most documents first, then by document. One at
    most means that nothing tells two apart. `unclear` are documents that could be any's."""

    people: tuple[tuple[str, ...], ...]
    unclear: tuple[str, ...]


def namesakes(sightings: Iterable[Sighting]) -> Namesakes:
    """Tell the people of one name apart. The order of the sightings does not matter."""
    seen = sorted(sightings, key=lambda each: each.document)
    groups = sorted(
        _by_facts([each for each in seen if each.facts]), key=lambda group: (-len(group), group[0].document)
    )
    scorer = Scorer(NO_STATISTICS)
    people: list[list[Sighting]] = []
    for group in groups:
        if all(_contradict(scorer, group, other) for other in people):
            people.append(group)
    if len(people) < 2:
        return Namesakes((), tuple(each.document for each in seen))
    waiting = [each for each in seen if not any(each in group for group in people)]
    while found := _by_company(waiting, people):
        for each, number in found:
            people[number].append(each)
            waiting.remove(each)
    told = [tuple(sorted(each.document for each in group)) for group in people]
    return Namesakes(
        tuple(sorted(told, key=lambda group: (-len(group), group))), tuple(each.document for each in waiting)
    )


def _by_facts(seen: list[Sighting]) -> list[list[Sighting]]:
    """Documents whose facts agree more than they differ, joined in chains."""
    scorer = Scorer(NO_STATISTICS)
    groups: list[list[Sighting]] = []
    for each in seen:
        near = [group for group in groups if any(scorer.facts(each.facts, other.facts)[0] > 0 for other in group)]
        groups = [group for group in groups if group not in near]
        groups.append([other for group in near for other in group] + [each])
    return [sorted(group, key=lambda each: each.document) for group in groups]


def _contradict(scorer: Scorer, one: list[Sighting], other: list[Sighting]) -> bool:
    bits, levels = scorer.facts(_all_facts(one), _all_facts(other))
    return bits <= CONTRADICTION_BITS and (
        any(KINDS[kind].lasting for kind, level in levels if level is Level.DIFFERENT)
    )


def _all_facts(group: list[Sighting]) -> dict[str, frozenset[str]]:
    facts: dict[str, frozenset[str]] = defaultdict(frozenset)
    for each in group:
        for kind, values in each.facts.items():
            facts[kind] |= values
    return dict(facts)


def _by_company(waiting: list[Sighting], people: list[list[Sighting]]) -> list[tuple[Sighting, int]]:
    """Documents that name somebody who is otherwise named with exactly one of the people."""
    company = [frozenset[str]().union(*(each.beside for each in group)) for group in people]
    found = []
    for each in waiting:
        near = [number for number, names in enumerate(company) if not names.isdisjoint(each.beside)]
        if len(near) == 1:
            found.append((each, near[0]))
    return found

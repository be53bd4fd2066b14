"""What forbids that two entities are one, and what proves that two people with other names are.

Belongs here: contradictions. Does not: how much speaks for a pair (`scoring.py`).
"""

from itertools import combinations

from ec1.graph.resolution.levels import Level, best_level, given_level, level
from ec1.graph.resolution.names import PersonName, ThingName, titles_agree
from ec1.graph.resolution.profile import KINDS, PERSON, Profile

OTHER_FIRST_NAME = "other first name"


def same_words(one: Profile, other: Profile) -> bool:
    """Whether two firms, projects or places have a spelling of the same words."""
    return not {thing.words for thing in one.things}.isdisjoint(thing.words for thing in other.things)


def veto(one: Profile, other: Profile) -> str | None:
    """Why these two can never be one without a person saying so, or None."""
    if one.entity_class != other.entity_class:
        return "other class"
    for kind in sorted(one.attributes.keys() & other.attributes.keys()):
        if KINDS[kind].veto and not one.attributes[kind] & other.attributes[kind]:
            return f"other {kind}"
    if one.entity_class == PERSON:
        if names_several(one) or names_several(other):
            return "a name of several people"
        if is_proven(one, other):
            return None
        reasons = [_person_veto(a, b) for a in one.persons for b in other.persons]
    else:
        reasons = [_thing_veto(a, b) for a in one.things for b in other.things]
    # One pair of spellings without a contradiction is enough.
    return None if None in reasons else reasons[0]


def names_several(profile: Profile) -> bool:
    """Whether documents give the bearer of a name two birthdays and two numbers: two people, of whom nobody knows which
    one another name means."""
    lasting = [values for kind, values in profile.attributes.items() if KINDS[kind].lasting and len(values) > 1]
    return len(lasting) > 1 and all(
        any(level(a, b, True) is Level.DIFFERENT for a, b in combinations(sorted(values), 2)) for values in lasting
    )


def is_proven(one: Profile, other: Profile) -> bool:
    """True if a number that was given to one person and a second such fact agree, the second up to a slip of the pen:
    people do change their names. Numbers with a slip prove nothing: those of twins follow each other."""
    common = [kind for kind in one.attributes.keys() & other.attributes.keys() if KINDS[kind].singular]
    given = [kind for kind in common if KINDS[kind].proof and one.attributes[kind] & other.attributes[kind]]
    return bool(given) and any(
        kind != given[0]
        and best_level(one.attributes[kind], other.attributes[kind], KINDS[kind].digits)[0] >= Level.CLOSE
        for kind in common
    )


def _person_veto(one: PersonName, other: PersonName) -> str | None:
    if one.several != other.several:
        return "several people"
    if one.generation and other.generation and one.generation != other.generation:
        return "other suffix"
    if not titles_agree(one.addressed, other.addressed):
        return "other title"
    if not one.given or not other.given:
        return None
    ours = (one.given, one.surname, *one.middles, one.all_given)
    theirs = (other.given, other.surname, *other.middles, other.all_given)
    compatible = any(
        given_level(name, part) >= Level.INITIAL
        for names, parts in (((one.given, one.all_given), theirs), ((other.given, other.all_given), ours))
        for name in names
        for part in parts
    )
    if not compatible:
        return OTHER_FIRST_NAME
    if middles_differ(one, other) and level(one.surname, other.surname) >= Level.CLOSE:
        return "other middle initial"
    return None


def middles_differ(one: PersonName, other: PersonName) -> bool:
    """Whether two people have other middle names or initials."""
    if not one.middles or not other.middles:
        return False
    # In their order: George W. is not George H. W.
    return any(level(a, b) < Level.INITIAL for a, b in zip(one.middles, other.middles, strict=False))


def _thing_veto(one: ThingName, other: ThingName) -> str | None:
    if one.numbers and other.numbers and one.numbers != other.numbers:
        return "other number"
    if one.qualifiers and other.qualifiers and not set(one.qualifiers) & set(other.qualifiers):
        return "other place"
    return None

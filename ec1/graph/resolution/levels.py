"""How well two names, or two parts of names, agree.

Belongs here: levels of agreement. Does not: what a level is worth (`scoring.py`), or forbids (`vetoes.py`).
"""

from collections.abc import Iterable
from enum import IntEnum
from functools import lru_cache

from rapidfuzz.distance import OSA, JaroWinkler

from ec1.graph.resolution.names import PersonName, ThingName, full_names

WHOLE_NAME = 6
"""From so many letters on a name is rarely another one's by chance, with a blank elsewhere or one letter changed."""


class Level(IntEnum):
    DIFFERENT = 0
    MISSING = 1
    INITIAL = 2
    CLOSE = 3
    EXACT = 4


def are_far(one: PersonName, other: PersonName) -> bool:
    """Whether two names that are `plain` differ in one part at least, whichever is compared with which (`alignments`),
    and nothing beside facts could add to them: a short form, too, is one only if no part differs."""
    if one.single or other.single:
        return all(
            Level.DIFFERENT in (given_level(*given), level(*surname)) for given, surname, _ in alignments(one, other)
        )
    if one.middles and other.middles:
        return False
    # Looking at both ends first spares most names the making of their letters.
    ends_alike = one.given[:1] == other.given[:1] and one.surname[-1:] == other.surname[-1:]
    if ends_alike and one.letters == other.letters:
        return False
    if level(one.surname, other.surname) is not Level.DIFFERENT:
        if given_level(one.given, other.given) is not Level.DIFFERENT:
            return False
        if one.middles or other.middles:
            # One may end the other: `US President Barack Obama`.
            if one.given in other.middles or other.given in one.middles:
                return False
            if given_level(one.all_given, other.all_given) is not Level.DIFFERENT:
                return False
    if len(one.given) == 1 or len(other.given) == 1:
        return True
    return (
        level(one.surname, other.given) is Level.DIFFERENT or given_level(one.given, other.surname) is Level.DIFFERENT
    )


def alignments(one: PersonName, other: PersonName) -> Iterable[tuple[tuple[str, str], tuple[str, str], bool]]:
    """Which part is compared with which, as (given pair, surname pair, whether in the other order)."""
    if one.single and other.single:
        return ((("", ""), (one.single, other.single), False),)
    if one.single or other.single:
        single, full = (one.single, other) if one.single else (other.single, one)
        found = [(("", ""), (single, full.surname), False), ((single, full.given), ("", ""), False)]
        if full.bare_surname != full.surname:
            found.append((("", ""), (single, full.bare_surname), False))
        return found
    found = [((one.given, other.given), (one.surname, other.surname), False)]
    if one.middles or other.middles:
        # `Ja ck`, and `Anne Marie` beside `Annemarie`.
        found.append(((one.all_given, other.all_given), (one.surname, other.surname), False))
    if len(one.given) > 1 and len(other.given) > 1:
        found.append(((one.given, other.surname), (one.surname, other.given), True))
    return found


def one_letter_apart(one: str, other: str) -> bool:
    return min(len(one), len(other)) > WHOLE_NAME and OSA.distance(one, other, score_cutoff=1) <= 1


def acronym_of(one: ThingName, other: ThingName) -> int:
    """The number of letters of `one` if it is the acronym of `other`, else 0."""
    return len(one.acronym) if one.acronym in other.initials else 0


@lru_cache(maxsize=200_000)
def given_level(one: str, other: str) -> Level:
    """As `level`; `Bill` and `William` are close."""
    found = level(one, other)
    if found is Level.DIFFERENT and not full_names(one).isdisjoint(full_names(other)):
        return Level.CLOSE
    return found


@lru_cache(maxsize=500_000)
def level(one: str, other: str, digits: bool = False) -> Level:
    """How well two values agree. A single letter is an initial; a short form that the other begins with is close."""
    if not one or not other:
        return Level.MISSING
    one, other = one.replace(" ", ""), other.replace(" ", "")
    if one == other:
        return Level.EXACT
    shorter, longer = (one, other) if len(one) <= len(other) else (other, one)
    if not digits and len(shorter) == 1:
        return Level.INITIAL if longer.startswith(shorter) else Level.DIFFERENT
    most = 1 + len(longer) // 10 if digits else max(1, len(longer) // 4)
    if len(longer) > 3 and OSA.distance(one, other, score_cutoff=most) <= most:
        return Level.CLOSE
    if digits:
        return Level.DIFFERENT
    if len(shorter) > 3 and JaroWinkler.similarity(one, other, score_cutoff=0.92) >= 0.92:
        return Level.CLOSE
    return Level.CLOSE if len(shorter) > 2 and longer.startswith(shorter) else Level.DIFFERENT


def best_level(ours: frozenset[str], theirs: frozenset[str], digits: bool) -> tuple[Level, tuple[str, str]]:
    """The best agreement among the values of one kind."""
    return max((level(a, b, digits), (a, b)) for a in ours for b in theirs)

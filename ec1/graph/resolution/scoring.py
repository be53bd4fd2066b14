"""How much speaks for two entities being one, in bits, after Fellegi and Sunter, and what forbids it.

Belongs here: levels of agreement, their weights, vetoes. Does not: which pairs are looked at (`blocking.py`), and what
follows from a score (`resolution.py`).

Every agreement is worth log2(m / u): m is how often it is seen of one and the same thing, u how often of two different
ones, which is how common the value is among the entities themselves. A rare surname says more than a common one. Where
entities are few, `_PRIOR_WEIGHT` imaginary ones of usual frequency keep the figures sober.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property, lru_cache
from itertools import combinations
from operator import attrgetter
from typing import NamedTuple

from rapidfuzz.distance import OSA, JaroWinkler

from ec1.graph.resolution.names import PersonName, ThingName, full_names, person_names, thing_names

PERSON = "Person"
MERGE_BITS = math.log2(0.99 / 0.01)
"""From these odds on two entities are linked without a person looking: 99 to 1."""
REVIEW_BITS = -1.0
"""From odds of 1 to 2 on a person should look."""

OTHER_FIRST_NAME = "other first name"
ACRONYM = "acronym in the same document"
_PRIOR_WEIGHT = 1000
_SAME_NAME_BITS = MERGE_BITS + 2
_RAREST = 1e-6
_EXACT, _CLOSE = 0.85, 0.10
_DIFFERENT_BITS = math.log2(1 - _EXACT - _CLOSE)
_INITIAL_BITS = 3.5
# A value has about so many others that are as close to it as a slip of the pen.
_NEIGHBOURS = 10
_ADDRESS_BITS = (-4.0, 12.0)
_SHORT_FORM_BITS = 6.0
# `Houston` and `Houston, Texas` in one document.
_LESS_SAID_BITS = 9.0
# Of an acronym, a letter: 26 of them, some far more common than others.
_LETTER_BITS = 4.0
# `Cassandra from Doctor Who` is not Doctor Who.
_OF = frozenset(("from", "of", "in", "at", "for", "to", "by", "on", "and"))
_TURNED_BITS = 2.0
# From so many letters on a name is rarely another one's by chance, with a blank elsewhere or with one letter changed.
_WHOLE_NAME = 6


@dataclass(frozen=True)
class Kind:
    """A kind of evidence beside the name. `usual` is how common one value usually is.

    Values of a `singular` kind belong to one person or thing, and those of a `proof` kind were given out so; two
    different values of a `veto` kind forbid a merge. The parts of an `address` agree together.
    """

    usual: float
    singular: bool = False
    proof: bool = False
    veto: bool = False
    address: bool = False
    digits: bool = False
    lasting: bool = False


KINDS: Mapping[str, Kind] = {
    "email": Kind(1e-5, singular=True, veto=True),
    "phone": Kind(1e-4, singular=True, digits=True),
    "identifier": Kind(1e-5, singular=True, proof=True, digits=True, lasting=True),
    "birth_date": Kind(1e-4, singular=True, digits=True, lasting=True),
    "street": Kind(1e-3, address=True),
    "house_number": Kind(5e-3, address=True, digits=True),
    "postcode": Kind(1e-3, address=True, digits=True),
    "city": Kind(2e-3, address=True),
    "region": Kind(0.1, address=True),
}
_USUAL = {"surname": 1e-3, "given": 2e-3, "word": 1e-3}


class Level(IntEnum):
    DIFFERENT = 0
    MISSING = 1
    INITIAL = 2
    CLOSE = 3
    EXACT = 4


_BOTH_EXACT = (Level.EXACT, Level.EXACT)
_BOTH_MISSING = (Level.MISSING, Level.MISSING)


@dataclass(frozen=True)
class Profile:
    """What is known of one entity. `attributes` holds values by kind (`KINDS`), `documents` where it is mentioned."""

    key: str
    entity_class: str
    names: frozenset[str]
    attributes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    documents: Set[str] = frozenset()

    @cached_property
    def persons(self) -> tuple[PersonName, ...]:
        if len(self.names) == 1:
            # Most have one name; comparing the parts of names takes longer than it seems.
            return person_names(*self.names)
        return tuple(dict.fromkeys(each for name in sorted(self.names) for each in person_names(name)))

    @cached_property
    def plain(self) -> PersonName | None:
        """The name of a person who has but one, without `Jr.` and the like."""
        name = self.persons[0] if self.entity_class == PERSON and len(self.persons) == 1 else None
        return None if name is None or name.generation else name

    @cached_property
    def things(self) -> tuple[ThingName, ...]:
        if len(self.names) == 1:
            return thing_names(*self.names, self.entity_class)
        found = (each for name in sorted(self.names) for each in thing_names(name, self.entity_class))
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Comparison:
    """What was found for one pair: the odds in bits, what they come from, and whether a merge is open to them.

    `reasons` and `veto` are looked for only where the odds are worth a look.
    """

    bits: float
    reasons: tuple[str, ...]
    veto: str | None = None
    singled_out: bool = True
    """False if nothing told one person from others of the same surname and address."""


_FAR = Comparison(-math.inf, ())
"""Of two people with other names: however rare the part that agrees is, it does not outweigh the one that differs."""


class _Names(NamedTuple):
    """What the names alone say: bits before the prior, levels by part, notes; whether they tell one person from others
    of the same surname, and whether they are one name in two forms."""

    bits: float
    levels: tuple[tuple[str, Level], ...]
    notes: tuple[str, ...]
    singled_out: bool
    same: bool


class _Together(NamedTuple):
    """Whether two are mentioned in one document, and whether the one or the other is never mentioned without the other.
    Each can only add bits."""

    once: bool
    one: bool
    other: bool

    @classmethod
    def of(cls, one: Profile, other: Profile) -> "_Together":
        if one.documents.isdisjoint(other.documents):
            return cls(False, False, False)
        return cls(True, one.documents <= other.documents, other.documents <= one.documents)


_ALWAYS = _Together(True, True, True)
_best_names = attrgetter("same", "bits")


@dataclass(frozen=True)
class Statistics:
    """How common values are among the entities of one class: their number, and by kind in how many a value is found.

    They may be older than the entities that are compared: then weights stay as they are while entities come and go.
    """

    size: int
    counts: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, profiles: Sequence[Profile]) -> "Statistics":
        counts: dict[str, Counter[str]] = {kind: Counter() for kind in (*KINDS, *_USUAL)}
        for profile in profiles:
            for kind, values in profile.attributes.items():
                counts[kind].update(values)
            if profile.entity_class == PERSON:
                counts["surname"].update({name.surname or name.single for name in profile.persons})
                counts["given"].update({name.given or name.single for name in profile.persons})
            else:
                counts["word"].update({word for name in profile.things for word in name.words})
        return cls(len(profiles), {kind: dict(values) for kind, values in counts.items()})


NO_STATISTICS = Statistics(0, {})


class Scorer:
    """Compares the entities of one class."""

    def __init__(self, statistics: Statistics) -> None:
        self._prior = math.log2(max(_PRIOR_WEIGHT, statistics.size))
        self._counts = statistics.counts
        self._size = statistics.size
        self._weights: dict[tuple[str, Level, tuple[str, str]], float] = {}
        self._last: tuple[PersonName, PersonName, tuple[float, tuple[Level, Level], bool]] | None = None

    def compare(self, one: Profile, other: Profile) -> Comparison:
        """Weigh one pair. The order of the two does not matter."""
        if other.key < one.key:
            one, other = other, one
        if (
            (ours := one.plain) is not None
            and (theirs := other.plain) is not None
            and not (one.attributes and other.attributes)
            and _are_far(ours, theirs)
        ):
            # Most pairs end here.
            return _FAR
        found = self._weigh(one, other, _ALWAYS)
        if found.bits < REVIEW_BITS:
            # Not even if they were always mentioned together: their documents, which may be many, need no look.
            return found
        real = _Together.of(one, other)
        return found if real == _ALWAYS else self._weigh(one, other, real)

    def is_far(self, one: Profile, name: str) -> bool:
        """Whether `compare` finds a person far from any that has just this name; False where only it can tell."""
        if one.attributes or (ours := one.plain) is None:
            return False
        theirs = person_names(name)
        return len(theirs) == 1 and not theirs[0].generation and _are_far(ours, theirs[0])

    def _weigh(self, one: Profile, other: Profile, together: _Together) -> Comparison:
        names = (self._persons if one.entity_class == PERSON else self._things)(one, other, together)
        odds = names.bits - self._prior
        if names.same:
            # Two documents that spell a name alike are one entity already; a name in another form is no less the same.
            odds = max(odds, _SAME_NAME_BITS)
        bits, levels = self._facts(one.attributes, other.attributes)
        odds += bits
        if odds < REVIEW_BITS:
            return Comparison(odds, ())
        singled_out = names.singled_out or any(KINDS[kind].singular and level >= Level.CLOSE for kind, level in levels)
        said = [
            f"{part} {level.name.lower()}" for part, level in (*names.levels, *levels) if level is not Level.MISSING
        ]
        return Comparison(odds, (*said, *names.notes), veto(one, other), singled_out)

    def _facts(
        self, one: Mapping[str, frozenset[str]], other: Mapping[str, frozenset[str]]
    ) -> tuple[float, list[tuple[str, Level]]]:
        """What the facts beside the names say, in bits, with the level of each kind that both have."""
        bits = address = 0.0
        levels = []
        for kind in sorted(one.keys() & other.keys()):
            level, value = _best(one[kind], other[kind], KINDS[kind].digits)
            weight = self._weight(kind, level, value)
            levels.append((kind, level))
            if KINDS[kind].address:
                address += weight
            else:
                bits += weight
        # The parts of an address agree together or not at all: they are not independent.
        return bits + min(max(address, _ADDRESS_BITS[0]), _ADDRESS_BITS[1]), levels

    def _frequency(self, kind: str, value: str) -> float:
        usual = KINDS[kind].usual if kind in KINDS else _USUAL[kind]
        count = self._counts.get(kind, {}).get(value, 0)
        return max(_RAREST, (count + usual * _PRIOR_WEIGHT) / (self._size + _PRIOR_WEIGHT))

    def _weight(self, kind: str, level: Level, values: tuple[str, str]) -> float:
        if level is Level.MISSING:
            return 0.0
        if level is Level.DIFFERENT:
            return _DIFFERENT_BITS
        if level is Level.INITIAL:
            return _INITIAL_BITS
        known = self._weights.get((kind, level, values))
        if known is None:
            frequency = max(self._frequency(kind, value) for value in values)
            m, u = (_EXACT, frequency) if level is Level.EXACT else (_CLOSE, frequency * _NEIGHBOURS)
            known = math.log2(m / min(m, u))
            self._weights[kind, level, values] = known
        return known

    def _persons(self, one: Profile, other: Profile, together: _Together) -> _Names:
        return max(
            (
                self._by_sound(
                    self._person(
                        a, b, together.once, bool(a.single and together.one) or bool(b.single and together.other)
                    ),
                    a.by_sound or b.by_sound,
                )
                for a in one.persons
                for b in other.persons
                # Two names that only sound alike are two.
                if not (a.by_sound and b.by_sound)
            ),
            key=_best_names,
        )

    def _person(self, one: PersonName, other: PersonName, together: bool, always: bool) -> _Names:
        """`together`: some document mentions both. `always`: one is a single word that is never mentioned without the
        other. Neither takes bits away."""
        bits, levels, turned = self._aligned(one, other)
        shortened = bool(one.single or other.single) or Level.INITIAL in levels
        shortened = shortened and together and Level.DIFFERENT not in levels
        middle = bool(one.middles and other.middles) and not _middles_differ(one, other)
        # `Mr. Sova`, who is Bradley Sova wherever he is mentioned; first names alone are shared too often.
        surname_alone = shortened and always and levels[1] is Level.EXACT
        bits += _SHORT_FORM_BITS * shortened + _INITIAL_BITS * middle + _INITIAL_BITS * surname_alone
        bits += _INITIAL_BITS * bool(one.generation and one.generation == other.generation)
        notes = tuple(
            note
            for note, holds in (
                ("order of names", turned),
                ("short form in the same document", shortened and not surname_alone),
                ("surname alone in the same documents", surname_alone),
                ("middle name", middle),
            )
            if holds
        )
        whole_given = levels[0] in (Level.EXACT, Level.CLOSE) and not (one.single or other.single)
        singled_out = whole_given or (Level.INITIAL in levels and together) or surname_alone
        said = (("given", levels[0]), ("surname", levels[1]))
        names = _Names(bits, said, notes, singled_out, levels == _BOTH_EXACT)
        with_role = self._with_role(one, other) if together else None
        return names if with_role is None or with_role.bits < bits else with_role

    def _aligned(self, one: PersonName, other: PersonName) -> tuple[float, tuple[Level, Level], bool]:
        """The best that given name and surname say: bits, levels, and whether their order is another."""
        # A pair that is not dismissed at first sight is asked about again, up to three times in a row.
        if self._last is None or self._last[0] is not one or self._last[1] is not other:
            self._last = one, other, self._align(one, other)
        return self._last[2]

    def _align(self, one: PersonName, other: PersonName) -> tuple[float, tuple[Level, Level], bool]:
        if one.given and other.given and one.letters == other.letters and len(one.letters) > _WHOLE_NAME:
            parts = (("given", one.given), ("surname", one.surname))
            return sum(self._weight(kind, Level.EXACT, (part, part)) for kind, part in parts), _BOTH_EXACT, False
        bits, levels, turned = -math.inf, _BOTH_MISSING, False
        for given, surname, reverse in _alignments(one, other):
            if reverse and levels[1] is Level.EXACT:
                continue
            here = _given_level(*given), _level(*surname)
            worth = self._weight("given", here[0], given) + self._weight("surname", here[1], surname)
            worth -= _TURNED_BITS * reverse
            if worth > bits:
                bits, levels, turned = worth, here, reverse
        return bits, levels, turned

    def _with_role(self, one: PersonName, other: PersonName) -> _Names | None:
        """`US President Barack Obama` and `Barack Obama` in one document: one name at the end of the other."""
        shorter, longer = one.words, other.words
        if len(shorter) > len(longer):
            shorter, longer = longer, shorter
        if not 2 <= len(shorter) < len(longer) or longer[-len(shorter) :] != shorter or len(shorter[0]) < 2:
            return None
        before = longer[: -len(shorter)]
        if not _OF.isdisjoint(" ".join(before).split()):
            return None
        parts = (("given", shorter[0]), ("surname", shorter[-1]))
        bits = _INITIAL_BITS + sum(self._weight(kind, Level.EXACT, (part, part)) for kind, part in parts)
        levels = (("given", Level.EXACT), ("surname", Level.EXACT))
        return _Names(bits, levels, ("one name ends the other in the same document",), True, False)

    def _things(self, one: Profile, other: Profile, together: _Together) -> _Names:
        return max(
            (
                self._by_sound(self._thing(a, b, together.once), a.by_sound or b.by_sound)
                for a in one.things
                for b in other.things
                if not (a.by_sound and b.by_sound)
            ),
            key=_best_names,
        )

    def _by_sound(self, names: _Names, by_sound: bool) -> _Names:
        """That two names sound alike is for a person to judge, whatever it is worth."""
        if not by_sound:
            return names
        return names._replace(
            bits=max(names.bits, self._prior) if names.same else names.bits, singled_out=False, same=False
        )

    def _thing(self, one: ThingName, other: ThingName, together: bool) -> _Names:
        if one.words == other.words or (one.joined == other.joined and len(one.joined) > 5):
            bits = sum(self._weight("word", Level.EXACT, (word, word)) for word in sorted(set(one.words)))
            if one.qualifiers == other.qualifiers:
                return _Names(bits, (), ("same name in another form",), True, True)
            # Portland, and Portland in Oregon.
            return _Names(bits + _LESS_SAID_BITS * together, (), ("same name, less said",), together, False)
        words = self._words(one, other, together)
        if together and (letters := _acronym_of(one, other) or _acronym_of(other, one)):
            bits = _LETTER_BITS * letters + _SHORT_FORM_BITS
            if bits >= words.bits:
                return _Names(bits, (), (ACRONYM,), True, False)
        return words

    def _words(self, one: ThingName, other: ThingName, together: bool) -> _Names:
        left, right = list(one.words), list(other.words)
        bits = 0.0
        notes = []
        for word in one.words:
            if word in right:
                bits += self._weight("word", Level.EXACT, (word, word))
                left.remove(word)
                right.remove(word)
                notes.append(word)
        for word in list(left):
            close = sorted(near for near in right if len(near) > 3 and _level(word, near) is Level.CLOSE)
            if close:
                bits += self._weight("word", Level.CLOSE, (word, close[0]))
                left.remove(word)
                right.remove(close[0])
                notes.append(f"{word}~{close[0]}")
        if len(one.words) == len(other.words) == 1 and _one_letter_apart(*one.words, *other.words):
            # `Northwind` and `Nortwind`: nothing else of a name of one word could agree, so a person looks.
            bits = max(bits, self._prior)
            notes.append("one letter apart")
        if together and notes and not (left and right):
            note = "short form in the same document"
            return _Names(bits + _SHORT_FORM_BITS, (), (*notes, note), False, False)
        bits += (len(left) + len(right)) * _DIFFERENT_BITS
        return _Names(bits, (), tuple(notes), True, False)


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
        any(_level(a, b, True) is Level.DIFFERENT for a, b in combinations(sorted(values), 2)) for values in lasting
    )


def is_proven(one: Profile, other: Profile) -> bool:
    """True if a number that was given to one person and a second such fact agree, the second up to a slip of the pen:
    people do change their names. Numbers with a slip prove nothing: those of twins follow each other."""
    common = [kind for kind in one.attributes.keys() & other.attributes.keys() if KINDS[kind].singular]
    given = [kind for kind in common if KINDS[kind].proof and one.attributes[kind] & other.attributes[kind]]
    return bool(given) and any(
        kind != given[0] and _best(one.attributes[kind], other.attributes[kind], KINDS[kind].digits)[0] >= Level.CLOSE
        for kind in common
    )


def _person_veto(one: PersonName, other: PersonName) -> str | None:
    if one.several != other.several:
        return "several people"
    if one.generation and other.generation and one.generation != other.generation:
        return "other suffix"
    if one.addressed and other.addressed and one.addressed != other.addressed:
        return "other title"
    if not one.given or not other.given:
        return None
    ours = (one.given, one.surname, *one.middles, one.all_given)
    theirs = (other.given, other.surname, *other.middles, other.all_given)
    compatible = any(
        _given_level(name, part) >= Level.INITIAL
        for names, parts in (((one.given, one.all_given), theirs), ((other.given, other.all_given), ours))
        for name in names
        for part in parts
    )
    if not compatible:
        return OTHER_FIRST_NAME
    if _middles_differ(one, other) and _level(one.surname, other.surname) >= Level.CLOSE:
        return "other middle initial"
    return None


def _middles_differ(one: PersonName, other: PersonName) -> bool:
    if not one.middles or not other.middles:
        return False
    # In their order: George W. is not George H. W.
    return any(_level(a, b) < Level.INITIAL for a, b in zip(one.middles, other.middles, strict=False))


def _thing_veto(one: ThingName, other: ThingName) -> str | None:
    if one.numbers and other.numbers and one.numbers != other.numbers:
        return "other number"
    if one.qualifiers and other.qualifiers and not set(one.qualifiers) & set(other.qualifiers):
        return "other place"
    return None


def _are_far(one: PersonName, other: PersonName) -> bool:
    """Whether two names that are `plain` differ in one part at least, whichever is compared with which (`_alignments`),
    and nothing beside facts could add to them: a short form, too, is one only if no part differs."""
    if one.single or other.single:
        return all(
            Level.DIFFERENT in (_given_level(*given), _level(*surname)) for given, surname, _ in _alignments(one, other)
        )
    if one.middles and other.middles:
        return False
    # Looking at both ends first spares most names the making of their letters.
    ends_alike = one.given[:1] == other.given[:1] and one.surname[-1:] == other.surname[-1:]
    if ends_alike and one.letters == other.letters:
        return False
    if _level(one.surname, other.surname) is not Level.DIFFERENT:
        if _given_level(one.given, other.given) is not Level.DIFFERENT:
            return False
        if one.middles or other.middles:
            # One may end the other: `US President Barack Obama`.
            if one.given in other.middles or other.given in one.middles:
                return False
            if _given_level(one.all_given, other.all_given) is not Level.DIFFERENT:
                return False
    if len(one.given) == 1 or len(other.given) == 1:
        return True
    return (
        _level(one.surname, other.given) is Level.DIFFERENT or _given_level(one.given, other.surname) is Level.DIFFERENT
    )


def _alignments(one: PersonName, other: PersonName) -> Iterable[tuple[tuple[str, str], tuple[str, str], bool]]:
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


def _one_letter_apart(one: str, other: str) -> bool:
    return min(len(one), len(other)) > _WHOLE_NAME and OSA.distance(one, other, score_cutoff=1) <= 1


def _acronym_of(one: ThingName, other: ThingName) -> int:
    """The number of letters of `one` if it is the acronym of `other`, else 0."""
    return len(one.acronym) if one.acronym in other.initials else 0


@lru_cache(maxsize=200_000)
def _given_level(one: str, other: str) -> Level:
    """As `_level`; `Bill` and `William` are close."""
    level = _level(one, other)
    if level is Level.DIFFERENT and not full_names(one).isdisjoint(full_names(other)):
        return Level.CLOSE
    return level


@lru_cache(maxsize=500_000)
def _level(one: str, other: str, digits: bool = False) -> Level:
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


def _best(ours: frozenset[str], theirs: frozenset[str], digits: bool) -> tuple[Level, tuple[str, str]]:
    """The best agreement among the values of one kind."""
    return max((_level(a, b, digits), (a, b)) for a in ours for b in theirs)

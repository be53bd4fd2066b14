"""How much speaks for two entities being one, in bits, after Fellegi and Sunter.

Belongs here: the weights of levels of agreement (`levels.py`). Does not: what forbids a pair (`vetoes.py`), which pairs
are looked at (`blocking.py`), and what follows from a score (`clusters.py`).

Every agreement is worth log2(m / u): m is how often it is seen of one and the same thing, u how often of two different
ones, which is how common the value is among the entities themselves. A rare surname says more than a common one. Where
entities are few, `_PRIOR_WEIGHT` imaginary ones of usual frequency keep the figures sober.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from ec1.graph.resolution.levels import (
    WHOLE_NAME,
    Level,
    acronym_of,
    alignments,
    are_far,
    best_level,
    given_level,
    level,
    one_letter_apart,
)
from ec1.graph.resolution.names import PersonName, ThingName, person_names
from ec1.graph.resolution.profile import KINDS, PERSON, Profile
from ec1.graph.resolution.vetoes import middles_differ, veto

MERGE_BITS = math.log2(0.99 / 0.01)
"""From these odds on two entities are linked without a person looking: 99 to 1."""
REVIEW_BITS = -1.0
"""From odds of 1 to 2 on a person should look."""

ACRONYM = "acronym in the same document"
CALLED = "called so alone elsewhere"
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


_USUAL = {"surname": 1e-3, "given": 2e-3, "word": 1e-3}


_BOTH_EXACT = (Level.EXACT, Level.EXACT)
_BOTH_MISSING = (Level.MISSING, Level.MISSING)


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
            and are_far(ours, theirs)
        ):
            # Most pairs end here.
            return _FAR
        found = self._weigh(one, other, True)
        if found.bits < REVIEW_BITS or not one.documents.isdisjoint(other.documents):
            # Not even if one document mentioned both: their documents, which may be many, need no look.
            return found
        return self._weigh(one, other, False)

    def is_far(self, one: Profile, name: str) -> bool:
        """Whether `compare` finds a person far from any that has just this name; False where only it can tell."""
        if one.attributes or (ours := one.plain) is None:
            return False
        theirs = person_names(name)
        return len(theirs) == 1 and not theirs[0].generation and are_far(ours, theirs[0])

    def _weigh(self, one: Profile, other: Profile, together: bool) -> Comparison:
        names = (self._persons if one.entity_class == PERSON else self._things)(one, other, together)
        odds = names.bits - self._prior
        if names.same:
            # Two documents that spell a name alike are one entity already; so are two that spell it in another form.
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
            level, value = best_level(one[kind], other[kind], KINDS[kind].digits)
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

    def _persons(self, one: Profile, other: Profile, together: bool) -> _Names:
        found = max(
            (
                self._by_sound(self._person(a, b, together), a.by_sound or b.by_sound)
                for a in one.persons
                for b in other.persons
                # Two names that only sound alike are two.
                if not (a.by_sound and b.by_sound)
            ),
            key=_best_names,
        )
        word = next(iter(one.alone & other.alone), None)
        if word is None or bool(one.called) == bool(other.called):
            return found
        return self._called(word, found)

    def _called(self, word: str, names: _Names) -> _Names:
        """`Leila`, whom documents call so beside her full name; hers for certain if no other bears the name."""
        # The word itself counts as both; its bearer once.
        bearers = sum(self._counts.get(kind, {}).get(word, 0) for kind in ("given", "surname")) - 2
        bits = max(names.bits, self._prior + _SAME_NAME_BITS)
        return _Names(bits, names.levels, (*names.notes, CALLED), bearers <= 1, False)

    def _person(self, one: PersonName, other: PersonName, together: bool) -> _Names:
        """`together`: some document mentions both, which takes no bits away."""
        bits, levels, turned = self._aligned(one, other)
        single = bool(one.single or other.single)
        shortened = (single or Level.INITIAL in levels) and together and Level.DIFFERENT not in levels
        middle = bool(one.middles and other.middles) and not middles_differ(one, other)
        bits += _SHORT_FORM_BITS * shortened + _INITIAL_BITS * middle
        bits += _INITIAL_BITS * bool(one.generation and one.generation == other.generation)
        notes = tuple(
            note
            for note, holds in (
                ("order of names", turned),
                ("short form in the same document", shortened),
                ("middle name", middle),
            )
            if holds
        )
        # `Carrano & Biewener` and `Carrano and Biewener`
        same = levels == _BOTH_EXACT or (one.several and one.single == other.single)
        initial = Level.INITIAL in levels and together
        singled_out = same or (not single and (levels[0] in (Level.EXACT, Level.CLOSE) or initial))
        said = (("given", levels[0]), ("surname", levels[1]))
        names = _Names(bits, said, notes, singled_out, same)
        with_role = self._with_role(one, other) if together else None
        return names if with_role is None or with_role.bits < bits else with_role

    def _aligned(self, one: PersonName, other: PersonName) -> tuple[float, tuple[Level, Level], bool]:
        """The best that given name and surname say: bits, levels, and whether their order is another."""
        # A pair that is not dismissed at first sight is asked about again, up to three times in a row.
        if self._last is None or self._last[0] is not one or self._last[1] is not other:
            self._last = one, other, self._align(one, other)
        return self._last[2]

    def _align(self, one: PersonName, other: PersonName) -> tuple[float, tuple[Level, Level], bool]:
        if one.given and other.given and one.letters == other.letters and len(one.letters) > WHOLE_NAME:
            parts = (("given", one.given), ("surname", one.surname))
            return sum(self._weight(kind, Level.EXACT, (part, part)) for kind, part in parts), _BOTH_EXACT, False
        bits, levels, turned = -math.inf, _BOTH_MISSING, False
        for given, surname, reverse in alignments(one, other):
            if reverse and levels[1] is Level.EXACT:
                continue
            here = given_level(*given), level(*surname)
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

    def _things(self, one: Profile, other: Profile, together: bool) -> _Names:
        return max(
            (
                self._by_sound(self._thing(a, b, together), a.by_sound or b.by_sound)
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
        if together and (letters := acronym_of(one, other) or acronym_of(other, one)):
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
            close = sorted(near for near in right if len(near) > 3 and level(word, near) is Level.CLOSE)
            if close:
                bits += self._weight("word", Level.CLOSE, (word, close[0]))
                left.remove(word)
                right.remove(close[0])
                notes.append(f"{word}~{close[0]}")
        if len(one.words) == len(other.words) == 1 and one_letter_apart(*one.words, *other.words):
            # `Northwind` and `Nortwind`: nothing else of a name of one word could agree, so a person looks.
            bits = max(bits, self._prior)
            notes.append("one letter apart")
        if together and notes and not (left and right):
            note = "short form in the same document"
            return _Names(bits + _SHORT_FORM_BITS, (), (*notes, note), False, False)
        bits += (len(left) + len(right)) * _DIFFERENT_BITS
        return _Names(bits, (), tuple(notes), True, False)

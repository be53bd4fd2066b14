"""Generated texts of many kinds, with the place and class of every name: from templates and pools, by a fixed seed.

Belongs here: how a text is put together. Does not: the sentences (`templates`), the names (`pools`), how chunks become
tuples (`build`).
"""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.gum import Named, Text
from ec1.extraction.folding import normalised
from examples.extractor import pools, templates

_SLOT = re.compile(r"\{([A-Z]+)\}")
_APART = {"card": "\n", "minutes": "\n", "email": "\n", "social": "\n", "meeting": "\n\n", "interview": "\n\n"}
_LIST_TITLES = ("Copied to: ", "Invited: ", "Stops: ", "Customers: ", "List: ", "Sites: ", "Suppliers:\n- ")
_UPPER_KINDS = ("meeting", "minutes", "card", "email")


_HAN = {
    "HP": (pools.HAN_PEOPLE, "Person"),
    "HL": (pools.HAN_PLACES, "Location"),
    "HC": (pools.HAN_FIRMS, "Company"),
    "HJ": (pools.HAN_PROJECTS, "Project"),
    "HA": (pools.HAN_ACCOUNTS, "Account"),
}


@dataclass
class _Person:
    given: str
    family: str
    title: str


@dataclass
class _Cast:
    """Who and what one text is about, so that names come back in other forms."""

    people: list[_Person]
    firms: list[str]
    organisations: list[str]
    places: list[str]
    projects: list[str]
    accounts: list[str]
    speakers: list[_Person]
    turn: int = 0


@dataclass
class _Writer:
    """A text under way, and where its names are."""

    parts: list[str] = field(default_factory=list)
    length: int = 0
    mentions: list[Named] = field(default_factory=list)

    def add(self, text: str, entity_class: str | None = None) -> None:
        if entity_class is not None:
            self.mentions.append(Named(text, entity_class, self.length, self.length + len(text)))
        self.parts.append(text)
        self.length += len(text)


def texts(count: int, seed: int, taken: frozenset[str] = frozenset()) -> list[Text]:
    """`count` texts. No name in `taken` (normalised, lower case) is used."""
    kinds, weights = zip(*((kind, weight) for kind, (_, weight) in templates.KINDS.items()), strict=True)
    made = []
    for number in range(count):
        random_ = random.Random(f"{seed}/{number}")
        kind = random_.choices(kinds, weights)[0]
        made.append(_text(f"{kind}-{number:05}", kind, random_, taken))
    return made


def _text(name: str, kind: str, random_: random.Random, taken: frozenset[str]) -> Text:
    cast = _cast(kind, random_, taken)
    sentences = templates.KINDS[kind][0]
    writer = _Writer()
    apart = _APART.get(kind, " ")
    dense = random_.random() < 0.06
    if dense:
        _dense(writer, cast, random_, taken)
    else:
        if kind in ("research", "minutes", "meeting") and random_.random() < 0.25:
            _front_matter(writer, cast, random_)
        for _ in range(random_.randint(3, 7)):
            if kind not in ("empty", "han") and random_.random() < 0.12:
                sentence = random_.choice(templates.EMPTY)
                if kind in ("german", "french", "spanish"):
                    sentence = random_.choice(sentences)
            else:
                sentence = random_.choice(sentences)
            _fill(writer, sentence, cast, random_, upper=kind in _UPPER_KINDS and random_.random() < 0.04)
            writer.add(random_.choice([apart, apart, "\n\n"]) if apart == " " else apart)
    gold = frozenset((normalised(each.name), each.entity_class) for each in writer.mentions)
    return Text(name, "".join(writer.parts), tuple(writer.mentions), gold)


def _cast(kind: str, random_: random.Random, taken: frozenset[str]) -> _Cast:
    def free(make: Callable[[random.Random], str], count: int) -> list[str]:
        names: list[str] = []
        while len(names) < count:
            name = make(random_)
            if not any(word in taken for word in (name.lower(), *name.lower().split())):
                names.append(name)
        return names

    people = [_person(random_, taken) for _ in range(random_.randint(3, 6))]
    return _Cast(
        people=people,
        firms=free(_firm, random_.randint(2, 4)),
        organisations=random_.sample(pools.ORGANISATIONS, 4),
        places=free(_place, random_.randint(3, 6)),
        projects=free(_project, random_.randint(1, 3)),
        accounts=free(_account, random_.randint(1, 3)),
        speakers=people[: random_.randint(2, 3)],
    )


def _person(random_: random.Random, taken: frozenset[str]) -> _Person:
    while True:
        given = random_.choice(pools.AMBIGUOUS_GIVEN if random_.random() < 0.12 else pools.GIVEN)
        family = random_.choice(pools.AMBIGUOUS_FAMILY if random_.random() < 0.08 else pools.FAMILY)
        if given.lower() not in taken and family.lower() not in taken:
            break
    if random_.random() < 0.07:
        family = f"{family}-{random_.choice(pools.FAMILY)}"
    if random_.random() < 0.08:
        given = f"{given} {random_.choice('ABCDEFGHJKLMPRSTW')}."
    return _Person(given, family, random_.choice(pools.TITLES))


def _firm(random_: random.Random) -> str:
    stem, way = random_.choice(pools.STEMS), random_.random()
    if way < 0.55:
        return f"{stem} {random_.choice(pools.FIRM_ENDS)}"
    if way < 0.7:
        return stem
    if way < 0.8:
        return f"{random_.choice(pools.FAMILY).split()[-1]} {random_.choice(pools.FIRM_ENDS)}"
    if way < 0.88:
        return f"{random_.choice(pools.FAMILY)} & {random_.choice(pools.FAMILY)}"
    if way < 0.94:
        return f"{random_.choice(pools.AMBIGUOUS_FAMILY)} {random_.choice(pools.FAMILY)}"
    return "".join(random_.choice("ABCDEFGHIKLMNOPRSTVW") for _ in range(random_.randint(2, 4)))


def _place(random_: random.Random) -> str:
    way = random_.random()
    if way < 0.72:
        return random_.choice(pools.PLACES)
    if way < 0.86:
        return f"{random_.choice(pools.PLACE_STEMS)} {random_.choice(pools.PLACE_ENDS)}"
    town = random_.choice(pools.PLACE_STEMS) + random_.choice(pools.TOWN_ENDS)
    return f"Port {town}" if way > 0.97 else town


def _project(random_: random.Random) -> str:
    way, code = random_.random(), random_.choice(pools.CODE_NAMES)
    if way < 0.5:
        return code
    if way < 0.68:
        return f"Project {code}"
    if way < 0.72:
        return f"Operation {code}"
    if way < 0.9:
        return f"{random_.choice(pools.PROJECT_TOPICS)} {random_.choice(pools.PROJECT_ENDS)}"
    if way < 0.95:
        return code.upper()
    return f"{code} {random_.randint(2, 4)}"


def _account(random_: random.Random) -> str:
    way = random_.random()
    if way < 0.5:
        return f"{random_.choice(pools.ACCOUNT_TOPICS)} {random_.choice(pools.ACCOUNT_ENDS)}"
    if way < 0.85:
        return f"{random_.choice(pools.STEMS)} {random_.choice(pools.ACCOUNT_ENDS)}"
    if way < 0.93:
        return f"{random_.choice(pools.STEMS)} {random_.choice(pools.ACCOUNT_TOPICS)}"
    return f"{random_.choice(['AC', 'KTO', 'ACC', 'GL'])}-{random_.randint(100, 9999)}"


def _date(random_: random.Random) -> str:
    month, day = random_.choice(pools.MONTHS), random_.randint(1, 28)
    weekday, year, number = random_.choice(pools.DAYS), random_.randint(1950, 2030), random_.randint(1, 12)
    plain = (f"{day} {month}", f"{month} {day}", f"{day} {month} {year}", f"2026-{number:02}-{day:02}")
    # Months that are also names of people come more often than the others.
    return random_.choice([month, weekday, *plain, f"the {day}th of {month}", "May", "June", "March", f"May {day}"])


def _fill(writer: _Writer, sentence: str, cast: _Cast, random_: random.Random, *, upper: bool = False) -> None:
    """Write a sentence with its slots filled."""
    done = 0
    used: set[str] = set()
    for slot in _SLOT.finditer(sentence):
        writer.add(sentence[done : slot.start()])
        _slot(writer, slot[1], cast, random_, used, upper)
        done = slot.end()
    writer.add(sentence[done:])


def _slot(writer: _Writer, slot: str, cast: _Cast, random_: random.Random, used: set[str], upper: bool) -> None:
    def one(names: list[str]) -> str:
        free = [name for name in names if name not in used] or list(names)
        name = random_.choice(free)
        used.add(name)
        return name.upper() if upper else name

    if slot == "PU":
        cast.turn += random_.randint(1, 2)
        speaker = cast.speakers[cast.turn % len(cast.speakers)]
        writer.add(speaker.given.split()[0].upper(), "Person")
    elif slot in ("PF", "PG", "PL", "PS"):
        people = [each for each in cast.people if each.given + each.family not in used] or cast.people
        person = random_.choice(people)
        used.add(person.given + person.family)
        given = person.given.split()[0]
        if slot == "PF":
            if random_.random() < 0.1:
                # A title before a full name is not part of it.
                writer.add(f"{person.title} ")
            name = f"{person.given} {person.family}"
            writer.add(name.upper() if upper else name, "Person")
        elif slot == "PS":
            writer.add(f"{person.title} {person.family}", "Person")
        else:
            writer.add(given if slot == "PG" else person.family, "Person")
    elif slot == "C":
        writer.add(one(cast.firms), "Company")
    elif slot == "O":
        writer.add(one(cast.organisations), "Company")
    elif slot == "X":
        writer.add(one([*cast.firms, *cast.organisations]), "Company")
    elif slot == "L":
        writer.add(one(cast.places), "Location")
    elif slot == "J":
        writer.add(one(cast.projects), "Project")
    elif slot == "A":
        writer.add(one(cast.accounts), "Account")
    elif slot == "D":
        writer.add(_date(random_))
    elif slot == "N":
        numbers = [random_.randint(2, 60), random_.randint(100, 4000), random_.randint(1900, 2026)]
        writer.add(str(random_.choice(numbers)))
    elif slot == "W":
        writer.add(random_.choice(pools.DISTRACTORS))
    elif slot == "R":
        writer.add(random_.choice(pools.ROLES))
    else:
        names, entity_class = _HAN[slot]
        writer.add(one(list(names)), entity_class)


def _front_matter(writer: _Writer, cast: _Cast, random_: random.Random) -> None:
    writer.add("---\n")
    for sentence in random_.sample([each for each in templates.CARDS if ": " in each[:14]], random_.randint(2, 4)):
        _fill(writer, sentence, cast, random_)
        writer.add("\n")
    writer.add("---\n\n")


def _dense(writer: _Writer, cast: _Cast, random_: random.Random, taken: frozenset[str]) -> None:
    """A list of many names, as on a distribution list or a map."""
    shape = random_.choice(["people", "places", "firms", "table"])
    join = random_.choice([", ", "\n- ", "; ", " | "])
    if random_.random() < 0.5:
        writer.add(random_.choice(_LIST_TITLES))
    for number in range(random_.randint(10, 24)):
        if number:
            writer.add(join)
        if shape == "people" or (shape == "table" and number % 3 == 0):
            person = _person(random_, taken)
            writer.add(f"{person.given} {person.family}", "Person")
        elif shape == "places" or (shape == "table" and number % 3 == 1):
            writer.add(_place(random_), "Location")
        else:
            writer.add(_firm(random_), "Company")
    writer.add("\n")

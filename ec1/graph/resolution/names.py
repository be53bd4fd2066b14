"""The parts of a name that decide whether two names may be one thing: `Dr. Jane A. Smith` and `Smith, Jane`.

Belongs here: taking names apart, by class. Does not: weighing what agrees (`scoring.py`). Knows no list of real names
of its own: short forms of given names, legal forms and how other scripts are written in Latin come from libraries.
"""

import re
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any

from ec1.extraction.folding import normalised, words
from ec1.vocabulary import CONTRACT_CLASSES, spoken

_ADDRESSED = (
    dict.fromkeys(words("mr sir lord herr monsieur signor senor don master"), "mr")
    | dict.fromkeys(words("ms madam dame lady frau madame mme signora senora sra dona"), "ms")
    | dict.fromkeys(words("miss mlle mademoiselle fraulein signorina senorita srta"), "miss")
    | {"mrs": "mrs"}
)
TITLES = _ADDRESSED.keys() | words(
    """mx dr prof professor judge justice senator councillor captain capt sergeant sgt rev colonel lieutenant president
    reverend hon dipl ing administrator minister chairman chairwoman ambassador mayor governor congressman congresswoman
    secretary detective inspector bishop archbishop major general admiral"""
)
# Whom nobody may be at once. `Ms` says neither.
_CONTRADICT = {("mr", "ms"), ("mr", "mrs"), ("miss", "mr"), ("miss", "mrs")}
_GENERATIONS = {"jr": "jr", "junior": "jr", "sr": "sr", "senior": "sr", "ii": "ii", "iii": "iii", "iv": "iv"}
_DEGREES = words("phd md mba cpa esq esquire msc bsc dds dvm rn pe llm jd ma ba qc kc obe mbe cbe frs")
_PARTICLES = words("de del della der den di da dos das du la le van von bin ibn al el ter ten af av zu")
# Beside those of every country that cleanco knows.
_LEGAL = words("inc incorporated corp corporation co company limited kk aps")
# Those that cleanco 2.3 lacks.
_MORE_LEGAL = (
    "sa de cv", "pvt ltd", "pvt", "pte ltd", "pty", "pte", "se", "slu", "eood", "ou", "sia", "tbk", "ug",
    "ug (haftungsbeschrankt)", "mbh", "ggmbh", "ohg", "gbr", "jsc", "ojsc", "cjsc", "pjsc", "eirl", "wll", "fze",
)  # fmt: skip
# Those that stand before the name. Others do so, too, but begin names of their own: `SAS Institute`, `SIA Engineering`.
_LEADING = words("ooo oao zao pao uab sarl eurl ооо оао зао пао ао тов")
# In Chinese, Japanese and Korean no blank stands between name and form; the longer ones first.
_JOINED_LEGAL = re.compile(
    r"股份有限公司|有限责任公司|有限公司|株式会社|有限会社|合同会社|주식회사|㈜|㈱|\(주\)|\(株\)"
)
_CLASS_WORDS = {
    "Company": _LEGAL,
    "Account": _LEGAL | words("account accounts acct"),
    "Project": words("project programme program initiative operation"),
    "Location": frozenset[str](),
}
_ORGANISATIONS = ("Company", "Account")
_SHORT = {
    "st": "street", "ave": "avenue", "rd": "road", "blvd": "boulevard", "mt": "mount", "ft": "fort", "hwy": "highway",
}  # fmt: skip
_LINKS = words("and of the for")
# How those write a name who lack the letter; without its mark is the other way, which folding gives.
_WRITTEN_OUT = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "Ø": "Oe", "Å": "Aa"}
)
_TWO_WORDS = re.compile(r"[A-Z][a-z]+ [A-Z][a-z]+")
_NO_NAMES = TITLES | _GENERATIONS.keys() | _DEGREES | _PARTICLES | {"and"}
_SEVERAL = re.compile(r"&|\band\b", re.IGNORECASE)
_LONGEST_LEGAL = 4
_ACRONYM = re.compile(r"[A-Z]{3,6}")
# `World Health Organization (WHO)`
_EXPLAINED = re.compile(r"(.+\S) \(([A-Z]{2,6})\)")
# `JL Picard` and `Picard JL`, but not `JL PICARD`.
_INITIALS_FIRST = re.compile(r"([A-Z]{2,3}) (?=\w+[a-z])")
_INITIALS_LAST = re.compile(r"((?:\w+ )*\w+[a-z]) ([A-Z]{2,3})")
# Signs that stand for a meaning: many of them sound alike.
_HAN = re.compile("[\u4e00-\u9fff]")
_HAN_NAME = re.compile("[\u4e00-\u9fff]{2,3}")
# `M. Dupont` may be an initial, but is not `Mme Dupont`.
_MONSIEUR = re.compile(r"M\. \w")
_DOTS = re.compile(r"(?<=\w)\.(?=\w)|['’]")
# `\w` lacks the vowel marks of the scripts of South and South-East Asia.
_MARKED = "\u0900-\u0963\u0966-\u109f\u1700-\u18af\u1900-\u1aaf\ua800-\uabff"
_APART = re.compile(rf"[^\w{_MARKED},&-]+|(?<!\w)-|-(?!\w)")


@dataclass(frozen=True)
class PersonName:
    """`given` and `surname` are empty where a name does not tell them; a single word is in `single`.

    An initial is a given name of one letter. `generation` is jr, sr, ii, ...; `addressed` is mr, ms, mrs or miss where
    a title says so, `title` the first title itself.
    """

    given: str = ""
    middles: tuple[str, ...] = ()
    surname: str = ""
    single: str = ""
    generation: str = ""
    addressed: str = ""
    title: str = ""
    several: bool = False
    """`Carrano & Biewener` are two people."""
    by_sound: bool = False
    """How a name is said that is written by meaning: others sound the same."""

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Given names and surname, in this order."""
        return tuple(part for part in (self.given, *self.middles, self.surname) if part)

    @cached_property
    def all_given(self) -> str:
        return "".join((self.given, *self.middles))

    @cached_property
    def letters(self) -> str:
        """All of a name without blanks and hyphens: the same for `Anna-Maria Berg` and `Anna Maria Berg`."""
        return re.sub("[ -]", "", "".join(self.words))

    @cached_property
    def bare_surname(self) -> str:
        """`gogh` of `van gogh`."""
        parts = self.surname.split()
        while len(parts) > 1 and parts[0] in _PARTICLES:
            parts = parts[1:]
        return " ".join(parts)


@dataclass(frozen=True)
class ThingName:
    """The words of a firm's, project's, account's or place's name, without legal suffixes and words of its class.

    `qualifiers` is what a place's name says after its first comma; `numbers` are the words with a digit in them.
    """

    words: tuple[str, ...]
    qualifiers: tuple[str, ...] = ()
    numbers: frozenset[str] = frozenset()
    acronym: str = ""
    """The letters of a name that is one word in capitals, such as `WHO`."""
    initials: frozenset[str] = frozenset()
    """What acronyms of this name may be, with the words that say what it is and without; none of one or two words."""
    by_sound: bool = False
    """As in `PersonName`."""

    @cached_property
    def joined(self) -> str:
        return "".join(self.words).replace("-", "")


@lru_cache(maxsize=50_000)
def spellings(name: str) -> tuple[str, ...]:
    """A name as it may be written elsewhere: `Müller` as `Mueller`, and another script in Latin letters."""
    if name.isascii():
        return (name,)
    from anyascii import anyascii

    return tuple(dict.fromkeys((name, name.translate(_WRITTEN_OUT), anyascii(name) or name)))


@lru_cache(maxsize=50_000)
def person_names(name: str) -> tuple[PersonName, ...]:
    """All that a person's name may be elsewhere: as it is written, and as it is said."""
    if name.isascii():
        return (person_name(name),)
    if not _HAN.search(name):
        return tuple(dict.fromkeys(person_name(each) for each in spellings(name)))
    from anyascii import anyascii

    # One sign is the surname, which stands first.
    said = f"{anyascii(name[0])}, {anyascii(name[1:])}" if _HAN_NAME.fullmatch(name) else anyascii(name)
    return (person_name(name), replace(person_name(said or name), by_sound=True))


@lru_cache(maxsize=200_000)
def person_name(name: str) -> PersonName:
    """Take a person's name apart; `Smith, Jane` is turned round."""
    if _TWO_WORDS.fullmatch(name):
        # Most names, in a third of the time.
        given, surname = name.lower().split(" ")
        if given not in _NO_NAMES and surname not in _NO_NAMES:
            return PersonName(given, (), surname)
    name = _initials_apart(name)
    parts = [_words(part) for part in normalised(name).split(",")]
    generation = addressed = title = ""
    named: list[list[str]] = []
    for part in parts:
        kept = []
        for number, word in enumerate(part):
            # `Junior` alone is a name; `ii` after a name is not.
            if word in _GENERATIONS and (number or named):
                generation = _GENERATIONS[word]
            elif word not in _DEGREES or not (number or named):
                kept.append(word)
        while kept and kept[0] in TITLES and len(kept) > 1:
            addressed = addressed or _ADDRESSED.get(kept[0], "")
            title = title or kept[0]
            kept = kept[1:]
        if kept and not (named and kept[0] in TITLES):
            named.append(kept)
    order = [*named[1], *named[0]] if len(named) > 1 else (named[0] if named else [])
    turned = len(named[0]) if len(named) > 1 else 0
    # `Gogh, Vincent van`
    while 0 < turned < len(order) - 1 and order[len(order) - turned - 1] in _PARTICLES:
        turned += 1
    if not order or _SEVERAL.search(name):
        alone = " ".join(normalised(name).replace("&", " and ").split())
        return PersonName(single=alone, generation=generation, addressed=addressed, title=title, several=bool(order))
    if len(order) == 1:
        return PersonName(single=order[0], generation=generation, addressed=addressed, title=title)
    if not turned and len(named) == 1 and all(word in _PARTICLES for word in order[:-1]):
        # `van Gogh` is a surname, as in `Vincent van Gogh`; `Van Morrison` has a given name, and is found by it, too.
        return PersonName(single=" ".join(order), generation=generation, addressed=addressed, title=title)
    start = len(order) - turned if turned else _surname_start(order)
    if not addressed and len(order) == 2 and _MONSIEUR.match(name):
        addressed = "mr"
    return PersonName(order[0], tuple(order[1:start]), " ".join(order[start:]), "", generation, addressed, title)


def titles_agree(one: str, other: str) -> bool:
    """Whether one person may be addressed both ways; an empty one says nothing."""
    return tuple(sorted((one, other))) not in _CONTRADICT


def _initials_apart(name: str) -> str:
    """`JL Picard` as `J. L. Picard`, and `Picard JL` as `Picard, J. L.`; other names as they are."""
    first, last = _INITIALS_FIRST.match(name), _INITIALS_LAST.fullmatch(name)
    if first and first[1].lower() not in TITLES:
        return f"{'. '.join(first[1])}. {name[first.end() :]}"
    if last and last[2].lower() not in _DEGREES | _GENERATIONS.keys():
        return f"{last[1]}, {'. '.join(last[2])}."
    return name


def _surname_start(order: list[str]) -> int:
    for number, word in enumerate(order[1:-1], 1):
        if word in _PARTICLES:
            return number
    return len(order) - 1


@lru_cache(maxsize=50_000)
def thing_names(name: str, entity_class: str) -> tuple[ThingName, ...]:
    """All that the name of anything but a person may be elsewhere."""
    if name.isascii():
        return (thing_name(name, entity_class),)
    if entity_class in _ORGANISATIONS:
        name = _JOINED_LEGAL.sub(" ", name).strip() or name
    found = [thing_name(each, entity_class) for each in spellings(name)]
    if _HAN.search(name):
        found[1:] = [replace(each, by_sound=True) for each in found[1:]]
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=200_000)
def thing_name(name: str, entity_class: str) -> ThingName:
    """Take the name of anything but a person apart."""
    if (explained := _EXPLAINED.fullmatch(name)) and explained[2].lower() in thing_name(
        explained[1], entity_class
    ).initials:
        name = explained[1]
    organisation = entity_class in _ORGANISATIONS
    head, *rest = normalised(name).split(",")
    if entity_class != "Location":
        head, rest = " ".join([head, *rest]), []
    # Of a class of the deployment's own its name is all that is known: `Ship Aurora` is `Aurora` among ships.
    class_words = _CLASS_WORDS.get(entity_class) or _own_words(entity_class)
    whole = _thing_words(head)
    kept = list(whole)
    while (size := _tail(kept, class_words, organisation)) and len(kept) > size:
        del kept[-size:]
    if organisation and len(kept) > 1 and kept[0] in _LEADING:
        del kept[0]
    if entity_class != "Company":
        while len(kept) > 1 and kept[0] in class_words:
            kept.pop(0)
    chosen = tuple([word for word in kept if word not in _LINKS] or kept or [normalised(name)])
    return ThingName(
        chosen,
        tuple(word for part in rest for word in _thing_words(part)),
        frozenset(word for word in chosen if any(letter.isdigit() for letter in word)),
        chosen[0] if len(chosen) == 1 and _ACRONYM.fullmatch(name.replace(".", "").strip()) else "",
        frozenset(
            "".join(word[0] for word in line)
            for line in (chosen, [word for word in whole if word not in _LINKS])
            if len(line) > 2
        ),
    )


@cache
def _own_words(entity_class: str) -> frozenset[str]:
    return frozenset() if entity_class in CONTRACT_CLASSES else frozenset(spoken(entity_class).split())


def _tail(kept: list[str], class_words: frozenset[str], organisation: bool) -> int:
    """How many of the last words say what something is, and not which: 0 if none does."""
    if organisation:
        legal = _legal_forms()
        for size in range(min(_LONGEST_LEGAL, len(kept) - 1), 0, -1):
            if tuple(kept[-size:]) in legal:
                return size
    # `GmbH & Co. KG` leaves an `and`.
    return int(bool(kept) and (kept[-1] in class_words or kept[-1] == "and"))


@cache
def _legal_forms() -> frozenset[tuple[str, ...]]:
    """The legal forms of firms in all countries that cleanco knows, as words."""
    from cleanco.termdata import terms_by_type

    spelt = (*(term for terms in terms_by_type.values() for term in terms), *_MORE_LEGAL)
    return frozenset(form for term in spelt if (form := tuple(_words(normalised(term)))))


@cache
def _nicknames() -> Any:
    from nicknames import NickNamer

    return NickNamer()


@lru_cache(maxsize=50_000)
def full_names(given: str) -> frozenset[str]:
    """The names that a given name may be short for, itself included: `bill` is `william`."""
    return frozenset({given, *(_nicknames().canonicals_of(given) if len(given) > 1 else ())})


def _thing_words(text: str) -> list[str]:
    found = _words(text.replace("&", " and "))
    # `St Helens` begins with a saint, `Main St` ends with a street.
    return [_SHORT.get(word, word) if number or word != "st" else word for number, word in enumerate(found)]


def _words(text: str) -> list[str]:
    return [word for word in _APART.sub(" ", _DOTS.sub("", text)).split() if word not in ("-", "&")]

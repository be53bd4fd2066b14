"""What the fields of a document say: names with a class, facts about whom a record is of. No model is asked.

Belongs here: reading the lines that `ec1.documents.fields` put before a document's text. Does not: fields inside the
text, which the model decides on (`candidates`).
"""

import re
from collections.abc import Iterator

from ec1.documents.fields import FACTS, NAMES, plain_key
from ec1.extraction.defence.instructions import FILLER
from ec1.extraction.folding import normalised
from ec1.extraction.naming.filters import objection
from ec1.extraction.results import ENTITY_CLASSES, EntityClass, Mention, Trait
from ec1.vocabulary import CONTRACT, Vocabulary

# Raise this when the same fields would give other names or facts.
FIELDS_VERSION = 1

_CONFIDENCE = 0.95
_LINE = re.compile(r"^(?P<key>[^:\n]{1,40}): (?P<value>[^\n]+)$", re.MULTILINE)
_EMAIL = re.compile(r"(?<![^\s<>(),;@])[^\s<>(),;@]++@[^\s<>(),;@]+\.[A-Za-z]{2,24}")
# What follows a name in an item: `Jane Smith <jane@…>`, `Jane Smith (Acme)`, `Jane Smith - chair`.
_AFTER_NAME = re.compile(r"\s*[<(\[|]|\s+[-–—/]\s+|\s+\S+@")
_SEVERAL = re.compile(r"s$|^(?:present|apologies|teilnehmer|teilnehmende|出席者)$")
_MOST_WORDS: dict[EntityClass, int] = {"Person": 5}
_WORDS = 10


def mentions_in(text: str, end: int, vocabulary: Vocabulary = CONTRACT) -> list[Mention]:
    """The names in the fields that stand in the first `end` characters of a text, of the classes that there are."""
    found = []
    for key, start, value in _fields(text, end):
        for entity_class in ENTITY_CLASSES:
            if key not in NAMES[entity_class] or entity_class not in vocabulary.classes:
                continue
            for first, last in _items(value, several=_SEVERAL.search(key) is not None and entity_class == "Person"):
                place = (start + first, start + last)
                if _is_name(text, place, entity_class):
                    found.append(
                        Mention(
                            name=" ".join(text[slice(*place)].split()),
                            entity_class=entity_class,
                            confidence=_CONFIDENCE,
                            chunk=0,
                            start=place[0],
                            end=place[1],
                            proven=True,
                        )
                    )
            break
    return found


def traits_in(text: str, end: int, vocabulary: Vocabulary = CONTRACT) -> list[Trait]:
    """The facts in the fields about whom the record is of: its one person, or its one company if it names no person;
    and the e-mail that stands beside a name in a field."""
    mentions = mentions_in(text, end, vocabulary)
    found = set()
    for mention in mentions:
        line_end = text.find("\n", mention.end)
        beside = re.split("[;,]", text[mention.end : line_end])[0]
        if mention.entity_class == "Person" and (address := _EMAIL.search(beside)):
            found.add(_trait(mention, "email", address[0]))
    owner = _owner(mentions)
    if owner is not None:
        for key, _, value in _fields(text, end):
            for kind, keys in FACTS.items():
                if key in keys and (kind != "email" or _EMAIL.fullmatch(value)):
                    found.add(_trait(owner, kind, value))
    return sorted(found, key=lambda trait: (trait.name, trait.kind, trait.value))


def _fields(text: str, end: int) -> Iterator[tuple[str, int, str]]:
    """Key, place and value of each field."""
    for match in _LINE.finditer(text, 0, end):
        if FILLER not in match[0]:
            yield plain_key(match["key"]), match.start("value"), match["value"]


def _items(value: str, *, several: bool) -> Iterator[tuple[int, int]]:
    """Where the names of a value stand in it."""
    for match in re.finditer(r"[^;,]+" if several else "[^;]+", value):
        item = match[0]
        if cut := _AFTER_NAME.search(item):
            item = item[: cut.start()]
        left = len(item) - len(item.lstrip(" \t\"'*_"))
        core = item.strip(" \t\"'*_")
        if core:
            yield match.start() + left, match.start() + left + len(core)


def _is_name(text: str, place: tuple[int, int], entity_class: EntityClass) -> bool:
    name = text[slice(*place)]
    if "@" in name or len(name.split()) > _MOST_WORDS.get(entity_class, _WORDS):
        return False
    if entity_class == "Person" and any(character.isdigit() for character in name):
        return False
    # A name stands where a name is expected: that its letters are a word of the text too says nothing.
    return objection(text, [place], entity_class, in_field=True) is None


def _owner(mentions: list[Mention]) -> Mention | None:
    for entity_class in ("Person", "Company"):
        names = {normalised(each.name): each for each in mentions if each.entity_class == entity_class}
        if names:
            return next(iter(names.values())) if len(names) == 1 else None
    return None


def _trait(mention: Mention, kind: str, value: str) -> Trait:
    digits = re.sub(r"\D", "", value)
    plain = digits if kind in ("phone", "birth_date") and digits else normalised(value)
    return Trait(name=mention.name, entity_class=mention.entity_class, kind=kind, value=plain)

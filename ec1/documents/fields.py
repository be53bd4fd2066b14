"""The fields of a document (front matter, a contact record) that hold names, facts or prose, as lines before its text.

Belongs here: which keys say what, and how such a field is written as a line. Does not: what is made of the lines
(`ec1.extraction.reading.fields`). They are part of the document's text, so that a name in a field has a place like any
other.

A record inside a record says what its key says: the name in `employer: {name: …}` is a line `employer: …`. Where that
key is in none of the lists, the name is a line of a key that is in none either, such as `machine name: …`: text to be
read, and no proof of a class. So is any other key's value, such as `moderator: Lena Fuchs`, if there are words in it;
what is an id, a number, a path or a label in small letters is not a line.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from ec1.documents.markup import without_markup
from ec1.documents.text import clean


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES: dict[str, frozenset[str]] = {
    "Person": _keys(
        """name full_name contact contacts contact_name contact_person person persons people author authors
        attendee attendees participant participants
        present apologies speaker speakers interviewer interviewee chair chaired_by host owner reviewer
        approver asked_by
        requested_by written_by prepared_by recorded_by minutes_by teilnehmer teilnehmende autor autorin
        verfasser présents
        auteur asistentes autora 出席者 姓名 氏名"""
    ),
    "Company": _keys(
        """company organisation organization employer firm client customer supplier vendor companies organisations
        organizations employers firms clients customers suppliers vendors
        company_name organization_name organisation_name associated_company firma firmen unternehmen
        kunde société
        entreprise empresa cliente 公司 会社 客户"""
    ),
    "Project": _keys("project projects projekt projet proyecto 项目"),
    "Account": _keys("account accounts konto konten compte cuenta"),
    "Location": _keys("location locations place places venue venues site sites standort lieu lugar 地点 場所"),
}
"""Keys whose values are names of a class."""
FACTS: dict[str, frozenset[str]] = {
    "email": _keys("email e_mail mail email_address e_mail_address user_email work_email correo courriel"),
    "phone": _keys(
        "phone telephone tel mobile phone_number cell mobile_phone business_phone work_phone home_phone primary_phone "
        "telefon téléphone teléfono"
    ),
    "birth_date": _keys("birth_date date_of_birth dob birthday geburtsdatum"),
    "identifier": _keys("identifier customer_id member_id tax_id vat_id employee_id soc_sec_id"),
    "street": _keys("street address_1 street_name strasse straße rue calle"),
    "house_number": _keys("house_number street_number hausnummer"),
    "postcode": _keys("postcode postal_code zip zip_code plz"),
    "city": _keys("city town suburb stadt ville ciudad"),
    "region": _keys("region state province county bundesland"),
}
"""Keys whose values are facts about whom a record is of, by the kind of fact (`ec1.graph.resolution.scoring.KINDS`)."""
PROSE = _keys(
    "title subject topic headline summary abstract description note notes comment comments bio about room "
    "betreff titel objet asunto notiz notizen"
)
"""Keys whose values are read like the text."""
GIVEN = _keys("given_name first_name forename firstname vorname prénom voornaam förnamn fornavn imię")
FAMILY = _keys(
    "surname last_name family_name lastname nachname familienname apellido apellidos cognome sobrenome achternaam "
    "efternamn etternavn efternavn nazwisko"
)
_FULL = ("name", "full_name")
# What a record of a person may stand in: its fields are the person's.
_PERSON_ITSELF = _keys("contact person profile personal identity user employee individual card data record details")
OF_THE_CONTRACT = _keys("file destination_archive edge_entities")
"""What a contact file says about where it goes, and not about whom it is of (docs/contracts.md)."""
_BETWEEN_WORDS = re.compile(r"[\s-]+|(?<=[a-z])(?=[A-Z])")
_WORD = re.compile(r"[^\W\d_]+(?:['’.-][^\W\d_]+)*")
# `[[People/Lena Fuchs#notes|Lena]]`, as note programs link their notes, and `[Lena Fuchs](../people/lena.md)`.
_WIKI_LINK = re.compile(r"\[\[([^\[\]|]+)(?:[|]([^\[\]]+))?\]\]")
_MARKDOWN_LINK = re.compile(r"(?<!!)\[([^\[\]]+)\]\([^()\s]*\)")
_MAX_CHARACTERS = 200
MAX_PROSE = 2000
"""Characters of a string that is a field; a longer one is a text."""
_MAX_ITEMS = 2000
_MAX_DEPTH = 16
KNOWN = frozenset().union(*NAMES.values(), *FACTS.values())
"""Keys whose values are names or facts."""
_LISTED = KNOWN | PROSE | GIVEN | FAMILY | OF_THE_CONTRACT


@lru_cache(maxsize=1024)
def plain_key(key: str) -> str:
    """A key as the lists here have it: `Asked by`, `asked-by` and `askedBy` are `asked_by`."""
    return _BETWEEN_WORDS.sub("_", key.strip()).casefold()


def lines(record: Mapping[str, Any]) -> str:
    """The fields of a record that are names or facts, a line each, with a blank line at the end; empty if there are
    none. Fields of a record inside it, such as an address, follow those of the record itself."""
    return _joined(_lines(record))


def prose(record: Mapping[str, Any], text: str) -> str:
    """The fields of a record that are prose, in the same way, but for what the text says in the same words."""
    return _joined(_said(record, text, lambda key: key in PROSE))


def others(record: Mapping[str, Any], text: str) -> str:
    """The fields of a record under keys of no list that have words in them, in the same way."""
    return _joined(_said(record, text, lambda key: key not in _LISTED, _has_words))


def lines_inside(record: Mapping[str, Any], key: str, most: int, depth: int = 0) -> Iterator[str]:
    """The fields with words in them of a record inside another, under this key, and of those in it, a line each; those
    that are no names or facts only if they are shorter than `most`."""
    start = f"{_shown(key)} " if key else ""
    if (name := _whole_name(record)) and not any(plain_key(each) in _FULL for each in record):
        yield f"{start}name: {name}"
    for each, value in record.items():
        if isinstance(value, Mapping):
            if depth < _MAX_DEPTH:
                yield from lines_inside(value, each, most, depth + 1)
            continue
        if plain_key(each) in GIVEN | FAMILY:
            continue
        texts = (_text(item, MAX_PROSE if plain_key(each) in KNOWN else most - 1) for item in _items(value))
        if said := "; ".join(text for text in texts if text and _has_words(text)):
            yield f"{start}{_shown(each)}: {said}"


def is_field(key: str, value: str) -> bool:
    """Whether this string is read as a field of a record: a line of its own before the text."""
    plain = plain_key(key)
    return plain in KNOWN | PROSE and len(value) <= MAX_PROSE


def _joined(found: Iterable[str]) -> str:
    text = "".join(f"{line}\n" for line in found)
    return f"{text}\n" if text else ""


def _lines(record: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    if (name := _whole_name(record)) and not any(plain_key(key) in _FULL for key in record):
        yield f"name: {name}"
    inner: list[tuple[str, Mapping[str, Any]]] = []
    for key, value in record.items():
        items = _items(value)
        records = [item for item in items if isinstance(item, Mapping)]
        if plain_key(key) in KNOWN:
            named = [_whole_name(item) if isinstance(item, Mapping) else _text(item, MAX_PROSE) for item in items]
            # One person in a record of its own is whom the record is of: its fields follow as they are.
            alone = isinstance(value, Mapping) and plain_key(key) in _PERSON_ITSELF
            if (said := "; ".join(each for each in named if each)) and not alone:
                yield f"{_shown(key)}: {said}"
        if isinstance(value, Mapping) or plain_key(key) in KNOWN:
            inner += [(plain_key(key), item) for item in records]
    if depth == 0:
        for key, item in inner:
            yield from _inner_lines(key, item)


def _inner_lines(key: str, record: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a record inside another, under this key."""
    if key in _PERSON_ITSELF:
        yield from _lines(record, 1)
        return
    own = next((entity_class for entity_class, keys in NAMES.items() if key in keys), None)
    name = _whole_name(record)
    if name and own is None:
        yield f"{_shown(key)} name: {name}"
    rest = {each: value for each, value in record.items() if plain_key(each) not in (*_FULL, *GIVEN, *FAMILY)}
    for line in _lines(rest, 1):
        # A firm's telephone is not a fact about the person whose record it stands in.
        is_fact = any(plain_key(line.partition(":")[0]) in keys for keys in FACTS.values())
        yield f"{_shown(key)} {line}" if own is not None and is_fact else line


def _whole_name(record: Mapping[str, Any]) -> str:
    """The name that a record is of: its own field, or its parts; empty if it has none."""
    keys = {plain_key(key): key for key in record}
    for key in _FULL:
        if key in keys and (name := _text(record[keys[key]])):
            return name
    parts = [_text(record[keys[key]]) for names in (GIVEN, FAMILY) for key in sorted(names & keys.keys())]
    return " ".join(part for part in parts if part)


def _shown(key: str) -> str:
    return plain_key(key).replace("_", " ")


def _said(
    record: Mapping[str, Any],
    text: str,
    is_chosen: Callable[[str], bool],
    is_said: Callable[[str], bool] = bool,
) -> Iterator[str]:
    """The chosen fields of a record, a line each, with those of their values that the text does not have."""
    for key, value in record.items():
        if is_chosen(plain_key(key)):
            texts = (_text(item, MAX_PROSE) for item in _items(value))
            if said := "; ".join(each for each in texts if each and each not in text and is_said(each)):
                yield f"{_shown(key)}: {said}"


def _items(value: object) -> list[Any]:
    """What a field has one or several of. `[[Lena Fuchs]]` without quotes, which YAML takes for lists, is a link."""
    if not isinstance(value, list):
        return [value]
    if len(value) == 1 and isinstance(value[0], list) and all(isinstance(each, str) for each in value[0]):
        return [f"[[{', '.join(value[0])}]]"]
    return [item for each in value[:_MAX_ITEMS] for item in _items(each)][:_MAX_ITEMS]


def _has_words(value: str) -> bool:
    """Whether a value has two words, or one that is written like a name; in writing without capitals, any."""
    words = [each for token in value.split() if _WORD.fullmatch(each := token.strip(".,;:!?()[]\"'")) and len(each) > 1]
    return len(words) > 1 or any(not (each.islower() or each.isupper()) for each in words)


def _text(value: object, most: int = _MAX_CHARACTERS) -> str:
    """A value as a part of a line, links as they are read; nothing of what is not text, or a longer one."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**18 else ""
    if not isinstance(value, str) or len(value) > most:
        return ""
    text = clean(without_markup(value))
    return " ".join(_MARKDOWN_LINK.sub(r"\1", _WIKI_LINK.sub(_linked, text)).split())


def _linked(link: re.Match[str]) -> str:
    """The name of the note that a link leads to, which is whole where what is shown may be short; of a file named in
    one word what is shown."""
    note = link[1].partition("#")[0].rpartition("/")[2].strip()
    return note if " " in note or not link[2] else link[2]

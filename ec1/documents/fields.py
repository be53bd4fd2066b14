"""The fields of a document (front matter, a contact record) whose values are names or facts, as lines before its text.

Belongs here: which keys say what, and how such a field is written as a line. Does not: what is made of the lines
(`ec1.extraction.fields`). They are part of the document's text, so that a name in a field has a place like any other.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ec1.documents.text import clean


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


NAMES: dict[str, frozenset[str]] = {
    "Person": _keys(
        """name full_name contact contact_name contact_person author authors attendee attendees participant participants
        present apologies speaker speakers interviewer interviewee chair chaired_by host owner reviewer
        approver asked_by
        requested_by written_by prepared_by recorded_by minutes_by teilnehmer teilnehmende autor autorin
        verfasser présents
        auteur asistentes autora 出席者 姓名 氏名"""
    ),
    "Company": _keys(
        """company organisation organization employer firm client customer supplier vendor firma unternehmen
        kunde société
        entreprise empresa cliente 公司 会社 客户"""
    ),
    "Project": _keys("project projects projekt projet proyecto 项目"),
    "Account": _keys("account konto compte cuenta"),
    "Location": _keys("location place venue site standort lieu lugar 地点 場所"),
}
"""Keys whose values are names of a class."""
FACTS: dict[str, frozenset[str]] = {
    "email": _keys("email e_mail mail email_address correo courriel"),
    "phone": _keys("phone telephone tel mobile phone_number cell telefon téléphone teléfono"),
    "birth_date": _keys("birth_date date_of_birth dob birthday geburtsdatum"),
    "identifier": _keys("identifier customer_id member_id tax_id vat_id employee_id soc_sec_id"),
    "street": _keys("street address_1 street_name strasse straße rue calle"),
    "house_number": _keys("house_number street_number hausnummer"),
    "postcode": _keys("postcode postal_code zip zip_code plz"),
    "city": _keys("city town suburb stadt ville ciudad"),
    "region": _keys("region state province county bundesland"),
}
"""Keys whose values are facts about whom a record is of, by the kind of fact (`ec1.graph.scoring.KINDS`)."""
GIVEN = _keys("given_name first_name forename firstname vorname prénom")
FAMILY = _keys("surname last_name family_name lastname nachname apellido")
_MAX_CHARACTERS = 200
_MAX_ITEMS = 100
_KNOWN = frozenset().union(*NAMES.values(), *FACTS.values())


def plain_key(key: str) -> str:
    """A key as the lists here have it: `Asked by` and `asked-by` are `asked_by`."""
    return re.sub(r"[\s-]+", "_", key.strip().casefold())


def lines(record: Mapping[str, Any]) -> str:
    """The fields of a record that are names or facts, a line each, with a blank line at the end; empty if there are
    none. Fields of a nested record, such as an address, follow those of the record itself."""
    found = list(_lines(record))
    return "".join(f"{line}\n" for line in found) + "\n" if found else ""


def _lines(record: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    keys = {plain_key(key): key for key in record}
    parts = [_text(record[keys[key]]) for names in (GIVEN, FAMILY) for key in sorted(names & keys.keys())]
    if any(parts) and "name" not in keys and "full_name" not in keys:
        yield f"name: {' '.join(part for part in parts if part)}"
    nested = []
    for key, value in record.items():
        if isinstance(value, Mapping):
            nested.append(value)
        elif plain_key(key) in _KNOWN:
            items = [_text(item) for item in value[:_MAX_ITEMS]] if isinstance(value, list) else [_text(value)]
            if text := "; ".join(item for item in items if item):
                yield f"{plain_key(key).replace('_', ' ')}: {text}"
    if depth == 0:
        for value in nested:
            yield from _lines(value, depth + 1)


def _text(value: object) -> str:
    """A value as a part of a line; nothing of what is no short text."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value) if abs(value) < 10**18 else ""
    if not isinstance(value, str) or len(value) > _MAX_CHARACTERS:
        return ""
    return " ".join(clean(value).split())

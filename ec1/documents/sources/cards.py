"""The contacts of an address book in vCard (RFC 6350, and 2.1 and 3.0), and the events of a calendar in iCalendar (RFC
5545), each as a record like those of contact files.

Belongs here: which property is which field (`ec1.documents.fields`). vobject reads the formats.
"""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ec1.documents.text import decode
from ec1.errors import RejectedError

_ADDRESS = {"street": "street", "city": "city", "region": "region", "code": "postcode", "country": "country"}
_FIELDS = {
    "about": ("title", "role"),
    "email": ("email",),
    "phone": ("tel",),
    "birth_date": ("bday",),
    "note": ("note",),
    "nickname": ("nickname",),
    "related": ("related", "agent", "x-abrelatednames", "x-assistant", "x-manager", "x-spouse"),
}


# Who does not take part in an event (RFC 5545, 3.2.3).
_NOBODY = {"ROOM", "RESOURCE"}
_EVENTS = {"VEVENT", "VTODO", "VJOURNAL"}
_DAY = re.compile(r"(\d{4})(\d{2})(\d{2})")
_SURNAME_FIRST = re.compile(r"([^,\s]+(?: [^,\s]+)?), ([^,\s]+(?: [^,\s]+)?)")
# What the library raises for a broken file, beside its own errors.
_BROKEN = ValueError, LookupError, TypeError, AttributeError, RecursionError


def contacts(path: Path) -> Iterator[dict[str, Any]]:
    """A record of each card, with what says who it is, how to reach them and what was noted; pictures, keys and times
    are left out. Raises RejectedError where the file cannot be read on; OSError."""
    for card in _components(path, "VCARD", "an address book"):
        if record := _record(card.contents):
            yield record


def events(path: Path) -> Iterator[dict[str, Any]]:
    """A record of each event and task: what it is, when, where and who takes part. Of one that comes again the first.
    Raises as `contacts` does."""
    for calendar in _components(path, "VCALENDAR", "a calendar"):
        for event in calendar.components():
            if event.name in _EVENTS and (record := _event(event.contents)):
                yield record


def _components(path: Path, name: str, what: str) -> Iterator[Any]:
    import vobject

    text = decode(path.read_bytes())
    begun, ended = len(re.findall(rf"^BEGIN:{name}[ \t]*\r?$", text, re.IGNORECASE | re.MULTILINE)), 0
    try:
        # Times are not made into Python's: those of a time zone that nobody knows are broken to it.
        is_card = name == "VCARD"
        for each in vobject.readComponents(io.StringIO(text), ignoreUnreadable=True, allowQP=True, transform=is_card):
            if each.name == name:
                ended += 1
                yield each
    except (vobject.base.VObjectError, *_BROKEN) as error:
        raise RejectedError(f"not {what} that can be read: {error}") from None
    if ended != begun or not begun:
        # The library takes one after another that was cut short for a part of it.
        raise RejectedError(f"not {what} that can be read: {begun} begin, {ended} end")


def _event(event: dict[str, list[Any]]) -> dict[str, Any]:
    def texts(name: str) -> list[str]:
        return [text for each in event.get(name, ()) if (text := str(each.value).strip())]

    day = next((match for name in ("dtstart", "due") for text in texts(name) if (match := _DAY.match(text))), None)
    guests = [each for each in event.get("attendee", ()) if _NOBODY.isdisjoint(each.params.get("CUTYPE", ()))]
    found: dict[str, Any] = {
        "title": " ".join(texts("summary")),
        "date": "-".join(day.groups()) if day else "",
        "where": texts("location"),
        "host": [_guest(each) for each in event.get("organizer", ())],
        "attendees": [_guest(each) for each in guests],
        "text": "\n\n".join([*texts("description"), *texts("comment")]),
    }
    return {field: value for field, value in found.items() if value}


def _guest(line: Any) -> str:
    """A name and the address, as in a mail; `Lee, Ann` is `Ann Lee`."""
    address = re.sub("(?i)^mailto:", "", str(line.value))
    name = " ".join(line.params.get("CN", ()))
    name = _SURNAME_FIRST.sub(r"\2 \1", name) if _SURNAME_FIRST.fullmatch(name) else name
    return f"{name} <{address}>" if name and name != address else address


def _record(card: dict[str, list[Any]]) -> dict[str, Any]:
    def texts(*names: str) -> list[str]:
        return [text for name in names for each in card.get(name, ()) if (text := _text(each.value))]

    name = next(iter(texts("fn") or texts("n")), "")
    is_firm = not {"org", "company"}.isdisjoint(map(str.lower, texts("kind", "x-abshowas")))
    # The first part is the organisation, the others its units.
    firms = [_text(each.value[:1] if isinstance(each.value, list) else each.value) for each in card.get("org", ())]
    if is_firm:
        firms, name = [name, *firms], ""
    found: dict[str, Any] = {"name": name, "organization": list(dict.fromkeys(filter(None, firms)))}
    found |= {field: texts(*names) for field, names in _FIELDS.items()}
    found["phone"] = [each.removeprefix("tel:") for each in found["phone"]]
    for address in card.get("adr", ())[:1]:
        parts = {ours: _text(getattr(address.value, theirs, "")) for theirs, ours in _ADDRESS.items()}
        found["address"] = {part: text for part, text in parts.items() if text}
    return {field: value for field, value in found.items() if value}


def _text(value: object) -> str:
    """A value that may be a list, or a name of several parts, in one line."""
    parts = map(str, value) if isinstance(value, list) else [str(value)]
    return " ".join(" ".join(parts).split())

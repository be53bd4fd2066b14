"""The contacts of an address book in vCard (RFC 6350, and 2.1 and 3.0), each as a record like those of contact files.

Belongs here: which property of a card is which field (`ec1.documents.fields`). vobject reads the format.
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


_BEGINNING = re.compile(r"^BEGIN:VCARD[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
# What the library raises for a broken file, beside its own errors.
_BROKEN = ValueError, LookupError, TypeError, AttributeError, RecursionError


def contacts(path: Path) -> Iterator[dict[str, Any]]:
    """A record of each card, with what says who it is, how to reach them and what was noted; pictures, keys and times
    are left out. Raises RejectedError where the file cannot be read on; OSError."""
    import vobject

    text = decode(path.read_bytes())
    begun, ended = len(_BEGINNING.findall(text)), 0
    try:
        for card in vobject.readComponents(io.StringIO(text), ignoreUnreadable=True, allowQP=True):
            if card.name != "VCARD":
                continue
            ended += 1
            if record := _record(card.contents):
                yield record
    except (vobject.base.VObjectError, *_BROKEN) as error:
        raise RejectedError(f"not an address book that can be read: {error}") from None
    if ended != begun or not begun:
        # The library takes a contact after one that was cut short for a part of it.
        raise RejectedError(f"not an address book that can be read: {begun} contacts begin, {ended} end")


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

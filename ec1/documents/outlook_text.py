"""What kreuzberg 4.10 does not read of an Outlook mail: a text that is in HTML alone, as programs other than Outlook
save it (it reads such a body only where it is stored as characters, and takes no more than the tags out of it;
Exchange stores bytes), and a mail that is attached to it ([MS-OXMSG] 2.2.2.2, [MS-OXPROPS]).
"""

import io
from collections.abc import Sequence
from email.message import Message

import olefile

from ec1.documents.markup import html_text, strip_html

INNER_MAIL = "__substg1.0_3701000D"
"""The storage of a mail in that of an attachment."""
# Properties are stored as UTF-16, or in an encoding of Windows.
_CODINGS = {"001F": "utf-16-le", "001E": "cp1252"}
_HEADS = {"Subject": "0037", "From": "0C1A", "To": "0E04", "Cc": "0E03"}
_HTML_CHARACTERS, _HTML_BYTES = "__substg1.0_1013001F", ("__substg1.0_10130102", "__substg1.0_1013001E")
_BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def html_body(data: bytes) -> str:
    """What a mail says in HTML; empty if it says it in plain text, too, or cannot be read."""
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as mail:
            return "" if _text(mail, (), "1000") else _html(mail, ())
    except _BROKEN:
        return ""


def as_mail(mail: olefile.OleFileIO, place: Sequence[str]) -> bytes:
    """The mail in this storage of another, without attachments, as programs other than Outlook write mails."""
    written = Message()
    for head, tag in _HEADS.items():
        if said := " ".join(_text(mail, place, tag).split()):
            written[head] = said
    written.set_payload(_text(mail, place, "1000") or _html(mail, place), "utf-8")
    return written.as_bytes()


def _text(mail: olefile.OleFileIO, place: Sequence[str], tag: str) -> str:
    """A property that is text; empty if there is none."""
    streams = ([*place, f"__substg1.0_{tag}{kind}"] for kind in _CODINGS)
    found = next(filter(mail.exists, streams), None)
    return mail.openstream(found).read().decode(_CODINGS[found[-1][-4:]], "replace").strip("\0 \r\n") if found else ""


def _html(mail: olefile.OleFileIO, place: Sequence[str]) -> str:
    if mail.exists(found := [*place, _HTML_CHARACTERS]):
        return strip_html(mail.openstream(found).read().decode("utf-16-le", "replace"))
    found = next(filter(mail.exists, ([*place, each] for each in _HTML_BYTES)), [])
    return html_text(mail.openstream(found).read()) if found else ""

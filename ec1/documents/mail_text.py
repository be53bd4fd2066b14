"""The text of a mail (RFC 5322, MIME): who wrote to whom about what and when, and what it says.

Belongs here: which parts of a mail are its text, and headers as they were meant. Does not: what is attached
(`containers.py`). The standard library parses mail, `markup.py` HTML. kreuzberg 4.10 only takes the tags out of
HTML (`Ann Lee</td><td>Glass Ltd` in one word), does not know ISO-2022-JP, and joins the lines of a signature.
"""

import binascii
import email
import email.errors
import email.header
import email.message
import email.policy

from ec1.documents.markup import html_text
from ec1.documents.text import clean, decode
from ec1.errors import RejectedError, one_line

BROKEN_MAIL = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""What the standard library raises for bytes that are no mail."""
_FIELDS = ("Subject", "From", "To", "Cc", "Bcc", "Date")
_NO_WORDS = frozenset({"text/css", "text/javascript"})
"""Beside the page, in a web page that a browser saved."""
_MUCH_MORE = 2
"""Times the words of the plain text: what a mail says in HTML alone, beside `Please view this message in HTML`."""


def mail_text(data: bytes) -> tuple[str, str]:
    """A mail's subject, and its text: a line for each header that a reader sees, then what it says. Attached mails and
    files are not part of it. Raises RejectedError for bytes that are no mail."""
    try:
        message = message_of(data)
        headers = [(name, _values(message, name)) for name in _FIELDS]
        body = _said(message, is_whole=True)
    except BROKEN_MAIL as error:
        raise RejectedError(f"not converted: not a mail that can be read: {one_line(error)}") from None
    if not message.keys():
        raise RejectedError("not converted: not a mail, it has no headers")
    head = "\n".join(f"{name}: {value}" for name, value in headers if value)
    return dict(headers)["Subject"], f"{head}\n\n{body}"


def message_of(data: bytes) -> email.message.Message:
    """A mail with its parts. Raises one of `BROKEN_MAIL`."""
    # Editors and scripts leave a byte-order mark or an empty line before the first header.
    return email.message_from_bytes(data.lstrip(b"\xef\xbb\xbf\r\n"), policy=email.policy.compat32)


def file_name(part: email.message.Message) -> str | None:
    """The name that a part has as a file, which may be a path; None if it is none."""
    name = part.get_filename()
    return None if name is None else decoded(name)


def decoded(header: str) -> str:
    """A header's value as it was meant: encoded words (RFC 2047) in whatever encoding, and bytes that are not ASCII."""
    if not header.isascii():
        header = _letters(header.encode("utf-8", "surrogateescape"))
    try:
        words = email.header.decode_header(header)
    except (email.errors.HeaderParseError, binascii.Error):
        return header
    return "".join(_word(word, charset) for word, charset in words)


def _word(word: str | bytes, charset: str | None) -> str:
    if isinstance(word, str):
        return word
    # What stands between encoded words comes in this encoding.
    return _letters(word, charset) if charset else word.decode("raw-unicode-escape", "replace")


def _letters(data: bytes, charset: str = "") -> str:
    """Bytes as text, whatever they are: one header must not take the mail with it."""
    try:
        return decode(data, charset)
    except RejectedError:
        return data.decode("utf-8", "replace")


def _values(message: email.message.Message, name: str) -> str:
    found = [value for key, value in message.raw_items() if key.lower() == name.lower()]
    return ", ".join(" ".join(clean(decoded(str(value))).split()) for value in found)


def _said(part: email.message.Message, *, is_whole: bool = False) -> str:
    """What a part says, with the parts in it; nothing of a file, or of a mail that is attached."""
    kind = part.get_content_type()
    if part.is_multipart():
        inner = [each for each in part.get_payload() if isinstance(each, email.message.Message)]
        if kind.startswith("message/"):
            return ""
        if kind == "multipart/alternative":
            # An invitation is one of its own versions, for calendars.
            inner = [each for each in inner if each.get_content_type() != "text/calendar"] or inner
            return _fullest([text for each in inner if (text := _said(each).strip())])
        return "\n\n".join(text for each in inner if (text := _said(each).strip()))
    payload = part.get_payload(decode=True)
    # What says that it has parts and has none is text, too.
    if not kind.startswith(("text/", "multipart/")) or kind in _NO_WORDS or not isinstance(payload, bytes):
        return ""
    if not is_whole and file_name(part) is not None:
        return ""
    charset = str(part.get_content_charset() or "")
    try:
        return html_text(payload, charset) if kind == "text/html" else decode(payload, charset)
    except RejectedError:
        return ""


def _fullest(versions: list[str]) -> str:
    """The first version, which is the plain one, unless another says much more."""
    best = versions[0] if versions else ""
    for each in versions[1:]:
        if len(each.split()) > _MUCH_MORE * len(best.split()):
            best = each
    return best

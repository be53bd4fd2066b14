"""A file's bytes to the text that is read for entities, by its suffix (docs/contracts.md, docs/documents.md).

Belongs here: what text files look like inside. `text.py` handles encodings, `markup.py` HTML, `convert.py` what other
programs made. The result depends on the bytes and the suffix, and not on the file's name: the same bytes are extracted
once.
"""

import binascii
import hashlib
import html
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote_to_bytes

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from ec1.documents import fields
from ec1.documents.convert import Converter
from ec1.documents.ledger import DocumentKey
from ec1.documents.markup import html_text, without_markup
from ec1.documents.passages import besides, holds_turns, inside, is_conversation, passages
from ec1.documents.records import load_json
from ec1.documents.settings import ConversionSettings
from ec1.documents.tables import with_whole_names
from ec1.documents.text import clean, decode
from ec1.errors import RejectedError
from ec1.streams import CONVERTED, NOTEBOOK

TEXTS_VERSION = 3
"""Raise this when files that no library converts give another text for the same bytes."""
# A longer block is not front matter, and its YAML would take seconds.
_FRONT_MATTER_CHARACTERS = 2**15
_FRONT_MATTER_DEPTH = 16
_TITLE_CHARACTERS = 200
_HEAD = 4096
_BETWEEN_PARTS = "\n\n"
# Of the fields of a contact record.
_NESTED, _ITEMS = 3, 2000

_FENCE = re.compile(r"---[ \t]*\n")
_CLOSING_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t]+(\S.*)$", re.MULTILINE)
_YAML_TITLE = re.compile(r"^title:[ \t]+(\S.*)$", re.MULTILINE)
# A picture that is written out in the text, as Google Docs exports Markdown: no word is that long.
_WRITTEN_OUT = re.compile(r"(?<=;base64,)[A-Za-z0-9+/=_-]+|[A-Za-z0-9+/=_-]{1000,}")
_LETTERS_OF_BYTES = 12
# `%20`, of a text that is written out in a record.
_ESCAPES = 4_000_000
_DATA_URI = re.compile(r"data:([^,]{0,512}),", re.IGNORECASE)


# CommonMark 0.31, 2.4 and 2.5: a backslash before a sign, and an entity.
_MARKUP = re.compile(r"\\[!-/:-@\[-`{-~]|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Document:
    """A document's readable text and what it says about itself.

    `text` is clean (`text.clean`) and never blank; its first `fields_end` characters are the lines of the fields that
    hold names and facts (`fields`). `metadata` holds strings, lists and dictionaries of them: front
    matter, or a contact file's own fields. `places` are where pages or sheets begin in the text: (character, name);
    `empty` are those without text.
    """

    key: DocumentKey
    title: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    fields_end: int = 0
    places: tuple[tuple[int, str], ...] = ()
    empty: tuple[str, ...] = ()

    @property
    def date(self) -> str | None:
        """The day that its fields name, `YYYY-MM-DD`; None where they name none."""
        said = str(self.metadata.get("date") or "")
        return said[:10] if _DATE.match(said) else None

    def place_at(self, character: int) -> str:
        """The page or sheet on which a character of the text stands, such as `page 7`; "" where there are none."""
        return next((place for start, place in reversed(self.places) if start <= character), "")


def parse_document(key: DocumentKey, data: bytes, converter: Converter | None = None) -> Document:
    """Parse a document's bytes by the rules of its suffix. Raises RejectedError with the reason, and nothing else."""
    if not data:
        raise RejectedError("empty")
    suffix = PurePosixPath(key.path).suffix.lower()
    if suffix in CONVERTED:
        return _converted(key, data, suffix, converter or _default_converter())
    is_html = suffix in (".html", ".htm")
    text = html_text(data) if is_html else decode(data)
    del data
    if suffix == ".json":
        title, text, metadata = _contact(text)
    elif is_html:
        title, text, metadata = "", clean(text), {}
    elif suffix in (".md", ".markdown", NOTEBOOK):
        metadata, text = _front_matter(clean(_prose_of_notebook(text) if suffix == NOTEBOOK else text))
        if _MARKUP.search(text):
            text = clean(_MARKUP.sub(_meant, text))
        title = _first(_strings([metadata.get("title")]), _matches(_HEADING, text))
        text = "\n\n".join([*inside(metadata, fields.lines(metadata) + fields.others(metadata, text)), text.strip()])
    else:
        text, metadata = clean(text), {}
        title = _first(found.strip("'\" ") for found in _matches(_YAML_TITLE, text))
    text = with_whole_names(_WRITTEN_OUT.sub(_word, text).strip())
    head = fields.lines(metadata)
    others = fields.others(metadata, head + text)
    if not (head + others + text).strip():
        raise RejectedError("no text")
    head += fields.prose(metadata, text) + others
    title = (title or (text or head).split("\n", 1)[0].strip())[:_TITLE_CHARACTERS]
    whole = (head + text).rstrip()
    return Document(key, title, whole, metadata, min(len(head), len(whole)))


@cache
def _default_converter() -> Converter:
    return Converter(ConversionSettings())


def _converted(key: DocumentKey, data: bytes, suffix: str, converter: Converter) -> Document:
    found = converter.convert(data, suffix, hashlib.sha256(data).hexdigest())
    parts: list[str] = []
    places: list[tuple[int, str]] = []
    empty: list[str] = []
    start = 0
    for place, part in found.parts:
        cleaned = _WRITTEN_OUT.sub(_word, clean(part)).strip()
        if not cleaned:
            empty += [place] if place else []
            continue
        if place:
            places.append((start, place))
        parts.append(cleaned)
        start += len(cleaned) + len(_BETWEEN_PARTS)
    text = _BETWEEN_PARTS.join(parts)
    if not text:
        raise RejectedError("no text")
    title = (clean(found.title).strip() or text.split("\n", 1)[0].strip("# "))[:_TITLE_CHARACTERS]
    return Document(key, title, text, places=tuple(places), empty=tuple(empty))


def _meant(markup: re.Match[str]) -> str:
    """`Smith \\& Sons` and `Smith &amp; Sons` are Smith & Sons."""
    return markup[0][1:] if markup[0][0] == "\\" else html.unescape(markup[0])


def _word(long: re.Match[str]) -> str:
    """A long run of letters as it is, but if it is of many: of those in which bytes are written."""
    return long[0] if len(set(long[0])) < _LETTERS_OF_BYTES else ""


def _prose_of_notebook(text: str) -> str:
    """What people wrote between the code of a Jupyter notebook (nbformat 4, and 3)."""
    notebook = load_json(text)
    if not isinstance(notebook, dict):
        raise RejectedError("not a notebook: no JSON object")
    sheets = [notebook, *_mappings(notebook.get("worksheets"))]
    cells = [cell for sheet in sheets for cell in _mappings(sheet.get("cells"))]
    written = (cell.get("source") for cell in cells if cell.get("cell_type") in ("markdown", "heading"))
    lines = (each if isinstance(each, list) else [each] for each in written)
    return "\n\n".join("".join(line for line in each if isinstance(line, str)) for each in lines)


def _mappings(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _front_matter(text: str) -> tuple[dict[str, Any], str]:
    """Split off a leading YAML block. Where it is not a mapping, or broken, it is text like any other."""
    opening = _FENCE.match(text)
    if not opening:
        return {}, text
    closing = _CLOSING_FENCE.search(text, opening.end(), opening.end() + _FRONT_MATTER_CHARACTERS)
    if not closing or text[closing.end() : closing.end() + 1] not in ("", "\n"):
        return {}, text
    block = text[opening.end() : closing.start()]
    try:
        # The base loader makes strings only: no dates that do not exist, no numbers of a million digits.
        value = YAML(typ="base", pure=True).load(block) if _is_plain_yaml(block) else ""
    except (YAMLError, ValueError):
        return {}, text
    if value is None:
        value = {}
    if not isinstance(value, dict):
        return {}, text
    return {key: item for key, item in value.items() if isinstance(key, str)}, text[closing.end() :]


def _is_plain_yaml(block: str) -> bool:
    """False for aliases (a few lines of them make gigabytes) and for nesting deeper than Python's stack likes."""
    depth = 0
    for event in YAML(typ="base", pure=True).parse(block):
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        if isinstance(event, AliasEvent) or depth > _FRONT_MATTER_DEPTH:
            return False
    return True


def _contact(text: str) -> tuple[str, str, dict[str, Any]]:
    value = load_json(text)
    record = {"": value} if is_conversation(value) else value
    if not isinstance(record, dict):
        raise RejectedError("neither a JSON object nor a list of those with text in them")
    metadata = {
        clean(key): found
        for key, value in record.items()
        if key != "file" and (found := _plain(value)) not in (None, [])
    }
    for name in ("corpus", "body", "text"):
        metadata.pop(name, None)
    title = _first(_strings(record.get(name) for name in ("title", "subject", "name")))
    if "name" in metadata and holds_turns(record):
        # A chat's, and no person's.
        metadata.setdefault("title", metadata.pop("name"))
    says = fields.lines(metadata) + fields.others(metadata, "")
    for name in ("corpus", "body", "text"):
        value = record.get(name)
        if isinstance(value, str) and (found := clean(without_markup(value)).strip()):
            rest = {key: each for key, each in record.items() if key not in (name, *fields.OF_THE_CONTRACT)}
            return title, "\n\n".join([found, *besides(found, rest, says)]), metadata
    file = record.get("file")
    found = "\n\n".join(passages(record, says)) or ("" if says else fields.prose(metadata, "").strip())
    if not isinstance(file, dict) and (found or says):
        return title, found, metadata
    if not isinstance(file, dict) or not isinstance(file.get("data"), str):
        raise RejectedError("no text: neither .corpus, .body nor .text, nor a .file.data")
    filename = _first(_strings([file.get("filename")]))
    if filename:
        metadata["filename"] = filename
    return title, clean(_payload(file["data"], filename)), metadata


def _plain(value: object, depth: int = 0) -> Any:
    """The short strings of a value, in lists and records down to those of a record in a list; None of anything else."""
    if isinstance(value, str):
        return clean(value) if len(value) < _HEAD else None
    if isinstance(value, list) and depth < _NESTED:
        return [found for each in value[:_ITEMS] if (found := _plain(each, depth + 1)) is not None]
    if isinstance(value, dict) and depth < _NESTED:
        return {clean(key): found for key, each in value.items() if (found := _plain(each, depth + 1)) is not None}
    return None


def _payload(uri: str, filename: str) -> str:
    """The text in a data URI (RFC 2397)."""
    match = _DATA_URI.match(uri)
    if not match:
        raise RejectedError(".file.data is not a data URI (data:…;base64,…)")
    media_type, *parameters = (part.strip().lower() for part in match[1].split(";"))
    if uri.count("%") > _ESCAPES:
        raise RejectedError(f"more than {_ESCAPES:,} escapes in .file.data")
    try:
        data = unquote_to_bytes(uri[match.end() :])
    except UnicodeEncodeError:
        raise RejectedError(".file.data is not a valid data URI") from None
    if "base64" in parameters:
        data = _base64(data)
    is_html = media_type in ("text/html", "application/xhtml+xml") or filename.lower().endswith((".html", ".htm"))
    charset = next(
        (part.removeprefix("charset=").strip("\"'") for part in parameters if part.startswith("charset=")), ""
    )
    try:
        text = html_text(data, charset) if is_html else decode(data, charset)
    except RejectedError as error:
        raise RejectedError(f".file.data ({media_type or 'no media type'}): {error}") from None
    return text if is_html else without_markup(text)


def _base64(data: bytes) -> bytes:
    """Decode base64 as it is met in the wild: wrapped lines, either alphabet, padding left out."""
    data = data.translate(bytes.maketrans(b"-_", b"+/"), b" \t\r\n\f=")
    try:
        return binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True) if data else b""
    except binascii.Error:
        raise RejectedError(".file.data is not valid base64") from None


def _matches(pattern: re.Pattern[str], text: str) -> Iterable[str]:
    return (match[1] for match in pattern.finditer(text[:_HEAD]))


def _strings(values: Iterable[object]) -> Iterable[str]:
    return (clean(value[:_HEAD]) for value in values if isinstance(value, str))


def _first(*candidates: Iterable[str]) -> str:
    return next((found for group in candidates for item in group if (found := item.strip())), "")

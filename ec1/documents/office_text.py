"""Office files (Word, slides and workbooks from 2007 on, OpenDocument, RTF) as kreuzberg 4.10 can read them.

Of a Word file's text it drops each `&amp;`, `&lt;` and `&#...;`, so that "Smith & Sons" comes out as "Smith Sons", tabs
(`Name:` and `Ann Lee` in one word) and hyphens that do not break. Where a line ends inside a paragraph, and where a
paragraph does inside a cell of a table, it writes a blank or nothing: a list of names in a cell is one name.

Each is written as a character that the library takes as it is, and taken back in the text that came out.
Formats: ECMA-376 (17.3.3, 21.1.2, 18.4.12); OpenDocument 1.3, 6.1; Rich Text Format 1.9.1, "Special characters".
"""

import io
import re
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from ec1.documents.media_types import MEDIA_TYPES

_MARKUP = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
# Characters of the private area: no text of a document has them.
_STANDS_FOR = {character: chr(0xF8E0 + number) for number, character in enumerate([*_MARKUP.values(), "\t"])}
_BACK = str.maketrans({stand_in: character for character, stand_in in _STANDS_FOR.items()})
_TAB, _BREAK = _STANDS_FOR["\t"], chr(0xF8E8)
_BREAKS = re.compile(f"(?: ?{_BREAK})+ ?")
_AT_AN_EDGE = re.compile(rf"(?<=\|){_BREAKS.pattern}|{_BREAKS.pattern}(?=\|)")
# The second is how the library writes a tab in Markdown.
_TABS = re.compile(f" ?(?:{_TAB}|&#9;) ?")
_MAX_PART = 64 * 2**20
_STORED = 2**20

_Change = tuple["re.Pattern[bytes]", bytes | Callable[["re.Match[bytes]"], bytes]]


@dataclass(frozen=True)
class _Rules:
    """What is written otherwise in the parts of these names; `cells` only where there is a `table`, or a box."""

    parts: re.Pattern[str]
    changes: tuple[_Change, ...]
    table: "re.Pattern[bytes]" = re.compile(b"<")
    cells: tuple[_Change, ...] = ()

    def applied(self, part: bytes) -> bytes:
        for pattern, written in (*self.changes, *(self.cells if self.table.search(part) else ())):
            part = pattern.sub(written, part)
        return part


def _character(found: "re.Match[bytes]") -> bytes:
    named, decimal, hexadecimal = found.groups()
    character = _MARKUP[named.decode()] if named else chr(int(decimal or b"0", 10) or int(hexadecimal or b"0", 16))
    # A line's end is layout; what XML forbids stays for the library to refuse.
    return _STANDS_FOR.get(character, character).encode() if character.isprintable() or character == "\t" else found[0]


def _lines(found: "re.Match[bytes]") -> bytes:
    return re.sub(rb"(?:\r?\n|&#10;|_x000[aA]_)+", _BREAK.encode(), found[0])


_WORD_TEXT = '<w:t xml:space="preserve">{}</w:t>'
_WORD = _Rules(
    re.compile(r"word/(?:document|header|footer|footnotes|endnotes|comments)\d*\.xml"),
    (
        (re.compile(rb"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#x([0-9a-fA-F]{1,6}));"), _character),
        # A tab stop, which is none, has attributes.
        (re.compile(rb"<w:tab ?/>|<w:ptab [^<>]*/>"), _WORD_TEXT.format(_TAB).encode()),
        (
            re.compile(rb'<w:(?:br|cr)(?: w:type="textWrapping")?(?: w:clear="\w+")? ?/>'),
            _WORD_TEXT.format(_BREAK).encode(),
        ),
        (re.compile(rb"<w:noBreakHyphen ?/>"), _WORD_TEXT.format("-").encode()),
    ),
    re.compile(b"<w:tbl>"),
    ((re.compile(rb"</w:p>(?=\s*<w:p[ >])"), f"<w:r>{_WORD_TEXT.format(_BREAK)}</w:r></w:p>".encode()),),
)
_SLIDE_BREAK = f"<a:r><a:t>{_BREAK}</a:t></a:r>".encode()
_SLIDES = _Rules(
    re.compile(r"ppt/slides/[^/]+\.xml"),
    ((re.compile(rb"<a:br ?/>|<a:br>.{0,500}?</a:br>", re.DOTALL), _SLIDE_BREAK),),
    re.compile(b"<a:tbl>"),
    ((re.compile(rb"</a:p>(?=\s*<a:p[ >])"), _SLIDE_BREAK + b"</a:p>"),),
)
_OPEN_DOCUMENT = _Rules(
    re.compile(r"content\.xml"),
    (
        (re.compile(rb"<text:line-break ?/>"), _BREAK.encode()),
        (re.compile(rb"<text:tab(?: [^<>]*)?/>"), _TAB.encode()),
        (re.compile(rb"<text:s(?: [^<>]*)?/>"), b" "),
    ),
    re.compile(b"<table:table|<draw:text-box"),
    (
        (re.compile(rb"</text:p>(?=\s*<text:p[ >])"), _BREAK.encode() + b"</text:p>"),
        (re.compile(rb"<draw:text-box(?: [^<>]*)?>\s*<text:p(?: [^<>]*)?>"), rb"\g<0>" + _BREAK.encode()),
    ),
)
# Slides, which the library cannot read, as a text document: without pages, frames and boxes.
_OPEN_SLIDES = _Rules(
    _OPEN_DOCUMENT.parts,
    (
        *_OPEN_DOCUMENT.changes,
        (re.compile(rb"</?(?:draw|presentation):[^<>]*>"), b""),
        (re.compile(rb"(?<=</office:)presentation(?=>)|(?<=<office:)presentation(?=[ >])"), b"text"),
    ),
    re.compile(b"<table:table"),
    _OPEN_DOCUMENT.cells[:1],
)
_WORKBOOK = _Rules(
    re.compile(r"xl/(?:sharedStrings|worksheets/[^/]+)\.xml"), ((re.compile(rb"<t(?: [^<>]*)?>[^<]*"), _lines),)
)
_OF_TYPE = {
    MEDIA_TYPES[".docx"]: _WORD,
    MEDIA_TYPES[".pptx"]: _SLIDES,
    MEDIA_TYPES[".xlsx"]: _WORKBOOK,
    MEDIA_TYPES[".odt"]: _OPEN_DOCUMENT,
    MEDIA_TYPES[".ods"]: _OPEN_DOCUMENT,
    MEDIA_TYPES[".odp"]: _OPEN_SLIDES,
}
READ_AS = {MEDIA_TYPES[".odp"]: MEDIA_TYPES[".odt"]}
"""What a file is to the library, once it is `readable`, where it is not what it was."""


_RTF = MEDIA_TYPES[".rtf"]
_RTF_SIGN = re.compile(rb"\\(?:[\\~_]|(?:tab|line)(?![a-z]) ?|par(?![a-z]))")
_RTF_CHARACTER = "{{\\uc1\\u{}?}}"
"""A character by its number, which is a signed one of 16 bits, and what other programs are to show."""
_IN_RTF = {
    **{b"~": b"\\'a0", b"_": b"\\'2d"},
    **{word: _RTF_CHARACTER.format(ord(each) - 2**16).encode() for word, each in ((b"tab", _TAB), (b"line", _BREAK))},
}
_IN_RTF[b"par"] = _IN_RTF[b"line"] + rb"\par"


def _rtf(data: bytes) -> bytes:
    # Of a picture in bytes its length is written down.
    if b"\\bin" in data:
        return data
    return _RTF_SIGN.sub(lambda found: _IN_RTF.get(found[0][1:].rstrip(), found[0]), data)


def readable(data: bytes, media_type: str) -> bytes:
    """The same file with a character for each of those. What is no such file stays as it is, for the library to
    refuse."""
    if media_type == _RTF:
        return _rtf(data)
    if (rules := _OF_TYPE.get(media_type)) is None:
        return data
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            changed = {}
            for part in archive.infolist():
                is_text = (
                    rules.parts.fullmatch(part.filename) and not part.flag_bits & 1 and part.file_size <= _MAX_PART
                )
                if is_text and (written := rules.applied(text := archive.read(part))) != text:
                    changed[part.filename] = written
            return _written(archive, changed) if changed else data
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError, EOFError, zlib.error):
        return data


def _written(archive: zipfile.ZipFile, changed: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compresslevel=1) as copy:
        # Pictures hold no text, and a bomb stays the library's to find. Packing small parts again is time lost.
        for each in archive.infolist():
            if each.file_size <= _MAX_PART:
                text = changed.get(each.filename) or archive.read(each)
                packing = zipfile.ZIP_DEFLATED if len(text) > _STORED else zipfile.ZIP_STORED
                copy.writestr(each.filename, text, packing)
    return written.getvalue()


def as_written(text: str) -> str:
    """The text that came out, with what the characters stood for; a line's end in a row of a table is `; `."""
    text = _TABS.sub("\t", text).translate(_BACK)
    return "\n".join(map(_with_breaks, text.split("\n"))) if _BREAK in text else text


def _with_breaks(line: str) -> str:
    if line.startswith("|"):
        return _BREAKS.sub("; ", _AT_AN_EDGE.sub(" ", line))
    return _BREAKS.sub("\n", line.rstrip(f"{_BREAK} ")).lstrip("\n")

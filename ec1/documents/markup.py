"""HTML to text: what a reader would see, block elements on lines of their own.

The standard library's parser, as a stream. BeautifulSoup builds on the same parser and keeps a tree of more than a
kilobyte a tag, so that the `<p><p><p>…` of one 50 MB file would not fit in memory; and its `close()` takes quadratic
time on what is never closed (`<a <a <a …`: 13 s for 30 kB).
kreuzberg (4.10), which reads the other formats, loses the words after a comment that is not closed and after `</pre>`.
"""

import html
import re
from html.parser import HTMLParser

from ec1.documents.text import decode

_BLOCKS = re.compile(
    "address|article|aside|blockquote|body|br|caption|center|dd|details|dialog|dir|div|dl|dt|fieldset|figcaption|figure"
    "|footer|form|frameset|h[1-6]|head|header|hr|html|legend|li|main|menu|nav|ol|option|p|pre|section|select|summary"
    "|table|tbody|tfoot|thead|title|tr|ul"
)
_LOOKS_LIKE_HTML = re.compile(r"<(?:!doctype html|html|head|body|div|p|br|table|span)\b[^<>]*>", re.IGNORECASE)
_HEAD = 4096
_CELLS = frozenset({"td", "th"})
_UNSEEN = frozenset({"script", "style"})
_BLANKS = re.compile(r"[ \t\r\n\f]+")


def without_markup(text: str) -> str:
    """A text, or what a reader would see where it begins as HTML does."""
    return strip_html(text) if _LOOKS_LIKE_HTML.search(text[:_HEAD]) else text


def html_text(data: bytes, charset: str = "") -> str:
    """The text of HTML in bytes, in the encoding that it was sent with or names. Raises RejectedError (binary)."""
    if not charset:
        # Only here: it takes a tenth of the time that loading everything for a command does.
        from bs4.dammit import EncodingDetector

        charset = EncodingDetector.find_declared_encoding(data, is_html=True) or ""
    return strip_html(decode(data, charset))


def strip_html(markup: str) -> str:
    """The text of an HTML document or fragment, entities resolved, without scripts and styles. Never raises."""
    reader = _Reader()
    # A marked section (`<![if !mso]>`) stops the parser with an error unless it knows its keyword.
    reader.feed(markup.replace("<![", "<! ["))
    if reader.cdata_elem is None:
        # What was opened and never closed is left over. It stays readable, as text.
        reader.handle_data(html.unescape(reader.rawdata))
    return "\n".join(line for each in "".join(reader.pieces).split("\n") if (line := _cells(each)))


def _cells(line: str) -> str:
    """A line, with the cells of a table apart."""
    return " | ".join(cell for each in line.split("\t") if (cell := " ".join(each.split())))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._unseen: str | None = None
        self._preformatted = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _UNSEEN:
            self._unseen = tag
        elif _BLOCKS.fullmatch(tag):
            self.pieces.append("\n")
            self._preformatted += tag == "pre"
        elif tag in _CELLS:
            self.pieces.append("\t")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._unseen:
            self._unseen = None
        elif _BLOCKS.fullmatch(tag):
            self.pieces.append("\n")
            self._preformatted -= tag == "pre" and self._preformatted > 0

    def handle_data(self, data: str) -> None:
        if self._unseen is None:
            self.pieces.append(data if self._preformatted else _BLANKS.sub(" ", data))

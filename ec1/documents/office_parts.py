"""What an Office file (Word, PowerPoint, Excel from 2007 on, OpenDocument) holds beside its text: comments, a speaker's
notes, footnotes, a letter's head, the words of charts and diagrams. kreuzberg 4.10 leaves most of them out.

Belongs here: which parts of the file those are, and the words in them, once. Does not: what a template brings.
Formats: ECMA-376; [MS-XLSX] 2.6.205, comments in threads; OpenDocument 1.3, 14.1.
"""

import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from xml.parsers import expat

_PLACES = {
    "comments": r"word/comments\.xml|xl/(comments/)?comments?\d*\.xml|(xl/threadedComments|ppt/comments)/[^/]+\.xml"
    r"|content\.xml",
    "headers and footers": r"word/(header|footer)\d*\.xml",
    "footnotes": r"word/(foot|end)notes\.xml",
    "speaker notes": r"ppt/notesSlides/[^/]+\.xml",
    "charts and drawings": r"(word|ppt|xl)/(charts/chart|diagrams/data)\d*\.xml|xl/drawings/drawing\d*\.xml",
}
_PATTERNS = {place: re.compile(pattern) for place, pattern in _PLACES.items()}
_MAX_PART, _MAX_PARTS = 64 * 2**20, 10_000
_MAX_COMPARED = 5 * 10**9
"""Paragraphs times characters of the text, each looked for in it: a few seconds."""
_ENDS = frozenset({"p", "comment", "text", "pt", "threadedComment", "cm"})
"""Elements after which a new paragraph begins."""
_TEXTS = frozenset({"t", "v", "text"})
_OTHER = frozenset({"fld", "numCache", "numLit", "mentions", "authors", "date", "date-string", "creator-initials"})
"""Elements whose text is a number, or nobody's words."""
_COMMENTS = frozenset({"comment", "annotation"})
_OLDER = "[Threaded comment]"
"""What Excel writes for versions that know no threads, beside the comment itself."""
_NUMBERS = re.compile(r"\d+")
_WORD = re.compile(r"\w+")


def beside(data: bytes, text: str) -> list[list[str]]:
    """[place, text] of what an Office file holds beside `text`, which was read from it; the text of a part that cannot
    be read is empty. Other files have no such parts."""
    found: dict[str, list[str]] = {}
    broken: dict[str, list[str]] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for place, part in _parts(archive):
                try:
                    found.setdefault(place, []).extend(_paragraphs(archive.read(part)))
                except (expat.ExpatError, ValueError):
                    broken[place] = [place, ""]
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError, EOFError, zlib.error):
        return []
    many = sum(map(len, found.values()))
    # A large workbook with many charts is read within its seconds, if need be with what the cells say, too.
    read = _words(text) if 0 < many * len(text) <= _MAX_COMPARED else ""
    new = {
        place: [each for each in dict.fromkeys(paragraphs) if _words(each) not in read]
        for place, paragraphs in found.items()
    }
    return [*([place, "\n\n".join(texts)] for place, texts in new.items() if texts), *broken.values()]


def _parts(archive: zipfile.ZipFile) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    known = archive.infolist()[:_MAX_PARTS]
    for place, pattern in _PATTERNS.items():
        parts = [each for each in known if pattern.fullmatch(each.filename) and each.file_size <= _MAX_PART]
        # `notesSlide10.xml` comes after `notesSlide9.xml`.
        for part in sorted(parts, key=lambda each: [int(number) for number in _NUMBERS.findall(each.filename)]):
            yield place, part


def _paragraphs(part: bytes) -> list[str]:
    """The paragraphs of one part. Raises ExpatError for no XML, ValueError for one that declares a document type."""
    reader = _Reader()
    reader.read(part)
    return [each for each in reader.paragraphs if not each.startswith(_OLDER)]


class _Reader:
    """Gathers paragraphs. In OpenDocument, where all is in one part, those of comments alone."""

    def __init__(self) -> None:
        self.paragraphs: list[str] = []
        self._words: list[str] = []
        self._author: list[str] = []
        self._inside: Counter[str] = Counter()
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype

    def read(self, part: bytes) -> None:
        """Gather the paragraphs. Raises as `_paragraphs`."""
        self._parser.Parse(part, True)

    def _doctype(self, *_: object) -> None:
        raise ValueError("an Office file declares no document type")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = name.rpartition(" ")[2]
        self._inside[name] += 1
        if name in _COMMENTS:
            self._author = [each for key, each in attributes.items() if key.endswith(" author")]
            self._words.clear()
        elif name in ("tab", "br", "cr", "s", "line-break"):
            self._words.append(" ")

    def _end(self, name: str) -> None:
        name = name.rpartition(" ")[2]
        self._inside[name] -= 1
        if name in _ENDS:
            author, said = (" ".join("".join(each).split()) for each in (self._author, self._words))
            if said:
                self.paragraphs.append(f"{author}: {said}" if author else said)
            self._words.clear()
        if name in _COMMENTS:
            self._author = []

    def _characters(self, text: str) -> None:
        if any(self._inside[each] for each in _OTHER):
            return
        if self._inside["document-content"]:
            if self._inside["annotation"] and self._inside["creator"]:
                self._author.append(text)
            elif self._inside["annotation"] and self._inside["p"]:
                self._words.append(text)
        elif any(self._inside[each] for each in _TEXTS):
            self._words.append(text)


def _words(text: str) -> str:
    return f" {' '.join(_WORD.findall(text))} "

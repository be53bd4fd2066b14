"""Texts from outside as safe markup: nothing in them is read as HTML, hides, or turns the text around it.

Belongs here: escaping, marking differences, folding JSON and XML. Does not: pages (`templates/`).
"""

import difflib
import json
import re
from dataclasses import dataclass
from typing import Literal
from xml.dom import minidom
from xml.parsers import expat

from markupsafe import Markup, escape

LIMIT = 20_000
"""Characters of one text that a page shows unless it is asked for the whole."""
_MARKED_WORDS, _MARKED_LINES = 4_000, 3_000
# Controls but line breaks and tabs, what sets the direction of text, what has no width, and half characters. A joiner
# is left: scripts and emoji need it.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
_DIFF = re.compile(r"^(diff --git |@@ .* @@|--- \S.*\n\+\+\+ \S)", re.MULTILINE)
_FENCE = re.compile(r"\A\s*```[a-z]*\n(.*?)\n?```\s*\Z", re.DOTALL)


def safe(text: object) -> Markup:
    """A text as markup; a character that would hide or steer is shown by its number."""
    text, parts, place = str(text), [], 0
    for match in _HIDDEN.finditer(text):
        parts += [escape(text[place : match.start()]), _number_of(match[0])]
        place = match.end()
    return Markup("").join([*parts, escape(text[place:])])


def _number_of(character: str) -> Markup:
    return Markup('<span class="unseen">U+{:04X}</span>').format(ord(character))


def short(text: object, length: int = 200) -> Markup:
    """The beginning of a text on one line."""
    line = " ".join(str(text)[: length * 4].split())
    return safe(line[:length]) + ("…" if len(line) > length or len(str(text)) > length * 4 else "")


@dataclass(frozen=True)
class Body:
    """A text for a page. `form` is what it was recognised as; `problem` is what is wrong with that form; `folded` is it
    written out."""

    markup: Markup
    form: Literal["text", "diff", "JSON", "XML"] = "text"
    problem: str = ""
    folded: Markup | None = None
    left_out: int = 0


def body(text: str, whole: bool = False) -> Body:
    """A text with its lines coloured if it is a diff, checked and written out if it is JSON or XML."""
    left_out = 0 if whole else max(0, len(text) - LIMIT)
    shown = text if whole else text[:LIMIT]
    if _DIFF.search(shown):
        return Body(diff(shown), "diff", left_out=left_out)
    fenced = _FENCE.match(text)
    inner = (fenced[1] if fenced else text).strip()
    if inner[:1] in ("{", "["):
        return _json(shown, inner, left_out)
    if inner[:1] == "<" and re.match(r"<(\?xml|[A-Za-z][\w:.-]*[\s/>])", inner):
        if problem := _xml_problem(inner):
            return Body(safe(shown), "XML", problem, left_out=left_out)
        return Body(safe(shown), "XML", folded=safe(_xml_written_out(inner)[:LIMIT]), left_out=left_out)
    return Body(safe(shown), left_out=left_out)


def _json(shown: str, inner: str, left_out: int) -> Body:
    try:
        folded = json.dumps(json.loads(inner), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError) as error:
        return Body(safe(shown), "JSON", str(error) or "nested too deeply", left_out=left_out)
    return Body(safe(shown), "JSON", folded=safe(folded[:LIMIT]), left_out=left_out)


def _xml_problem(text: str) -> str:
    """What is wrong with XML, empty if nothing is; entities of its own are refused, since they can grow without end."""
    parser = expat.ParserCreate()

    def refuse(name: str, *_: object) -> None:
        raise ValueError(f"it defines an entity ({name})")

    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except (expat.ExpatError, ValueError) as error:
        return str(error)
    return ""


def _xml_written_out(text: str) -> str:
    """XML with an element a line; it was checked before. As it stands where it is nested too deeply."""
    try:
        written = minidom.parseString(text.encode("utf-8", "replace")).toprettyxml(indent="  ")
    except RecursionError:
        return text
    return "\n".join(line for line in written.splitlines()[1:] if line.strip())


def diff(text: str) -> Markup:
    """A unified diff, a span a line."""
    kinds = {"+": "added", "-": "removed", "@": "place"}
    lines = []
    for line in text.split("\n"):
        kind = "heading" if line.startswith(("+++", "---", "diff ", "index ")) else kinds.get(line[:1], "same")
        lines.append(Markup('<span class="line {}">{}</span>').format(kind, safe(line)))
    return Markup("\n").join(lines)


def differences(one: str, other: str) -> tuple[Markup, Markup]:
    """Two texts, each with what the other lacks marked: by words, or by lines where they are long."""
    pattern = r"\s+|\w+|[^\w\s]"
    first, second = re.findall(pattern, one[:LIMIT]), re.findall(pattern, other[:LIMIT])
    if len(first) + len(second) > _MARKED_WORDS:
        first, second = one[:LIMIT].splitlines(keepends=True), other[:LIMIT].splitlines(keepends=True)
        if len(first) + len(second) > _MARKED_LINES:
            return safe(one[:LIMIT]), safe(other[:LIMIT])
    left, right = [], []
    for kind, a, b, c, d in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        mine, theirs = safe("".join(first[a:b])), safe("".join(second[c:d]))
        left.append(mine if kind == "equal" or not mine else Markup("<del>{}</del>").format(mine))
        right.append(theirs if kind == "equal" or not theirs else Markup("<ins>{}</ins>").format(theirs))
    return Markup("").join(left), Markup("").join(right)

"""GUM as gold for named persons, organisations (Company) and places (Location), and which documents may be fitted to.

A mention counts as named if its head is a proper noun; its name is the run of proper nouns, numbers and links between
them around the head. A person's name does not go on after a comma or an `and`. No benchmark itself.

`seen` documents may be read, trained on, calibrated on and written rules for. `unseen` ones may not, and nobody reads
their errors: only their totals are looked at. The split is by the document's name, so it never moves.
"""

import hashlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from ec1.extraction.folding import normalised

CLASSES = {"person": "Person", "organization": "Company", "place": "Location"}
DATA = Path(__file__).parents[2] / "shared" / "data"
_ENTITY = re.compile(r"\((\d+)-([a-z]+)-[^-()]*-[^-()]*-[^-()]*-([\d,]+)|(\d+)\)")


@dataclass(frozen=True)
class Token:
    """One word: its form, part of speech, whether a blank follows, and its characters `[start, end)` of the text."""

    form: str
    tag: str
    entity: str
    blank: bool
    start: int
    end: int


@dataclass(frozen=True)
class Marked:
    """One mention of a sentence: what it refers to, its type, and its tokens `[first, last]`, `head` counted from the
    first."""

    identity: str
    kind: str
    head: int
    first: int
    last: int


@dataclass(frozen=True)
class Named:
    """One gold mention: its name, its class of ours, and its characters `[start, end)` of the text."""

    name: str
    entity_class: str
    start: int
    end: int


@dataclass(frozen=True)
class Text:
    """One document as running text, a sentence a line, with what is named in it: (normalised name, class)."""

    name: str
    text: str
    mentions: tuple[Named, ...]
    gold: frozenset[tuple[str, str]]
    fields_end: int = 0
    """How many of its first characters are the lines of its fields."""


def is_unseen(stem: str) -> bool:
    """Whether a document of `gum-more` is one that nothing may be fitted to."""
    return int(hashlib.sha1(stem.encode(), usedforsecurity=False).hexdigest(), 16) % 3 == 0


def seen(data: Path = DATA) -> list[Text]:
    """The documents that may be read and fitted to."""
    return [*read(data / "gum"), *(text for text in read(data / "gum-more") if not is_unseen(text.name))]


def unseen(data: Path = DATA) -> list[Text]:
    """The documents that only totals may be taken of."""
    return [text for text in read(data / "gum-more") if is_unseen(text.name)]


def read(folder: Path) -> Iterator[Text]:
    """The documents of a folder of CoNLL-U files, in the order of their names; none, and a line that says so, where it
    is not there."""
    if not folder.is_dir():
        _say_missing(folder.parent)
    for path in sorted(folder.glob("*.conllu")):
        sentences = list(parsed(path))
        mentions = [each for _, tokens in sentences for each in _named(tokens)]
        gold = frozenset((normalised(each.name), each.entity_class) for each in mentions)
        mentions.sort(key=lambda each: (each.start, -each.end))
        yield Text(path.stem, "\n".join(text for text, _ in sentences), tuple(mentions), gold)


@cache
def _say_missing(data: Path) -> None:
    print(f"the public texts are not at {data}: what needs them is left out", file=sys.stderr, flush=True)


def parsed(path: Path, mark: str = "Entity") -> Iterator[tuple[str, list[Token]]]:
    """The sentences of a CoNLL-U file, each with its tokens; a sentence's text stands on a line of its own. `mark` is
    the key of the last column that a token's `entity` is taken from."""
    begin, text, tokens = 0, "", list[Token]()
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("# text = "):
            text = line.removeprefix("# text = ")
        elif line and line[0].isdigit():
            fields = line.split("\t")
            if fields[0].isdigit():
                misc = dict(each.partition("=")[::2] for each in fields[9].split("|"))
                reach = tokens[-1].end if tokens else begin
                at = text.find(fields[1], reach - begin)
                start, end = (reach, reach) if at < 0 else (begin + at, begin + at + len(fields[1]))
                entity, blank = misc.get(mark, ""), misc.get("SpaceAfter") != "No"
                tokens.append(Token(fields[1], fields[3], entity, blank, start, end))
        elif not line and tokens:
            yield text, tokens
            begin, tokens = begin + len(text) + 1, []


def marked(tokens: list[Token]) -> Iterator[Marked]:
    """The mentions that the `Entity=` marks of one sentence's tokens enclose, in the order in which they end."""
    opened: list[Marked] = []
    for at, token in enumerate(tokens):
        for found in _ENTITY.finditer(token.entity):
            if found[1] is not None:
                opened.append(Marked(found[1], found[2], int(found[3].split(",")[0]) - 1, at, at))
                # One that is of a single token closes at once: `(5-time-…)`.
                if re.match(r"[^()]*\)", token.entity[found.end() :]) is None:
                    continue
            closing = found[1] or found[4]
            for place in range(len(opened) - 1, -1, -1):
                if opened[place].identity == closing:
                    yield replace(opened.pop(place), last=at)
                    break


def _named(tokens: list[Token]) -> Iterator[Named]:
    """The named mentions of one sentence."""
    for mark in marked(tokens):
        part = _name(tokens[mark.first : mark.last + 1], mark.head, mark.kind)
        name = "".join(each.form + " " * each.blank for each in part).strip()
        if mark.kind in CLASSES and name:
            yield Named(name, CLASSES[mark.kind], part[0].start, part[-1].end)


def _name(span: list[Token], head: int, kind: str) -> list[Token]:
    """The run of proper nouns around the head of a mention; empty if the head is none."""
    if head >= len(span) or span[head].tag != "PROPN":
        return []
    inside = ["PROPN", "NUM", "ADP", *(("CCONJ", "PUNCT") if kind != "person" else ())]

    def goes_on(at: int) -> bool:
        # A point or a hyphen is part of an initial or a double name.
        return 0 <= at < len(span) and (span[at].tag in inside or span[at].form in (".", "-"))

    first = last = head
    while goes_on(first - 1):
        first -= 1
    while goes_on(last + 1):
        last += 1
    while span[first].tag not in ("PROPN", "NUM"):
        first += 1
    while span[last].tag not in ("PROPN", "NUM"):
        last -= 1
    return span[first : last + 1]

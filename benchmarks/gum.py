"""GUM as gold for named persons, organisations (Company) and places (Location), and which documents may be fitted to.

A mention counts as named if its head is a proper noun; its name is the run of proper nouns, numbers and links between
them around the head. A person's name does not go on after a comma or an `and`. No benchmark itself.

`seen` documents may be read, trained on, calibrated on and written rules for. `unseen` ones may not, and nobody reads
their errors: only their totals are looked at. The split is by the document's name, so it never moves.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
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
    """The documents of a folder of CoNLL-U files, in the order of their names."""
    for path in sorted(folder.glob("*.conllu")):
        sentences: list[str] = []
        tokens: list[Token] = []
        mentions: list[Named] = []
        begin = reach = 0
        for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
            if line.startswith("# text = "):
                begin = reach = sum(len(each) + 1 for each in sentences)
                sentences.append(line.removeprefix("# text = "))
            elif line and line[0].isdigit():
                fields = line.split("\t")
                if fields[0].isdigit():
                    misc = dict(each.partition("=")[::2] for each in fields[9].split("|"))
                    at = sentences[-1].find(fields[1], reach - begin)
                    start = reach if at < 0 else begin + at
                    reach = start if at < 0 else start + len(fields[1])
                    entity, blank = misc.get("Entity", ""), misc.get("SpaceAfter") != "No"
                    tokens.append(Token(fields[1], fields[3], entity, blank, start, reach))
            elif not line and tokens:
                mentions += _named(tokens)
                tokens = []
        gold = frozenset((normalised(each.name), each.entity_class) for each in mentions)
        mentions.sort(key=lambda each: (each.start, -each.end))
        yield Text(path.stem, "\n".join(sentences), tuple(mentions), gold)


def _named(tokens: list[Token]) -> Iterator[Named]:
    """The named mentions of one sentence."""
    opened: list[tuple[str, str, int, int]] = []
    for at, token in enumerate(tokens):
        for found in _ENTITY.finditer(token.entity):
            if found[1] is not None:
                opened.append((found[1], found[2], at, int(found[3].split(",")[0])))
                # One that is of a single token closes at once: `(5-time-…)`.
                closes = re.match(r"[^()]*\)", token.entity[found.end() :]) is not None
                if not closes:
                    continue
                closing = found[1]
            else:
                closing = found[4]
            for place in range(len(opened) - 1, -1, -1):
                if opened[place][0] == closing:
                    _, kind, first, head = opened.pop(place)
                    part = _name(tokens[first : at + 1], head - 1, kind)
                    name = "".join(each.form + " " * each.blank for each in part).strip()
                    if kind in CLASSES and name:
                        yield Named(name, CLASSES[kind], part[0].start, part[-1].end)
                    break


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

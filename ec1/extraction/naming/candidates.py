"""Spans of a text that may be names, proposed by its structure alone, for a model to decide on.

Belongs here: where a name may begin and end, in any language: what is written with capitals or in a script without
them, what stands where names stand (speakers of a transcript, values of fields), and what the graph already knows. Does
not: whether it is a name and of what class (`decision`). A span proposed here is not an entity yet.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ec1.extraction.wordlists import alternatives, word_list

# Raise this when the same text would give other candidates.
CANDIDATES_VERSION = 1

Source = Literal["capitals", "part", "field", "speaker", "script", "known", "answer"]

_MAX_WORDS = 14
_MAX_CHARACTERS = 160
_WORD = re.compile(r"(?:[^\W\d_]\.){2,}|[^\W_]+(?:['’.&+@/-][^\W_]+)*|&")
_FIELD = re.compile(
    r"^[ \t>*_|-]*(?P<key>[^\W\d_][\w /'’-]{0,30}?)[*_]*[ \t]*[:|：][*_]*[ \t]*(?P<value>\S[^\n|]{0,120}?)[ \t|]*$",
    re.MULTILINE,
)
_SPEAKER = re.compile(r"^[ \t>*_\[]*+(?P<name>[^\s:*\]][^\n:*\]]{0,60}?)[*_\]]*+[:：][*_]*(?=\s|$)", re.MULTILINE)
_QUOTED = re.compile(r"[「『《〈]([^\n「」『』《》〈〉]{2,40})[」』》〉]")
_KATAKANA = "[\u30a1-\u30fa\u30fc]"
_IDEOGRAPHS = "\u3400-\u9fff\uac00-\ud7a3\u30a1-\u30fa\u30fc"
# Small words that are written without a blank before a name.
_PARTICLES = "在于於的和与與是了到从從及由向对對把被住"
# A wrapped paragraph has lines this long; a shorter line ends where its writer ended it.
_WRAPPED = 55


@dataclass(frozen=True)
class Candidate:
    """The characters `[start, end)` of a text that may be a name, and what proposed them."""

    start: int
    end: int
    source: Source


@dataclass(frozen=True)
class _Word:
    text: str
    start: int
    end: int
    capital: bool
    small: bool
    """One of the commonest words of a language: it begins and ends no name."""
    link: bool
    """It may stand inside a name."""
    genitive: bool
    """An `'s` follows: a name may end here."""


def propose(text: str, known: Iterable[tuple[int, int]] = ()) -> list[Candidate]:
    """All candidates of a text, in its order, each span once; `known` are spans of names that the graph knows.

    Spans overlap: of `Bank of Lisbon and Peru`, the whole and its parts are proposed.
    """
    found: dict[tuple[int, int], Source] = {}

    def add(start: int, end: int, source: Source) -> None:
        if 2 <= end - start <= _MAX_CHARACTERS:
            found.setdefault((start, end), source)

    for start, end in known:
        add(start, end, "known")
    for start, end in _speakers(text):
        add(start, end, "speaker")
    for run in _runs(_words(text), text):
        for number, part in enumerate(_parts(run)):
            add(part[0].start, part[-1].end, "part" if number else "capitals")
    for start, end in _fields(text):
        add(start, end, "field")
    for start, end in _without_capitals(text):
        add(start, end, "script")
    return [Candidate(start, end, source) for (start, end), source in sorted(found.items())]


def _words(text: str) -> list[_Word]:
    stop, links = word_list("stop"), word_list("links")
    words = []
    for match in _WORD.finditer(text):
        form = match[0]
        end = match.end()
        genitive = form.endswith(("'s", "’s")) and len(form) > 2
        if genitive:
            form, end = form[:-2], end - 2
        plain = form.casefold()
        capital = any(character.isupper() or unicodedata.category(character) == "Lt" for character in form)
        # `US` and `IT` are names where `us` and `it` are words.
        shouted = form.isupper() and len(form) > 1
        small = plain in stop and not shouted
        words.append(_Word(form, match.start(), end, capital, small, plain in links and not shouted, genitive))
    return words


def _runs(words: Sequence[_Word], text: str) -> Iterator[list[_Word]]:
    """Runs of words with a capital, with links between them, and with a number at either end."""
    at = 0
    while at < len(words):
        if not words[at].capital and not _leads(words, at, text):
            at += 1
            continue
        run = [words[at]]
        at += 1
        while at < len(words) and len(run) < _MAX_WORDS:
            step = at
            while step < len(words) and step - at < 3 and words[step].link and not words[step].capital:
                step += 1
            if step >= len(words) or not (words[step].capital or (step == at and words[step].text.isdigit())):
                break
            if not all(_joined(text, words[place - 1], words[place]) for place in range(at, step + 1)):
                break
            run += words[at : step + 1]
            at = step + 1
        if run[0].capital or len(run) > 1:
            yield run


def _leads(words: Sequence[_Word], at: int, text: str) -> bool:
    """Whether a number opens a name, as in `9 Mile Trial` or `1031 Exchange Corp`."""
    after = words[at + 1] if at + 1 < len(words) else None
    return words[at].text.isdigit() and after is not None and after.capital and _joined(text, words[at], after)


def _joined(text: str, left: _Word, right: _Word) -> bool:
    """Whether two words that follow each other may be of one name."""
    gap = text[left.end : right.start]
    if gap in (" ", "-", "–", "\xa0", " - ") or gap in ("'s ", "’s "):
        return True
    if gap in (". ", "."):
        # An initial or a title goes on; a sentence does not.
        return len(left.text) == 1 or left.text.casefold() in word_list("abbreviations")
    if gap == "\n":
        return left.end - (text.rfind("\n", 0, left.end) + 1) >= _WRAPPED
    return False


def _parts(run: list[_Word]) -> Iterator[list[_Word]]:
    """A run without the small words at its ends, then what is between its links, and what follows a title."""
    whole = _trimmed(run)
    if not whole:
        return
    yield whole
    pieces: list[list[_Word]] = [[]]
    for word in whole:
        if word.link and not (word.capital and len(pieces[-1]) == 0):
            pieces.append([])
        else:
            pieces[-1].append(word)
    roles = word_list("roles")
    trimmed = [part for part in (_trimmed(piece) for piece in pieces) if part]
    for part in trimmed:
        if part != whole:
            yield part
    for part in [whole, *trimmed]:
        for cut in range(1, len(part)):
            if part[cut - 1].genitive:
                yield part[:cut]
                if rest := _trimmed(part[cut:]):
                    yield rest
        if len(part) > 2 and not any(word.link for word in part):
            yield part[:-1]
        rest = part
        while len(rest) > 1 and rest[0].text.casefold() in roles:
            rest = rest[1:]
        if rest != part and (rest := _trimmed(rest)):
            yield rest


def _trimmed(run: list[_Word]) -> list[_Word]:
    while run and (run[0].small or (run[0].link and not run[0].capital)):
        run = run[1:]
    while run and (run[-1].link or (run[-1].small and not run[-1].capital)):
        run = run[:-1]
    return run if any(word.capital for word in run) else []


def _speakers(text: str) -> Iterator[tuple[int, int]]:
    """What stands before a colon at the beginning of two lines or more."""
    turns: dict[str, list[tuple[int, int]]] = {}
    for match in _SPEAKER.finditer(text):
        turns.setdefault(match["name"].strip(), []).append(match.span("name"))
    for name, places in turns.items():
        if len(places) > 1 and len(name.split()) <= 5 and (name[:1].isupper() or unicodedata.category(name[0]) == "Lo"):
            yield from places


def _fields(text: str) -> Iterator[tuple[int, int]]:
    """Values of fields whose key says that a name follows, and each item of such a value."""
    keys = word_list("name_fields")
    for match in _FIELD.finditer(text):
        if not keys & set(re.split(r"[\s_/-]+", match["key"].casefold())):
            continue
        begin = match.start("value")
        for item in re.finditer(r"[^,;&]+", match["value"]):
            left = len(item[0]) - len(item[0].lstrip(" \t\"'[(<*_"))
            core = item[0].strip(" \t\"'[]()<>*_.")
            if core and "@" not in core and any(character.isalpha() for character in core):
                start = begin + item.start() + left
                yield start, start + len(core)


def _without_capitals(text: str) -> Iterator[tuple[int, int]]:
    """In scripts without capitals: what is quoted as a title, runs of katakana, and what ends as names do."""
    if not any(character > "\u02ff" and unicodedata.category(character) == "Lo" for character in text):
        return
    for match in _QUOTED.finditer(text):
        yield match.span(1)
    for match in re.finditer(rf"{_KATAKANA}+(?:[・＝]{_KATAKANA}+)+|{_KATAKANA}{{3,}}", text):
        yield match.span()
    letter = rf"(?![{_PARTICLES}])[{_IDEOGRAPHS}]"
    for match in re.finditer(rf"(?:{letter}){{1,12}}?(?:{alternatives('endings_without_capitals')})", text):
        yield match.span()

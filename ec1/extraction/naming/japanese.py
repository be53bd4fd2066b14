"""Names in Japanese text by the dictionary of a morphological analyser, without a model.

Belongs here: which text is Japanese, and where its names stand. Does not: whether a deployment wants it (`extractor`).
A model that was hardly trained on Japanese guesses: `docs/operations.md` has the figures of both.

Words and their kinds are those of MeCab with IPADIC (https://taku910.github.io/mecab). Surnames, given names, places
and organisations are marked there, and what a name consists of beyond them is a run of nouns that a word such as `市`,
`株式会社` or `プロジェクト` ends.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from ec1.extraction.results import EntityClass
from ec1.extraction.wordlists import word_list

# Raise this when the same text would give other names.
JAPANESE_VERSION = 1

CONFIDENCE = 0.9
"""Of each name, before a curve: about the share of them that are right in texts of the office."""

Name = tuple[int, int, EntityClass]
"""Characters `[start, end)` of a text, and the class of the name that they are."""

_KANA = re.compile(r"[\u3041-\u3096\u30a1-\u30fa]")
_LETTER = re.compile(r"[^\W\d_]")
_SIGN = re.compile(r"[\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u9fff]")
_LEAST_KANA = 0.1
_KATAKANA = re.compile(r"[\u30a1-\u30fa\u30fc・]+")
_DOT = "・"
# No name is longer; a list without a gap may be.
_MAX_WORDS = 40
_FORMS = ("株式会社", "有限会社", "合同会社", "合資会社")
_PROJECTS = ("プロジェクト", "計画")
_ACCOUNTS = ("口座", "勘定", "積立金")
_MARKED: dict[str, EntityClass] = {"人名": "Person", "組織": "Company", "地域": "Location"}
_NOUNS = {"一般", "固有名詞", "サ変接続", "形容動詞語幹"}
_ENDINGS = {"一般", "地域", "サ変接続"}


def is_installed() -> bool:
    """Whether the dictionary is there."""
    return find_spec("fugashi") is not None and find_spec("ipadic") is not None


def is_japanese(text: str) -> bool:
    """Whether a tenth of its letters are kana: Chinese has none, and English with a Japanese name in it has few."""
    return len(_KANA.findall(text)) > _LEAST_KANA * max(1, len(_LETTER.findall(text)))


def is_in_signs(text: str) -> bool:
    """Whether kana and ideographs are half of its letters: a chunk of a Japanese text may be a table of kanji alone."""
    return 2 * len(_SIGN.findall(text)) >= len(_LETTER.findall(text))


def names_in(text: str) -> list[Name]:
    """The names of a text of two signs or more, in its order; none overlap. Raises ImportError without the analyser."""
    named = (name for run in _runs(_words(text)) for name in _named(run))
    return [(start, end, kind) for start, end, kind in named if end - start > 1]


@dataclass(frozen=True)
class _Word:
    text: str
    start: int
    kinds: tuple[str, ...]
    """Part of speech and three finer kinds of it, as IPADIC has them."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def marked(self) -> EntityClass | None:
        """What the dictionary says it names. Unknown words in Latin letters are organisations there: they are not."""
        if self.kinds[1] != "固有名詞" or self.text.isascii():
            return None
        if self.kinds[2] == "一般":
            return "Location" if self.text.endswith(tuple(word_list("japanese_places"))) else None
        return _MARKED.get(self.kinds[2])

    @property
    def in_name(self) -> bool:
        """Whether it may be part of a name."""
        noun = self.kinds[1] in _NOUNS or (self.kinds[1] == "接尾" and self.kinds[2] in _ENDINGS)
        return (self.kinds[0] == "名詞" and noun) or self.kinds[:2] == ("接頭詞", "名詞接続") or self.text == _DOT

    @property
    def katakana(self) -> bool:
        return _KATAKANA.fullmatch(self.text) is not None


@cache
def _analyser() -> Any:
    import fugashi
    import ipadic

    return fugashi.GenericTagger(ipadic.MECAB_ARGS)


def _words(text: str) -> Iterator[_Word]:
    at = 0
    # A text is parsed whole, in memory that grows with it: a line is enough.
    for line in text.splitlines():
        for word in _analyser()(line):
            at = text.index(word.surface, at)
            yield _Word(word.surface, at, word.feature)
            at += len(word.surface)


def _runs(words: Iterator[_Word]) -> Iterator[list[_Word]]:
    """Words that may be parts of names, in runs without a gap."""
    run: list[_Word] = []
    for word in words:
        if run and not (word.in_name and word.start == run[-1].end and len(run) < _MAX_WORDS):
            yield run
            run = []
        if word.in_name:
            run.append(word)
    if run:
        yield run


def _named(run: Sequence[_Word]) -> list[Name]:
    """The names of one run of nouns, in its order."""
    while run and run[0].text == _DOT:
        run = run[1:]
    if len(run) < 2:
        return _listed(run)
    whole = "".join(word.text for word in run)
    if run[-1].text in _PROJECTS:
        return [(run[0].start, run[-1].end, "Project")]
    if whole.endswith(_ACCOUNTS) and whole not in _ACCOUNTS:
        return [(run[0].start, run[-1].end, "Account")]
    if whole.startswith(_FORMS) and whole not in _FORMS:
        return [(run[0].start, run[-1].end, "Company")]
    for cut in range(len(run), 1, -1):
        if kind := _ended(run[:cut]):
            return [(run[0].start, run[cut - 1].end, kind), *_named(run[cut:])]
    # A dot stands inside a foreign name; between others it parts them.
    for cut in range(1, len(run) - 1):
        if run[cut].text == _DOT and not (run[cut - 1].katakana and run[cut + 1].katakana):
            return [*_named(run[:cut]), *_named(run[cut + 1 :])]
    return _listed(run)


def _ended(words: Sequence[_Word]) -> EntityClass | None:
    """What a run names whose last word says so."""
    last = words[-1].text
    named = any(word.marked or (word.katakana and len(word.text) > 1) for word in words[:-1])
    if last in word_list("japanese_organisations") and (named or last in _FORMS or len(words) > 2):
        return "Company"
    if words[-1].marked == "Company" and words[-2].text != _DOT:
        return "Company"
    if last in word_list("japanese_places") and named:
        places = [word.marked == "Location" or word.text in word_list("japanese_places") for word in words]
        # `名古屋市` and `東京都港区` are for `_listed`, which also parts them from what stands beside them.
        return None if all(places) else "Location"
    return None


def _listed(run: Sequence[_Word]) -> list[Name]:
    """The names in a run that no word ends: people, places, organisations as the dictionary marks them."""
    found: list[Name] = []
    at = 0
    while at < len(run):
        first, end = run[at], at + 1
        kind = first.marked
        if first.katakana and (_DOT in first.text.strip(_DOT) or _dotted(run, end)):
            kind = "Person"
        if kind == "Person":
            while end < len(run) and (run[end].marked == "Person" or _dotted(run, end) or run[end - 1].text == _DOT):
                end += 1
            # A given name that the dictionary lacks is cut into its signs.
            while end < len(run) and end - at < 4 and len(run[end].text) == 1 and _is_sign(run[end]):
                end += 1
        elif kind == "Location":
            while end < len(run) and (run[end].text in word_list("japanese_places") or run[end].kinds[2] == "地域"):
                end += 1
            # `東京支社` and `日本代表` are no places.
            if end < len(run) and not (run[end].marked or run[end].text == _DOT or run[end].kinds[1] == "接尾"):
                kind = None
        if kind is not None:
            found.append((first.start, run[end - 1].end, kind))
        at = end
    return found


def _dotted(run: Sequence[_Word], at: int) -> bool:
    """Whether a dot inside a foreign name stands here."""
    return at + 1 < len(run) and run[at].text == _DOT and run[at - 1].katakana and run[at + 1].katakana


def _is_sign(word: _Word) -> bool:
    return word.kinds[0] == "名詞" and word.kinds[1] in _NOUNS and not word.katakana

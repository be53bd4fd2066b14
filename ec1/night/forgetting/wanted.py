"""What is to be forgotten, and whether a text holds it, however it is spelt.

Belongs here: normalising texts, the spellings of a name, and which of them are sure. Does not: where texts are
(`containers`), what happens to them.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import unquote

from ec1.corpus.tuples import metadata_of, sources_of
from ec1.errors import InputError
from ec1.extraction.folding import NO_BLANKS, without_accents

_ESCAPED = re.compile(r"(?<!\\)\\++(?:u([0-9a-fA-F]{4})|[nrtbf]|[\"'/])")
_SURROGATES = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")
_QUOTED_PRINTABLE = re.compile(r"=\r?\n|((?:=[0-9A-F]{2})+)")
_INVISIBLE = re.compile(r"[\u00ad\u200b-\u200f\u2060\ufeff]")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_BETWEEN = r"(?:[\W_]|<[^<>]{0,200}>){0,12}"
"""What may stand between the parts of a name: blanks, line breaks, a comma, marks of Markdown and HTML, or nothing."""
_START, _END = r"(?<![^\W\d_])", r"(?![^\W\d_])"
_HIRAGANA = re.compile("[\u3041-\u309f]")
# Beside a name in other signs they are a particle or a form of address: `山田さんは`.
_START_OR_HIRAGANA, _END_OR_HIRAGANA = r"(?<![^\W\d_\u3041-\u309f])", r"(?![^\W\d_\u3041-\u309f])"


def folded(text: str) -> str:
    """A text in one spelling: escapes of JSON, HTML, URLs and mails read, accents and case gone, humps apart."""
    if "\\" in text:
        text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else " ", text)
        text = _SURROGATES.sub(lambda match: match[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    if "=" in text:
        text = _QUOTED_PRINTABLE.sub(lambda match: (match[1] or "").replace("=", "%"), text)
    if "&" in text:
        text = html.unescape(text)
    if "%" in text:
        text = unquote(text)
    text = _HUMP.sub(" ", text)
    if not text.isascii():
        text = without_accents(_INVISIBLE.sub("", text))
    return text.casefold()


@dataclass(frozen=True)
class Wanted:
    """What to look for: exactly one of the first three. `source` is `key:value`, such as `session_id:S1` or
    `document:mk-1f0c9de2ab34`. `also`: further spellings that mean the person; in a script without blanks wherever they
    stand: there only the writer knows where a name ends, `王明` is in `王明华`, who is somebody else."""

    match: str | None = None
    source: str | None = None
    person: str | None = None
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = [value for value in (self.match, self.source, self.person) if value is not None]
        if len(given) != 1 or not given[0].strip():
            raise InputError("say what to forget with one of --match TEXT, --source KEY:VALUE and --person NAME")
        if self.source is not None and not re.fullmatch(r"[^:]+:\s*\S.*", self.source, re.DOTALL):
            raise InputError(f"--source {self.source!r}: write it as key:value, such as session_id:S1")
        for text in (*given, *self.also):
            if not _parts(text):
                raise InputError(f"{text!r} holds no letter and no digit to look for")
        if self.also and self.person is None:
            raise InputError("--also names further spellings of a --person")

    @cached_property
    def _sure(self) -> re.Pattern[str]:
        if self.match is not None:
            return re.compile(r"\s+".join(map(re.escape, folded(self.match).split())))
        if self.source is not None:
            return re.compile(rf"(?<!\w){re.escape(folded(self.source.partition(':')[2]).strip())}(?!\w)")
        sure = [_whole(self.person or ""), *(_whole(name, anywhere=_is_in_signs(name)) for name in self.also)]
        return re.compile("|".join(sorted(sure, key=len, reverse=True)))

    @cached_property
    def _doubtful(self) -> re.Pattern[str] | None:
        if _is_in_signs(self.person or ""):
            return re.compile(rf"\w?{_whole(self.person or '', anywhere=True)}\w?")
        parts = _parts((self.person or "").partition("@")[0])
        if len(parts) < 2:
            return None
        first, last = re.escape(parts[0]), re.escape(parts[-1])
        initial = re.escape(parts[0][0])
        forms = (
            f"{first}(?:[\\W_]{{1,3}}[^\\W\\d_]+){{1,2}}[\\W_]{{1,3}}{last}",
            f"{first}{_BETWEEN}{last}",
            f"{initial}[\\W_]{{0,2}}{last}",
            f"{last}[\\W_]{{1,3}}{initial}",
            last,
        )
        return re.compile(_START + "(?:" + "|".join(forms) + ")" + _END)

    def in_text(self, text: str) -> bool:
        """Whether a text holds it, in a sure spelling."""
        return self._sure.search(folded(text)) is not None

    def spellings(self, text: str) -> tuple[Counter[str], Counter[str]]:
        """How a text spells it, normalised: what is sure, and what may be the person or another."""
        plain = folded(text)
        sure = Counter(_shown(match[0]) for match in self._sure.finditer(plain))
        if self._doubtful is None:
            return sure, Counter()
        rest = self._sure.sub("\n\n", plain)
        return sure, Counter(_shown(match[0]) for match in self._doubtful.finditer(rest))

    def in_record(self, record: Any) -> bool:
        """Whether a record holds it, in a key or a value; a source also as the record says where it is from."""
        if self.source is not None and isinstance(record, Mapping):
            key, _, value = self.source.partition(":")
            places = (record, metadata_of(record))
            if self.source in sources_of(record, [key]) or any(str(place.get(key)) == value for place in places):
                return True
        # A name may begin in one field and end in the next: `first` and `last`.
        return any(map(self.in_text, strings(record))) or self.in_text(" | ".join(strings(record, keys=False)))


def strings(value: Any, *, keys: bool = True) -> Iterator[str]:
    """Every text of a record, numbers and by default keys too, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if keys:
                yield from strings(key)
            yield from strings(item, keys=keys)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item, keys=keys)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _parts(name: str) -> list[str]:
    return re.findall(r"[^\W_]+", folded(name))


def _is_in_signs(name: str) -> bool:
    """Whether it is written in a script where nothing parts a name from the words beside it."""
    return NO_BLANKS.search(name) is not None


def _whole(name: str, *, anywhere: bool = False) -> str:
    """A pattern of a name's spellings, as whole words or anywhere."""
    forms = "|".join(_spellings(_parts(name)))
    if anywhere:
        return f"(?:{forms})"
    if _is_in_signs(name) and not _HIRAGANA.search(name):
        return f"{_START_OR_HIRAGANA}(?:{forms}){_END_OR_HIRAGANA}"
    return f"{_START}(?:{forms}){_END}"


def _spellings(parts: list[str]) -> Iterator[str]:
    """The parts in order, and with the last one first."""
    pieces = [re.escape(part) for part in parts]
    # Two short syllables that stand together are a word, unless each sign is one.
    together = sum(map(len, parts)) >= 8 or all(map(_is_in_signs, parts))
    between = _BETWEEN if together else _BETWEEN.replace("{0,12}", "{1,12}")
    yield between.join(pieces)
    if len(pieces) > 1:
        yield between.join((pieces[-1], *pieces[:-1]))


def _shown(spelling: str) -> str:
    return " ".join(spelling.split())

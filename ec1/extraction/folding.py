"""Names and texts without the differences that do not matter, and the way back to the places in the real text."""

import re
import unicodedata
from dataclasses import dataclass
from functools import cache

_SAME = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "`": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‐": "-", "‑": "-", "‒": "-"}
)
# Letters with the same mark between them, as in `i.g.n.o.r.e`; three are an abbreviation (`U.S.A.`).
_LETTER = "[A-Za-zÀ-ÖØ-öø-ÿА-яЁё]"
_APART = re.compile(
    rf"(?<![^\W_]){_LETTER}(?:([-._*~|·])|( )){_LETTER}(?(1)(?:\1{_LETTER}){{2,}}|(?: {_LETTER}){{3,}})(?![^\W_])"
)
# A word with digits that stand for letters, half of it letters at least: `t3xt`, but not `B2B`, `v2`, `5kg`, `3rd`.
_MASKED = re.compile(
    r"(?<![^\W_])(?<!\d\.)(?=[A-Za-z]*[013457$][\w$]?[A-Za-z0]?)"
    r"(?:[013457$](?!(?:st|nd|rd|th|[mck]m|[km]g|ml|am|pm|er|re|eme|me|de|ste|r[ao]|da|t[ao]|mins?|days?|weeks?)\b)"
    r"(?=[a-z]{2}|[a-z][013457$]))?"
    r"[A-Za-z]+(?:[013457$]{1,2}[A-Za-z]+)*[03]?(?![\w$])"
)
_DIGITS = str.maketrans("013457$", "oieasts")
_UNSEEN = re.compile("[\u00ad\u200b\u2060\ufeff]")
# Marks of combining class 0 that say which glyph is meant, or enclose one; all others are vowels of Indic scripts.
_GLYPH = re.compile("[\u034f\u180b-\u180d\u20dd-\u20e4\ufe00-\ufe0f\U000e0100-\U000e01ef]")

NO_BLANKS = re.compile(r"[\u0e00-\u0eff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f]")
"""A letter of Thai, Lao, Chinese, Japanese or Korean, where words do not stand apart, or have others' endings."""


@dataclass(frozen=True)
class Folded:
    """A text without case, accents, and kinds of blanks, quotes and dashes. `origin[i]` is where `text[i]` stood."""

    text: str
    origin: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> "Folded":
        characters: list[str] = []
        origin: list[int] = []
        for place, character in enumerate(text):
            for part in unicodedata.normalize("NFKD", character.translate(_SAME)).casefold():
                if part.isspace():
                    if characters and characters[-1] != " ":
                        characters.append(" ")
                        origin.append(place)
                elif unicodedata.category(part)[0] != "M":
                    characters.append(part)
                    origin.append(place)
                elif not _is_accent(part):
                    letter = unicodedata.normalize("NFC", "".join(characters[-1:]) + part)
                    if characters and len(letter) == 1:
                        characters[-1] = letter
                    else:
                        characters.append(part)
                        origin.append(place)
        return cls("".join(characters), tuple(origin))


def _is_accent(mark: str) -> bool:
    """Whether a letter with this mark is the same letter: with an accent, or a vowel point of Hebrew or Arabic.

    In other scripts it is another one: a mark makes `パ` and `バ` of `ハ`, and is the vowel of an Indic syllable.
    Classes are those of the Unicode standard, 4.3 (Combining Classes).
    """
    marked = unicodedata.combining(mark)
    return marked == 1 or 10 <= marked <= 36 or marked >= 200 or _GLYPH.match(mark) is not None


def without_accents(text: str) -> str:
    """A text without the marks that only colour a letter, in compatible forms (NFKC)."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", text).translate(_accents()))


@cache
def _accents() -> dict[int, None]:
    marks = (*range(0x300, 0xFE30), *range(0xE0100, 0xE01F0))
    return dict.fromkeys(mark for mark in marks if _is_accent(chr(mark)))


def normalised(name: str) -> str:
    """A name without those differences and without punctuation at its ends: equal here means the same name."""
    if name.isascii():
        # Most names, in a tenth of the time.
        return " ".join(name.replace("`", "'").casefold().split()).strip(" .,;:")
    return Folded.of(name.strip()).text.strip(" .,;:")


def unmasked(text: str) -> str:
    """A text with the letters that somebody wrote as digits, or apart, or with unseen characters between them."""
    if not text.isascii():
        text = _UNSEEN.sub("", text)
    return _MASKED.sub(_letters, _APART.sub(lambda found: re.sub(r"[\W_]", "", found[0]), text))


def _letters(found: re.Match[str]) -> str:
    word = found[0]
    digits = sum(not character.isalpha() for character in word)
    # `python3` is a version.
    written = word[-1] != "3" or digits > 1
    return word.translate(_DIGITS) if written and 0 < digits * 2 <= len(word) > 2 and word != word.upper() else word


def words(text: str) -> frozenset[str]:
    """The words of a list that is written as one text."""
    return frozenset(text.split())

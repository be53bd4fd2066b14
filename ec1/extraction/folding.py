"""Names and texts without the differences that do not matter, and the way back to the places in the real text."""

import unicodedata
from dataclasses import dataclass

_SAME = str.maketrans(
    {"’": "'", "‘": "'", "ʼ": "'", "`": "'", "“": '"', "”": '"', "–": "-", "—": "-", "‐": "-", "‑": "-", "‒": "-"}
)


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
        return cls("".join(characters), tuple(origin))


def normalised(name: str) -> str:
    """A name without those differences and without punctuation at its ends: equal here means the same name."""
    if name.isascii():
        # Most names, in a tenth of the time.
        return " ".join(name.replace("`", "'").casefold().split()).strip(" .,;:")
    return Folded.of(name.strip()).text.strip(" .,;:")


def words(text: str) -> frozenset[str]:
    """The words of a list that is written as one text."""
    return frozenset(text.split())

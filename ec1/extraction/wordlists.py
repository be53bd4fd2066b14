"""The word lists that extraction reads: data files of the package, one a list, in `words/`.

A file holds words between blanks, and lines that begin with `#` say where they are from or what they are for. Words are
in lower case, with `_` for a blank. Lists hold words of languages, never names of real things.
"""

import re
from functools import cache
from importlib.resources import files


@cache
def word_list(name: str) -> frozenset[str]:
    """The words of `words/<name>.txt`."""
    text = (files("ec1.extraction") / "words" / f"{name}.txt").read_text(encoding="utf-8")
    return frozenset(word for line in text.splitlines() if not line.startswith("#") for word in line.split())


@cache
def alternatives(name: str) -> str:
    """The same words as one alternative of a regular expression, the longest first."""

    return "|".join(
        re.escape(word).replace("_", r"\s") for word in sorted(word_list(name), key=lambda word: (-len(word), word))
    )

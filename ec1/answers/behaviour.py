"""What is wrong with the form of a written answer: empty, endless, repeating, or no diff or JSON where one is due.

Belongs here: checks of one answer against the wanted one's form. Does not: whether it is right, and what follows
(`gate.py`).
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

Form = Literal["diff", "json", "text"]

_NGRAM = 4
_MAX_REPEATED_SHARE = 0.5
_MIN_WORDS = 24


def form_of(text: str) -> Form:
    """What kind of text a wanted answer is."""
    if re.search(r"^--- .*\n\+\+\+ .*\n@@ ", text, flags=re.MULTILINE):
        return "diff"
    try:
        return "json" if isinstance(json.loads(text), dict | list) else "text"
    except ValueError:
        return "text"


def faults_of(answer: str, wanted: str, *, cut: bool) -> list[str]:
    """The faults of one answer: `empty`, `endless` (`cut`: it was ended by the limit on its tokens), `repetitive`,
    `malformed` (no whole diff, or no JSON, where the wanted answer is one), `does_not_apply` (no diff, or one whose old
    lines are not those of the wanted diff's file)."""
    found = []
    if not answer.strip():
        return ["empty"]
    if cut:
        found.append("endless")
    if repeats(answer):
        found.append("repetitive")
    form = form_of(wanted)
    if form == "json" and form_of(answer) != "json":
        found.append("malformed")
    if form == "diff":
        old = _old_lines(answer)
        if old is None:
            found.append("malformed")
        if old is None or not _applies(old, _old_lines(wanted) or []):
            found.append("does_not_apply")
    return found


def repeats(text: str) -> bool:
    """Whether most of a text says again what it said before. Short texts cannot be told."""
    words = re.findall(r"\w+|[^\w\s]", text)
    if len(words) < _MIN_WORDS:
        return False
    grams = Counter(zip(*(words[place:] for place in range(_NGRAM)), strict=False))
    repeated = sum(count - 1 for count in grams.values())
    return repeated > _MAX_REPEATED_SHARE * sum(grams.values())


def _old_lines(diff: str) -> list[str] | None:
    """The lines that a diff expects to find, hunk by hunk; None if it is not a whole diff."""
    from unidiff import PatchSet, UnidiffParseError

    text = diff if diff.endswith("\n") else f"{diff}\n"
    if not text.startswith(("--- ", "diff --git ")):
        return None
    try:
        patch = PatchSet(text)
    except UnidiffParseError:
        return None
    hunks = [hunk for file in patch for hunk in file]
    return [line for hunk in hunks for line in _stripped(hunk.source)] if hunks else None


def _stripped(lines: list[str]) -> Iterator[str]:
    for line in lines:
        yield line[1:].rstrip("\n")


def _applies(old: list[str], there: list[str]) -> bool:
    """Whether the old lines stand in the file in this order; of the file, the wanted diff's own old lines are known."""
    rest = iter(there)
    return all(any(line == candidate for candidate in rest) for line in old)

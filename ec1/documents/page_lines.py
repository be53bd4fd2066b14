"""The lines of a PDF's page to paragraphs: a PDF says where text stands, and not where a paragraph ends.

Belongs here: which line ends are the page's and which the author's. Does not: reading a PDF (`converter_process.py`).

The page broke a line if the next word had no room on it. How much room there is, the lines around say: columns and
boxes have their own. Where none of them ends a sentence or goes on with a small letter, nothing was broken: a list, a
table, addresses.
"""

import re
from itertools import pairwise

# The hyphen at a line's end, as PDFium writes it between letters, without the line's end.
_HYPHEN = "\x02"
_LINE_END = re.compile(rf"{_HYPHEN}|(?<=\w)-\s*[\r\n]+")
_HYPHENATED = re.compile(rf"(.?){_HYPHEN}(.?)")
_AROUND = 8
# Where the page broke a line, it and the next word have this share of the longest line's characters and more: letters
# differ in width. The end of a sentence is less likely broken by the page, and what comes before a small letter more.
_FULL, _FULL_SENTENCE, _BEFORE_SMALL = 0.9, 0.97, 0.7
_SENTENCE_ENDS, _CLOSING = tuple(".!?:…。"), "\"'”’»)]*_"
_SENTENCE = re.compile(r"[^\W\d_]{2}[.!?…][\"'”’»)\]*_]*(?:\s|$)")
# Letters of scripts that are written without spaces.
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff60"
_FIRST_WORD = re.compile(rf"[{_SPACELESS}]|[^\s{_SPACELESS}]+")
_WITHOUT_SPACE = re.compile(rf"[{_SPACELESS}]{{2}}")


def paragraphs(page: str) -> str:
    """A page's text with the lines of a paragraph in one, and a blank line around each that was more than one."""
    lines = [line for each in _LINE_END.sub(_HYPHEN + "\n", page).splitlines() if (line := each.strip())]
    broken = _broken_by_page(lines)
    pieces = lines[:1]
    for at, (line, following) in enumerate(pairwise(lines)):
        if not broken[at]:
            is_apart = (broken[at - 1] or broken[at + 1]) and not following[0].islower()
            pieces.append("\n\n" if is_apart else "\n")
        elif not (line.endswith(_HYPHEN) or _WITHOUT_SPACE.fullmatch(line[-1] + following[0])):
            pieces.append(" ")
        pieces.append(following)
    return _HYPHENATED.sub(_whole_word, "".join(pieces))


def _whole_word(match: re.Match[str]) -> str:
    """`Balti-` and `more` are one word, `Smith-` and `Jones` are not."""
    before, after = match.groups()
    return f"{before}{after}" if before.islower() and after.islower() else f"{before}-{after}"


def _broken_by_page(lines: list[str]) -> list[bool]:
    """For each line, whether the next one goes on with it."""
    lengths = [len(line) for line in lines]
    longest = [max(lengths[max(0, at - _AROUND) : at + _AROUND + 1]) for at in range(len(lines))]
    starts = [line[0] for line in lines[1:]]
    before_small = [
        line.endswith(_HYPHEN) or (start.islower() and len(line) >= _BEFORE_SMALL * room)
        for line, start, room in zip(lines, starts, longest, strict=False)
    ]
    hints = [
        hint or bool(_SENTENCE.search(line)) or (start.isalpha() and start.lower() == start.upper())
        for hint, line, start in zip(before_small, lines, starts, strict=False)
    ]
    found = []
    for at, (line, following) in enumerate(pairwise(lines)):
        first_word = _FIRST_WORD.match(following)
        needed = len(line) + 1 + len(first_word[0] if first_word else "")
        share = _FULL_SENTENCE if line.rstrip(_CLOSING).endswith(_SENTENCE_ENDS) else _FULL
        is_full = needed > share * longest[at] and any(hints[max(0, at - _AROUND) : at + _AROUND + 1])
        found.append(before_small[at] or is_full)
    return [*found, False]

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
    lines = [line for each in page.replace(_HYPHEN, _HYPHEN + "\n").splitlines() if (line := each.strip())]
    lines = [line[:-1] + _HYPHEN if line[-1] == "-" and line[-2:-1].isalnum() else line for line in lines]
    broken = _broken_by_page(lines)
    pieces = lines[:1]
    for at, (line, following) in enumerate(pairwise(lines)):
        if not broken[at]:
            is_apart = (broken[at - 1] or broken[at + 1]) and not following[0].islower()
            pieces.append("\n\n" if is_apart else "\n")
        elif not (line[-1] == _HYPHEN or _WITHOUT_SPACE.fullmatch(line[-1] + following[0])):
            pieces.append(" ")
        pieces.append(following)
    text = "".join(pieces)
    return _HYPHENATED.sub(_whole_word, text) if _HYPHEN in text else text


def _whole_word(match: re.Match[str]) -> str:
    """`Balti-` and `more` are one word, `Smith-` and `Jones` are not."""
    before, after = match.groups()
    return f"{before}{after}" if before.islower() and after.islower() else f"{before}-{after}"


def _broken_by_page(lines: list[str]) -> list[bool]:
    """For each line, whether the next one goes on with it."""
    lengths = [len(line) for line in lines]
    around = [slice(max(0, at - _AROUND), at + _AROUND + 1) for at in range(len(lines))]
    longest = [max(lengths[each]) for each in around]
    starts = [line[0] for line in lines[1:]]
    before_small = [
        line[-1] == _HYPHEN or (start.islower() and len(line) >= _BEFORE_SMALL * room)
        for line, start, room in zip(lines, starts, longest, strict=False)
    ]
    # Where letters have no case, a small one cannot be looked for.
    hints = [
        hint or (start.isalpha() and start.lower() == start.upper())
        for hint, start in zip(before_small, starts, strict=True)
    ]
    found = []
    for at, (line, following) in enumerate(pairwise(lines)):
        first_word = _FIRST_WORD.match(following)
        needed = lengths[at] + 1 + len(first_word[0] if first_word else "")
        share = _FULL_SENTENCE if line.rstrip(_CLOSING).endswith(_SENTENCE_ENDS) else _FULL
        found.append(
            before_small[at]
            or (
                needed > share * longest[at]
                and (any(hints[around[at]]) or any(map(_SENTENCE.search, lines[around[at]])))
            )
        )
    return [*found, False]

"""A document's text to chunks that fit the model, counted with the model's own tokenizer.

Belongs here: where a text is cut. Does not: what a chunk is sent with (`extraction/`). Work is linear in the text, and
the same text with the same tokenizer gives the same chunks.

The text is first divided without a gap into pieces, each with the rank of the border at its end: paragraph, sentence,
line, word, grapheme (what is seen as one character), or none. Then pieces are gathered into chunks.
"""

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ec1.errors import InputError

TokenCounter = Callable[[Sequence[str]], list[int]]
"""Counts the tokens of each of several strings."""

_PARAGRAPH, _SENTENCE, _LINE, _WORD, _GRAPHEME, _NONE = range(6)
# A border of this rank is taken if the chunk is at least so full; the first rank that offers one wins.
_FILL = {_PARAGRAPH: 0.75, _SENTENCE: 0.5, _LINE: 0.5, _WORD: 0.5, _GRAPHEME: 0.5, _NONE: 0.0}
# The longest piece that the tokenizer is asked about at once, and the most characters in one question.
_PIECE_CHARACTERS = 2000
_PIECE_TOKENS = 32
_BATCH_CHARACTERS = 2**18
_CONTEXT_CHARACTERS = 400
# A wrapped paragraph has lines this long.
_WRAPPED_CHARACTERS = 55

_BORDER = re.compile(
    r"(?P<paragraph>\n[ \t]*\n\s*)|(?P<line>\n[ \t]*)"
    r"|(?P<sentence>[.!?…]{1,8}[\"'”’»)\]]{0,4}[ \t]+(?=[^a-z\s])|[。！？]+)"
)
_BLANK = re.compile(r"\s+")
# A full stop after these ends no sentence; nor does one after a single capital (an initial).
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'“‘])(?:[A-ZÀ-ÖØ-ÞΑ-ΩА-Я]|[A-Za-z](?:\.[A-Za-z])+|Mr|Mrs|Ms|Dr|Prof|Rev|Hon|Gen|Col|Capt|Lt|Sgt|St|Ave|Blvd|Jr|Sr|Inc|Corp|Co"
    r"|Ltd|LLC|LLP|No|Nr|vs|etc|cf|al|approx|Dept|Est|Fig|Vol|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec)$"
)
_JOINERS = "\u200c\u200d"
# The combining class of the signs that join two Indic consonants.
_VIRAMA = 9


@dataclass(frozen=True)
class Chunk:
    """Part `index` of a text: `text` is the characters `[start, end)` of it, without blanks at either end."""

    index: int
    start: int
    end: int
    text: str


def chunk_text(text: str, count_tokens: TokenCounter, *, max_tokens: int, overlap_tokens: int) -> list[Chunk]:
    """Cut `text` into chunks of at most `max_tokens`; every character that is not blank is in one at least.

    Cuts fall on the border of a paragraph, sentence, line or word, in this order, and inside a word only where it
    alone is too long. A chunk repeats the last whole sentences of the one before, up to `overlap_tokens`; where the cut
    had to be made inside a sentence, its last words.

    Raises InputError if overlap_tokens is not below max_tokens, or one character has more than max_tokens.
    """
    if not 0 <= overlap_tokens < max_tokens:
        raise InputError(f"overlap_tokens ({overlap_tokens}) must be 0 or more and below max_tokens ({max_tokens})")
    if not text.strip():
        return []
    if len(text) <= _PIECE_CHARACTERS and count_tokens([text.strip()])[0] <= max_tokens:
        return [_chunk(text, 0, 0, len(text))]
    # Small enough that an overlap can be made of them.
    limit = min(max_tokens, max(overlap_tokens, _PIECE_TOKENS)) if overlap_tokens else max_tokens
    pieces = _Pieces.of(text, count_tokens, limit, max_tokens)
    spans = [span for span in pieces.gathered(max_tokens, overlap_tokens) if not _is_blank(text, span)]
    spans = _fitting(text, spans, count_tokens, max_tokens)
    chunks: list[Chunk] = []
    for start, end in spans:
        chunk = _chunk(text, len(chunks), start, end)
        # What came to nothing but the overlap (the rest was blank, or went to the next chunk) would be read twice.
        if not chunks or chunk.end > chunks[-1].end:
            chunks.append(chunk)
    return chunks


def sentence_at(text: str, start: int, end: int) -> tuple[int, int]:
    """The sentence or line around the characters `[start, end)`, without blanks at either end.

    Nothing farther than `_CONTEXT_CHARACTERS` away is part of it: some files have one line of a megabyte.
    """
    first, last = max(0, start - _CONTEXT_CHARACTERS), min(len(text), end + _CONTEXT_CHARACTERS)
    left, right = first, last
    for _, border, rank in _borders(text[first:last]):
        place = first + border
        # A sentence that is wrapped goes on with a small letter.
        if rank == _LINE and text[place : place + 1].islower():
            continue
        if place <= start:
            left = place
        elif place >= end:
            right = place
            break
    return _trimmed(text, left, right)


def sentences(text: str) -> list[tuple[int, int]]:
    """The sentences of a text, without gaps or blanks left out; a line that is wrapped goes on with its sentence."""
    found: list[tuple[int, int]] = []
    goes_on = False
    for start, end, rank in _borders(text):
        if goes_on:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
        goes_on = rank == _LINE and (text[end : end + 1].islower() or end - start >= _WRAPPED_CHARACTERS)
    return found


def _chunk(text: str, index: int, start: int, end: int) -> Chunk:
    start, end = _trimmed(text, start, end)
    return Chunk(index, start, end, text[start:end])


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    part = text[start:end]
    return start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())


def _is_blank(text: str, span: tuple[int, int]) -> bool:
    return not text[span[0] : span[1]].strip()


def _fitting(
    text: str, spans: list[tuple[int, int]], count_tokens: TokenCounter, max_tokens: int
) -> list[tuple[int, int]]:
    """Halve the spans that are too long after all: a tokenizer may need more tokens for a text than for its parts."""
    fitting = []
    pending = [_trimmed(text, *span) for span in spans]
    while pending:
        counts = _counted(text, pending, count_tokens)
        over = []
        for (start, end), count in zip(pending, counts, strict=True):
            if count <= max_tokens:
                fitting.append((start, end))
            else:
                middle = _cut(text, start, end)[0]
                over += [
                    _trimmed(text, *part) for part in ((start, middle), (middle, end)) if not _is_blank(text, part)
                ]
        pending = over
    return sorted(fitting)


def _counted(text: str, spans: Sequence[tuple[int, int]], count_tokens: TokenCounter) -> list[int]:
    """Token counts of many spans, asked for in batches of bounded size."""
    counts: list[int] = []
    batch: list[str] = []
    characters = 0
    for start, end in spans:
        batch.append(text[start:end])
        characters += end - start
        if characters >= _BATCH_CHARACTERS:
            counts += count_tokens(batch)
            batch, characters = [], 0
    return counts + (count_tokens(batch) if batch else [])


@dataclass
class _Pieces:
    """The pieces of a text: where each ends, its tokens, and the rank of the border there. Each starts where the one
    before ends, the first at 0."""

    ends: "array[int]"
    tokens: "array[int]"
    ranks: bytearray

    @classmethod
    def of(cls, text: str, count_tokens: TokenCounter, limit: int, max_tokens: int) -> "_Pieces":
        """Divide `text` into sentences and, where one has more than `limit` tokens, into runs of its words."""
        pieces = cls(array("q"), array("q"), bytearray())
        batch: list[tuple[int, int, int]] = []
        characters = 0
        for piece in _short(text, _borders(text)):
            batch.append(piece)
            characters += piece[1] - piece[0]
            if characters >= _BATCH_CHARACTERS:
                pieces._append(_divided(text, batch, count_tokens, limit, max_tokens))
                batch, characters = [], 0
        pieces._append(_divided(text, batch, count_tokens, limit, max_tokens))
        return pieces

    def _append(self, pieces: list[tuple[int, int, int]]) -> None:
        for end, rank, tokens in pieces:
            self.ends.append(end)
            self.ranks.append(rank)
            self.tokens.append(tokens)

    def gathered(self, max_tokens: int, overlap_tokens: int) -> Iterator[tuple[int, int]]:
        """Spans of text of at most `max_tokens`, by the sum of their pieces."""
        start = done = 0
        while done < len(self.ends):
            total, stop = sum(self.tokens[start:done]), done
            while stop < len(self.ends) and (stop == done or total + self.tokens[stop] <= max_tokens):
                total += self.tokens[stop]
                stop += 1
            if stop < len(self.ends):
                stop = self._best_cut(start, done, stop, total, max_tokens)
            yield (self.ends[start - 1] if start else 0), self.ends[stop - 1]
            done = stop
            start = self._overlap(start, stop, max_tokens, overlap_tokens)

    def _best_cut(self, start: int, done: int, stop: int, total: int, max_tokens: int) -> int:
        """The cut in (done, stop] with the best border that leaves the chunk full enough."""
        best: dict[int, int] = {}
        full = stop
        while stop > done:
            rank = self.ranks[stop - 1]
            if rank not in best and total >= _FILL[rank] * max_tokens:
                best[rank] = stop
            stop -= 1
            total -= self.tokens[stop]
        return best[min(best)] if best else full

    def _overlap(self, start: int, stop: int, max_tokens: int, overlap_tokens: int) -> int:
        """Where the next chunk starts: before `stop`, so that it repeats whole sentences and has room for new text."""
        if stop == len(self.ends):
            return stop
        room = min(overlap_tokens, max_tokens - self.tokens[stop])
        begin = found = stop
        whole = self.ranks[stop - 1] <= _LINE
        while begin - 1 > start and room >= self.tokens[begin - 1]:
            begin -= 1
            room -= self.tokens[begin]
            if not whole or self.ranks[begin - 1] <= _LINE:
                found = begin
        return found


def _borders(text: str) -> Iterator[tuple[int, int, int]]:
    """Sentences and lines as (start, end, rank of the border at the end), without a gap."""
    start = 0
    for match in _BORDER.finditer(text):
        rank = {"paragraph": _PARAGRAPH, "line": _LINE, "sentence": _SENTENCE}[match.lastgroup or ""]
        if (
            rank == _SENTENCE
            and match[0][0] == "."
            and _ABBREVIATION.search(text[max(start, match.start() - 12) : match.start()])
        ):
            continue
        if rank == _LINE and text[match.start() - 1 : match.start()] in (*".!?…。！？",):
            rank = _SENTENCE
        yield start, match.end(), rank
        start = match.end()
    if start < len(text):
        yield start, len(text), _PARAGRAPH


def _short(text: str, pieces: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """The same pieces, with those of more than `_PIECE_CHARACTERS` cut."""
    for start, end, rank in pieces:
        while end - start > _PIECE_CHARACTERS:
            middle, border = _cut(text, start, min(end, start + 2 * _PIECE_CHARACTERS))
            yield start, middle, border
            start = middle
        yield start, end, rank


def _divided(
    text: str, pieces: list[tuple[int, int, int]], count_tokens: TokenCounter, limit: int, max_tokens: int
) -> list[tuple[int, int, int]]:
    """Pieces as (end, rank, tokens); those of more than `limit` tokens are halved until they fit."""
    done = []
    while pieces:
        counts = _counted(text, [(start, end) for start, end, _ in pieces], count_tokens)
        over = []
        for (start, end, rank), count in zip(pieces, counts, strict=True):
            middle, border = _cut(text, start, end) if count > limit else (end, rank)
            if count <= limit or (border == _NONE and count <= max_tokens):
                done.append((end, rank, count))
            elif end - start > 1:
                over += [(start, middle, border), (middle, end, rank)]
            elif text[start].isspace():
                done.append((end, rank, 0))
            else:
                raise InputError(f"max_tokens ({max_tokens}) is less than the {count} tokens of one character")
        pieces = over
    return sorted(done)


def _cut(text: str, start: int, end: int) -> tuple[int, int]:
    """A place near the middle of `[start, end)` to cut at, and its rank: word, grapheme or none."""
    middle = (start + end) // 2
    blanks = [match.end() for match in _BLANK.finditer(text, (start + middle) // 2, (middle + end) // 2)]
    blanks = [place for place in blanks if start < place < end]
    if blanks:
        return min(blanks, key=lambda place: abs(place - middle)), _WORD
    for place in (*range(middle, start, -1), *range(middle + 1, end)):
        if not _inside_grapheme(text, place, start):
            return place, _GRAPHEME
    return middle, _NONE


def _inside_grapheme(text: str, place: int, start: int) -> bool:
    """True if a cut before `text[place]` would part what is seen as one character (the main rules of UAX 29).

    `start` is a place before it that is not inside one.
    """
    before, after = text[place - 1], text[place]
    if after.isascii():
        return False
    if unicodedata.category(after)[0] == "M" or after in _JOINERS or before in _JOINERS:
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or unicodedata.combining(before) == _VIRAMA:
        return True
    if "\U0001f1e6" <= after <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff":
        # Flags are pairs of regional indicators.
        first = place - 1
        while first > start and "\U0001f1e6" <= text[first - 1] <= "\U0001f1ff":
            first -= 1
        return (place - first) % 2 == 1
    # Conjoining jamo: leading, vowel and trailing letters of one syllable.
    return "\u1160" <= after <= "\u11ff" and ("\u1100" <= before <= "\u11ff" or "\uac00" <= before <= "\ud7a3")

"""How much a sentence looks like an instruction to a machine, by a small trained classifier.

Belongs here: what the classifier sees of a sentence, and its answer. Does not: which sentences are held back for the
answer (`instructions`).

Logistic regression on hashed features: words, pairs of words that stand near each other, and parts of words.
`python -m examples.instructions.make` fits it and writes `instruction_weights.safetensors`, which holds numbers only.
Names are covered first: who is named says nothing about whether a sentence is an instruction, and a text must not be
held back for a name.
"""

import math
import re
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np

from ec1.extraction.folding import NO_BLANKS, Folded, unmasked
from ec1.files import sha256_file

BUCKETS = 2**17
WEIGHTS = "instruction_weights.safetensors"
# Raise this when the same sentence would give other features.
FEATURES_VERSION = 6
_NAME = "§"
_NUMBER = "0"
_CAPITAL = r"[A-ZÀ-ÖØ-ÞΑ-ΩА-ЯІЇЄҐĀ-Ž][\w'’]*\.?"
_RUN = re.compile(rf"(?<![\w-]){_CAPITAL}(?:[ -](?:(?:de|von|van|der|of|la|du|di|da)[ ])?{_CAPITAL})+(?!\w)")
_BEGINS = re.compile(r"(?:^|[.:;!?>\]\n\"'“„«(])\W*$")
_PART = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")
_LENGTHS = (3, 4, 5)
# How far two words may stand apart: in their order, in any order.
_AHEAD, _NEAR = 4, 7
# Words of one window: what stands farther apart does not belong together.
_WINDOW, _STEP = 30, 10
_WORD = re.compile(r"\S+")
# A line to write on, as forms and contracts have them: it says nothing, and is not one of the words.
_TO_FILL_IN = re.compile(r"_{3,}")


def likeness(sentence: str) -> float:
    """The log odds that a sentence is an instruction to a machine; of a long one's parts, the most."""
    return max(map(_likeness, _windows(_TO_FILL_IN.sub(" ", sentence))))


def _likeness(window: str) -> float:
    weights, bias = _model()
    if not any(part.isalpha() for part in _PART.findall(_RUN.sub(_NAME, window))):
        # A name alone, as in a list of names, tells nothing.
        return -math.inf
    found = features(window)
    return bias + float(weights[list(found)] @ np.fromiter(found.values(), np.float32, len(found)))


def _windows(sentence: str) -> Iterator[str]:
    """A sentence, or the parts of a long one that are looked at alone."""
    words = [match.span() for match in _WORD.finditer(sentence)]
    if len(words) <= _WINDOW:
        yield sentence
        return
    for first in [*range(0, len(words) - _WINDOW, _STEP), len(words) - _WINDOW]:
        yield sentence[words[first][0] : words[first + _WINDOW - 1][1]]


def features(sentence: str) -> dict[int, float]:
    """The features of a sentence, as places in the weights, each with its value."""
    found: dict[int, float] = {}
    for family in _families(sentence):
        # However many of its features a sentence has, a family counts the same.
        value = max(1, len(family)) ** -0.5
        for each in family:
            place = zlib.crc32(each.encode()) % BUCKETS
            found[place] = found.get(place, 0.0) + value
    # Sets have no order, and sums depend on it.
    return dict(sorted(found.items()))


def _families(sentence: str) -> Iterator[set[str]]:
    """Words, neighbours, words near each other, parts of words, and the sentence's shape."""
    found = _PART.findall(_folded(_RUN.sub(_cover, unmasked(sentence))))
    # Which number it is says nothing.
    parts = [_NUMBER if part.isdigit() else part for part in found]
    yield set(parts)
    yield {f"{one} {other}" for one, other in pairwise(["^", *parts, "$"])}
    near = set(_ahead(parts))
    for at, one in enumerate(parts):
        near.update(f"u{min(one, other)} {max(one, other)}" for other in parts[at + 1 : at + _NEAR])
    yield near
    yield set(_of_words(parts))
    yield {f"L{min(len(parts) // 4, 8)}", f"F{parts[0] if parts else ''}", f"E{_last(sentence)}"}


def _last(sentence: str) -> str:
    last = sentence.rstrip()[-1:]
    return _NUMBER if last.isdigit() else last


def _ahead(parts: list[str]) -> Iterator[str]:
    """Pairs of words in their order, with a word or two between them."""
    bounded = ["^", *parts, "$"]
    for at, one in enumerate(bounded):
        yield from (f"s{one} {other}" for other in bounded[at + 2 : at + _AHEAD])


def _of_words(parts: list[str]) -> Iterator[str]:
    for part in parts:
        if NO_BLANKS.search(part):
            for length in (1, 2, 3):
                yield from (part[at : at + length] for at in range(len(part) - length + 1))
        elif len(part) > 1:
            whole = f"_{part}_"
            for length in _LENGTHS:
                yield from (f"_{whole[at : at + length]}" for at in range(len(whole) - length + 1))


def _cover(found: re.Match[str]) -> str:
    """A sign for a name. What opens a clause with a capital, or stands before two words with one, may be none."""
    run, before = found[0], found.string[max(0, found.start() - 8) : found.start()]
    words = run.split(" ")
    if len(words) > 1 and (len(words) > 2 or _BEGINS.search(before)) and not run.isupper():
        return f"{words[0]} {_NAME}"
    return run if run.isupper() else _NAME


def _folded(sentence: str) -> str:
    if sentence.isascii():
        return sentence.casefold()
    return Folded.of(sentence).text


@cache
def weights_digest() -> str:
    """SHA-256 of the file of weights."""
    return sha256_file(Path(str(files("ec1.extraction.defence") / WEIGHTS)))


@cache
def _model() -> tuple["np.ndarray", float]:
    """The weights of the features, and the bias."""
    from safetensors import safe_open

    with safe_open(str(files("ec1.extraction.defence") / WEIGHTS), framework="numpy") as file:
        return file.get_tensor("features").astype(np.float32), float(file.get_tensor("bias")[0])

"""How much a sentence looks like an instruction to a machine, by a small trained classifier.

Belongs here: what the classifier sees of a sentence, and its answer. Does not: the signs that are written by hand
(`instruction_signs`), which it also sees, and which sentences are held back for the answer (`instructions`).

Logistic regression on hashed features: words, pairs of words that stand near each other, parts of words, and what words
mean by the lists `words/sense_*.txt`. `python -m examples.instructions.make` fits it and writes
`instruction_weights.safetensors`, which holds numbers only. Names are covered first: who is named says nothing about
whether a sentence is an instruction, and a text must not be held back for a name.
"""

import math
import re
import zlib
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import numpy as np

from ec1.extraction.defence.instruction_signs import Weight, weigh, windows
from ec1.extraction.folding import Folded, unmasked
from ec1.extraction.wordlists import word_list
from ec1.files import sha256_file

BUCKETS = 2**17
WEIGHTS = "instruction_weights.safetensors"
# Raise this when the same sentence would give other features.
FEATURES_VERSION = 4
_NAME = "§"
_NUMBER = "0"
_CAPITAL = r"[A-ZÀ-ÖØ-ÞΑ-ΩА-ЯІЇЄҐĀ-Ž][\w'’]*\.?"
_RUN = re.compile(rf"(?<![\w-]){_CAPITAL}(?:[ -](?:(?:de|von|van|der|of|la|du|di|da)[ ])?{_CAPITAL})+(?!\w)")
_BEGINS = re.compile(r"(?:^|[.:;!?>\]\n\"'“„«(])\W*$")
_PART = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")
_NO_BLANKS = re.compile(r"[\u0e00-\u0eff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f]")
_LENGTHS = (3, 4, 5)
# How far two words may stand apart: in their order, in any order.
_AHEAD, _NEAR, _FAR = 4, 7, 12
# The first list that has a word says what it means.
_SENSES = (
    *("machine", "output", "to_list", "duty", "lacking", "you"),
    *("order", "named", "text", "only", "right", "please"),
)
_SENSES_COUNT = 2.0


def likeness(sentence: str) -> tuple[float, Weight]:
    """The log odds that a sentence is an instruction to a machine, and its signs; of a long one's parts, the most."""
    return max((_likeness(each) for each in windows(sentence)), key=lambda each: each[0])


def _likeness(window: str) -> tuple[float, Weight]:
    weights, kinds, bias = _model()
    signs = weigh(window)
    short = not signs.found or len(window.split()) <= 2
    if short and not any(part.isalpha() for part in _PART.findall(_RUN.sub(_NAME, window))):
        # A name alone, as in a list of names, tells nothing.
        return -math.inf, signs
    found = features(window)
    by_words = float(weights[list(found)] @ np.fromiter(found.values(), np.float32, len(found)))
    return bias + by_words + sum(kinds.get(kind, 0.0) * weight for kind, weight in signs.found), signs


def features(sentence: str) -> dict[int, float]:
    """The features of a sentence, as places in the weights, each with its value."""
    found: dict[int, float] = {}
    for weight, family in _families(sentence):
        # However many of its features a sentence has, a family counts the same.
        value = weight * max(1, len(family)) ** -0.5
        for each in family:
            place = zlib.crc32(each.encode()) % BUCKETS
            found[place] = found.get(place, 0.0) + value
    # Sets have no order, and sums depend on it.
    return dict(sorted(found.items()))


def _families(sentence: str) -> Iterator[tuple[float, set[str]]]:
    """Words, neighbours, words near each other, parts of words, the sentence's shape, and what the words mean."""
    found = _PART.findall(_folded(_RUN.sub(_cover, unmasked(sentence))))
    # Which number it is says nothing.
    parts = [_NUMBER if part.isdigit() else part for part in found]
    yield 1.0, set(parts)
    yield 1.0, {f"{one} {other}" for one, other in pairwise(["^", *parts, "$"])}
    near = set(_ahead(parts))
    for at, one in enumerate(parts):
        near.update(f"u{min(one, other)} {max(one, other)}" for other in parts[at + 1 : at + _NEAR])
    yield 1.0, near
    yield 1.0, set(_of_words(parts))
    yield 1.0, {f"L{min(len(parts) // 4, 8)}", f"F{parts[0] if parts else ''}", f"E{_last(sentence)}"}
    meant = [_sense(part) for part in parts]
    told = [(at, each) for at, each in enumerate(meant) if each[0] in "@§"]
    senses = {each for _, each in told}
    for number, (at, one) in enumerate(told):
        senses.update(f"k{one}{other}" for place, other in told[number + 1 : number + _FAR] if place - at < _FAR)
    told_alone = [each for _, each in told]
    senses.update(f"K{''.join(told_alone[at : at + 3])}" for at in range(len(told) - 2))
    yield _SENSES_COUNT, senses
    yield 1.0, {f"{one} {other}" for one, other in pairwise(["^", *meant, "$"])} | set(_ahead(meant))


def _last(sentence: str) -> str:
    last = sentence.rstrip()[-1:]
    return _NUMBER if last.isdigit() else last


def _ahead(parts: list[str]) -> Iterator[str]:
    """Pairs of words in their order, with a word or two between them."""
    bounded = ["^", *parts, "$"]
    for at, one in enumerate(bounded):
        yield from (f"s{one} {other}" for other in bounded[at + 2 : at + _AHEAD])


@lru_cache(2**14)
def _sense(part: str) -> str:
    """A sign for what a word means, if a list of words says so, else the word."""
    senses = _senses()
    found = senses.get(part)
    if found is None:
        found = next((senses[f"{part[:end]}*"] for end in range(len(part), 1, -1) if f"{part[:end]}*" in senses), part)
    return found


@cache
def _senses() -> dict[str, str]:
    return {word: f"@{name}" for name in _SENSES for word in word_list(f"sense_{name}")}


def _of_words(parts: list[str]) -> Iterator[str]:
    for part in parts:
        if _NO_BLANKS.search(part):
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
def _model() -> tuple["np.ndarray", dict[str, float], float]:
    """The weights of the features, those of the signs by kind, and the bias."""
    from safetensors import safe_open

    with safe_open(str(files("ec1.extraction.defence") / WEIGHTS), framework="numpy") as file:
        kinds = (file.metadata() or {})["kinds"].split("\n")
        signs = dict(zip(kinds, file.get_tensor("signs").tolist(), strict=True))
        return file.get_tensor("features").astype(np.float32), signs, float(file.get_tensor("bias")[0])

"""How much a sentence looks like an instruction to a machine, by a small trained classifier.

Belongs here: what the classifier sees of a sentence, and its answer. Does not: the signs that are written by hand
(`instruction_signs`), which it also sees, and which sentences are held back for the answer (`instructions`).

Logistic regression on hashed words and parts of words. `python -m examples.instructions.make` fits it and writes
`instruction_weights.safetensors`, which holds numbers only. Names are covered first: who is named says nothing about
whether a sentence is an instruction, and a text must not be held back for a name.
"""

import math
import re
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np

from ec1.extraction.folding import Folded
from ec1.extraction.instruction_signs import Weight, weigh, windows
from ec1.files import sha256_file

BUCKETS = 2**15
WEIGHTS = "instruction_weights.safetensors"
# Raise this when the same sentence would give other features.
FEATURES_VERSION = 1
_NAME = "§"
_CAPITAL = r"[A-ZÀ-ÖØ-ÞΑ-ΩА-ЯІЇЄҐĀ-Ž][\w'’]*\.?"
_RUN = re.compile(rf"(?<![\w-]){_CAPITAL}(?:[ -](?:(?:de|von|van|der|of|la|du|di|da)[ ])?{_CAPITAL})+(?!\w)")
_BEGINS = re.compile(r"(?:^|[.:;!?>\]\n\"'“„«(])\W*$")
_PART = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")
_NO_BLANKS = re.compile(r"[\u0e00-\u0eff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f]")
_LENGTHS = (3, 4, 5)


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
    places = buckets(window)
    by_words = float(weights[places].sum()) / math.sqrt(len(places))
    return bias + by_words + sum(kinds.get(kind, 0.0) * weight for kind, weight in signs.found), signs


def buckets(sentence: str) -> list[int]:
    """The features of a sentence, as places in the weights; each once, in ascending order."""
    return sorted({zlib.crc32(each.encode()) % BUCKETS for each in _features(sentence)})


def _features(sentence: str) -> Iterator[str]:
    parts = _PART.findall(_folded(_RUN.sub(_cover, sentence)))
    before = "^"
    for part in [*parts, "$"]:
        yield f"{before} {part}"
        before = part
    for part in parts:
        yield part
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
    return sha256_file(Path(str(files("ec1.extraction") / WEIGHTS)))


@cache
def _model() -> tuple["np.ndarray", dict[str, float], float]:
    """The weights of the features, those of the signs by kind, and the bias."""
    from safetensors import safe_open

    with safe_open(str(files("ec1.extraction") / WEIGHTS), framework="numpy") as file:
        kinds = (file.metadata() or {})["kinds"].split("\n")
        signs = dict(zip(kinds, file.get_tensor("signs").tolist(), strict=True))
        return file.get_tensor("features").astype(np.float32), signs, float(file.get_tensor("bias")[0])

"""An answer in other words is on the side of the one it resembles; a template joins nothing."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from ec1.corpus.duplicates import SignaturesInMemory
from ec1.corpus.rewordings import across, answer_signature, rewordings
from ec1.corpus.split import MANY

WORDS = [f"word{number}" for number in range(3000)]
LETTERS = [chr(0x4E00 + number) for number in range(600)]


def pairs_of(texts: Sequence[str]) -> set[tuple[int, int]]:
    signatures = [
        answer_signature({"completion": [{"role": "assistant", "content": text}]}, f"{number:064x}")
        for number, text in enumerate(texts)
    ]
    return set(map(tuple, rewordings(SignaturesInMemory(np.stack(signatures))).tolist()))


def texts_and_rewordings(letters: bool, share: float) -> list[str]:
    """130 texts, then each with a share of its words, or of its letters, replaced."""
    rng = random.Random(7)
    pool, between, length = (LETTERS, "", 200) if letters else (WORDS, " ", 120)
    texts = [rng.choices(pool, k=length) for _ in range(130)]
    changed = [[rng.choice(pool) if rng.random() < share else each for each in text] for text in texts]
    return [between.join(text) for text in (*texts, *changed)]


@pytest.mark.parametrize(("letters", "share"), [(False, 0.12), (True, 0.04)])
def test_a_text_in_other_words_is_found(letters: bool, share: float) -> None:
    """Of 130 with 12 % of the words replaced one was found, of 110 with 4 % of the letters none."""
    pairs = pairs_of(texts_and_rewordings(letters, share))
    assert len(pairs) >= 110 and all(right - left == 130 for left, right in pairs)


def test_a_template_joins_nothing() -> None:
    rng = random.Random(8)
    form = " ".join(rng.choices(WORDS, k=80))
    filled = [f"{form} {' '.join(rng.choices(WORDS, k=20))}" for _ in range(4 * MANY)]
    others = texts_and_rewordings(False, 0.1)
    pairs = pairs_of([*filled, *others])
    assert pairs and all(left >= len(filled) for left, _ in pairs)


def test_of_a_diff_the_added_lines_count_and_short_answers_resemble_none() -> None:
    rng = random.Random(9)
    around = "\n".join(f" {' '.join(rng.choices(WORDS, k=8))}" for _ in range(20))
    diffs = [f"@@ -1 +1 @@\n{around}\n+{' '.join(rng.choices(WORDS, k=40))}" for _ in range(8)]
    assert pairs_of(diffs) == set()
    moved = [diffs[0].replace(around, around[::-1])]
    assert pairs_of([*diffs, *moved]) == {(0, 8)}
    assert pairs_of(["yes, that is right"] * 8) == set()
    assert pairs_of(["one"]) == set()
    assert rewordings(SignaturesInMemory(np.empty((0, 64), np.uint32))).shape == (0, 2)


def test_what_a_pair_on_two_sides_costs_is_its_training_row() -> None:
    pairs = np.array([[0, 1], [1, 2], [3, 4], [5, 1]])
    heldout = np.array([True, False, False, True, True, False])
    assert across(pairs, np.arange(6), heldout).tolist() == [1]
    assert across(pairs, np.array([1, 2, 3]), heldout).tolist() == []
    assert across(np.empty((0, 2), np.int64), np.arange(6), heldout).tolist() == []

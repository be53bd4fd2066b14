"""Weights of evidence from the graph itself, without labels: expectation maximisation after Fellegi and Sunter.

How often the facts of two different people agree is counted on random pairs. How often those of one person agree is
estimated on the pairs that resolution compares (`blocking.py`): in turn, how likely each pair is one person, and the
shares among the likely ones. Two different people who are compared agree more often than random ones, since something
brought them together, so they have shares of their own meanwhile, which are then dropped. See Winkler, "Using the EM
Algorithm for Weight Computation in the Fellegi-Sunter Model of Record Linkage" (1988), and Splink's documentation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ec1.errors import InputError
from ec1.graph.blocking import candidate_pairs
from ec1.graph.scoring import KINDS, PERSON, Level, Profile, Scorer, Statistics
from ec1.graph.weights import Shares, Weights

LEAST_MATCHES = 50
"""A kind that fewer pairs of one person show keeps the weight that comes with EC1."""
LEAST_KINDS = 3
"""With fewer kinds it is not known which pairs are one person. Given name and surname are two."""
MOST_PAIRS = 60_000
RANDOM_PAIRS = 20_000
_LEVELS = (Level.EXACT, Level.CLOSE, Level.DIFFERENT)
_ABSENT = len(_LEVELS)
_START = np.array([0.85, 0.10, 0.05])
_START_PAIRS = 20
_ROUNDS = 200


@dataclass(frozen=True)
class Fit:
    """Fitted weights, how many pairs they come from, how many of these are one person by them, and how many show each
    kind."""

    weights: Weights
    pairs: int
    matches: float
    matches_by_kind: dict[str, float]


def fit(profiles: Iterable[Profile], *, seed: int = 1) -> Fit:
    """Fit weights to the people among some entities. The same entities and seed give the same weights.

    Raises InputError if there are too few pairs of one person to tell.
    """
    people = sorted((each for each in profiles if each.entity_class == PERSON), key=lambda each: each.key)
    rng = np.random.default_rng(seed)
    pairs = candidate_pairs(people)
    if len(pairs) > MOST_PAIRS:
        pairs = pairs[np.sort(rng.choice(len(pairs), MOST_PAIRS, replace=False))]
    kinds = ["given", "surname", *sorted({kind for each in people for kind in each.attributes})]
    few = f"at least {LEAST_KINDS} kinds of facts, each of {LEAST_MATCHES} pairs of one person"
    if len(kinds) < LEAST_KINDS or len(pairs) < LEAST_MATCHES:
        raise InputError(f"the graph is too small to fit weights to: that takes {few}")
    random = rng.integers(len(people), size=(RANDOM_PAIRS, 2))
    scorer = Scorer(Statistics.of(people))
    of_two = _counts(_levels(scorer, people, random[random[:, 0] != random[:, 1]], kinds)) + 0.5
    of_two /= of_two.sum(axis=1, keepdims=True)
    of_one, chance, levels = _maximise(_levels(scorer, people, pairs, kinds), of_two)
    matches = {kind: float(chance[levels[:, at] != _ABSENT].sum()) for at, kind in enumerate(kinds)}
    fitted = {
        kind: Shares(
            exact=_share(of_one[at, 0]),
            close=_share(of_one[at, 1]),
            different=_share(of_one[at, 2]),
            close_of_two=_share(of_two[at, 1]),
            different_of_two=_share(of_two[at, 2]),
        )
        for at, kind in enumerate(kinds)
        if matches[kind] >= LEAST_MATCHES
    }
    if len(fitted) < LEAST_KINDS or not KINDS.keys() & fitted.keys():
        raise InputError(f"the graph has too few facts to fit weights to: that takes {few}")
    return Fit(Weights(person=fitted), len(pairs), float(chance.sum()), matches)


def _levels(scorer: Scorer, people: list[Profile], pairs: "np.ndarray", kinds: list[str]) -> "np.ndarray":
    """By pair and kind the number of a level in `_LEVELS`, or `_ABSENT`; integers of shape (pairs, kinds)."""
    rows = []
    for one, other in pairs.tolist():
        found = dict(scorer.levels(people[one], people[other]))
        rows.append([_LEVELS.index(found[kind]) if found.get(kind) in _LEVELS else _ABSENT for kind in kinds])
    return np.array(rows)


def _counts(levels: "np.ndarray", weights: "np.ndarray | None" = None) -> "np.ndarray":
    """How many pairs, each counted by its weight, are on each level; of shape (kinds, levels)."""
    each = np.ones(len(levels)) if weights is None else weights
    return np.array(
        [[each[levels[:, at] == number].sum() for number in range(_ABSENT)] for at in range(levels.shape[1])]
    )


def _maximise(levels: "np.ndarray", of_two: "np.ndarray") -> tuple["np.ndarray", "np.ndarray", "np.ndarray"]:
    """The shares of pairs of one person, of shape (kinds, levels); how likely each pair is one; and `levels`."""
    one = np.tile(_START, (levels.shape[1], 1))
    two, rate = of_two.copy(), 0.1
    chance = np.zeros(len(levels))
    for _ in range(_ROUNDS):
        before = one
        odds = np.log(rate / (1 - rate)) + _log(one, levels) - _log(two, levels)
        chance = 1 / (1 + np.exp(-np.clip(odds, -500, 500)))
        rate = float(np.clip(chance.mean(), 1e-5, 0.99))
        # A few imaginary pairs keep a share that was never seen off zero.
        one = _shares(_counts(levels, chance) + _START_PAIRS * _START)
        two = _shares(_counts(levels, 1 - chance) + _START_PAIRS * of_two)
        if np.abs(one - before).max() < 1e-5:
            break
    return one, chance, levels


def _shares(counts: "np.ndarray") -> "np.ndarray":
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def _log(shares: "np.ndarray", levels: "np.ndarray") -> "np.ndarray":
    """By pair the log of the product of its shares; what is absent says nothing."""
    known = np.log(np.concatenate([shares, np.ones((len(shares), 1))], axis=1))
    return np.asarray(known[np.arange(levels.shape[1]), levels].sum(axis=1))


def _share(value: float) -> float:
    return round(min(max(float(value), 1e-6), 1 - 1e-6), 6)

"""What an answer is worth: held against a program's checks, many answers at once.

Belongs here: finding the answer in what a model wrote, the checks, and what they come to. Does not: the kinds of check
(`checks.py`), asking a model, and checks that a model judges (`ec1.adapters.judging`).
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ec1.errors import InputError
from ec1.rewards.bounded import found_in, is_of_schema
from ec1.rewards.checks import Check
from ec1.sandbox.batch import Job, Returned, Value, call
from ec1.sandbox.box import run

_FENCE = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_CLOSE = 1e-9
EXPLOITS = frozenset({"ended", "signal", "memory", "output", "box", "not a plain value"})
"""What an honest answer rarely does: end its process, break its limits, or give back an object of its own making."""


@dataclass(frozen=True)
class CheckScore:
    """What one check says of one answer. `formed`: it is of the kind that was asked for, such as an expression that
    can be evaluated. `exploit`: why it earned nothing, if that looks like an attempt to be counted as right."""

    right: bool
    formed: bool
    exploit: str | None = None


WRONG = CheckScore(False, False)
Reward = Callable[[Sequence[str], Sequence[Check]], list[CheckScore]]
"""Scores of answers, each held against the check at the same place; all of one kind."""


def executed(answers: Sequence[str], checks: Sequence[Check]) -> list[CheckScore]:
    """Kinds `python` and `tests`: each answer runs in the sandbox, and what its calls give is compared out here."""
    cases = [check.python_cases() for check in checks]
    jobs = [
        Job(body_of(answer), tuple(each.case for each in mine)) for answer, mine in zip(answers, cases, strict=True)
    ]
    expected = [[each.expected for each in mine] for mine in cases]
    return [_compared(outcome, values) for outcome, values in zip(call(jobs), expected, strict=True)]


def schema(answers: Sequence[str], checks: Sequence[Check]) -> list[CheckScore]:
    """The first JSON value is of the schema."""
    scores = []
    for answer, check in zip(answers, checks, strict=True):
        value = first_json(said(answer))
        scores.append(WRONG if value is None else CheckScore(is_of_schema(value[0], check.value), True))
    return scores


def regex(answers: Sequence[str], checks: Sequence[Check]) -> list[CheckScore]:
    """The expression is found in the answer."""
    found = [found_in(check.value, body_of(answer)) for answer, check in zip(answers, checks, strict=True)]
    return [CheckScore(each, each) for each in found]


def exact(answers: Sequence[str], checks: Sequence[Check]) -> list[CheckScore]:
    """The answer is these words."""
    same = [body_of(answer) == check.value.strip() for answer, check in zip(answers, checks, strict=True)]
    return [CheckScore(each, each) for each in same]


def command(answers: Sequence[str], checks: Sequence[Check]) -> list[CheckScore]:
    """A program that reads the answer ends with status 0. It is the recipe's; what it reads was written by a model."""
    passed = [
        run(tuple(check.value), body_of(answer).encode("utf-8", "replace")).status == 0
        for answer, check in zip(answers, checks, strict=True)
    ]
    return [CheckScore(each, each) for each in passed]


REWARDS: dict[str, Reward] = {
    "python": executed,
    "tests": executed,
    "schema": schema,
    "regex": regex,
    "exact": exact,
    "command": command,
}
"""By the kind of check; what a model judges is not among them."""


def score_all(answers: Sequence[str], checks: Sequence[Sequence[Check]]) -> list[list[CheckScore]]:
    """Per answer the scores of its checks, in their order. Answers that are executed share a few boxes.

    Raises InputError for a check that no program makes, and if the sandbox does not work.
    """
    scores: list[list[CheckScore]] = [[WRONG] * len(each) for each in checks]
    for reward in dict.fromkeys(REWARDS.values()):
        places = [
            (at, number)
            for at, mine in enumerate(checks)
            for number, check in enumerate(mine)
            if _reward_of(check) is reward
        ]
        if places:
            found = reward([answers[at] for at, _ in places], [checks[at][number] for at, number in places])
            for (at, number), score in zip(places, found, strict=True):
                scores[at][number] = score
    return scores


def _reward_of(check: Check) -> Reward:
    if check.check not in REWARDS:
        raise InputError(f"check {check.check} is not a program's: it cannot be a reward")
    return REWARDS[check.check]


def passes(check: Check, answer: str) -> bool:
    """Whether one answer passes one check."""
    return score_all([answer], [[check]])[0][0].right


def said(answer: str) -> str:
    """An answer without what a reasoning model thought before it."""
    return answer.rpartition("</think>")[2]


def body_of(answer: str) -> str:
    """An answer without its thought and, if it has one, without the fence around it."""
    text = said(answer)
    fenced = _FENCE.search(text)
    return (fenced[1] if fenced else text).strip()


def first_json(text: str) -> tuple[Any] | None:
    """The first JSON object or list in a text, in a tuple; None if there is none."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"[\[{]", text):
        try:
            return (decoder.raw_decode(text, match.start())[0],)
        except (ValueError, RecursionError):
            continue
    return None


def equal(value: Any, expected: Any) -> bool:
    """Whether a value is the expected one: numbers by their value, truth values only as such, decimals nearly."""
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    if isinstance(value, int | float) and isinstance(expected, int | float):
        if isinstance(value, float) or isinstance(expected, float):
            try:
                return math.isclose(value, expected, rel_tol=_CLOSE, abs_tol=_CLOSE)
            except OverflowError:
                return False
        return value == expected
    if isinstance(expected, list | tuple):
        same = isinstance(value, list) and len(value) == len(expected)
        return same and all(equal(one, other) for one, other in zip(value, expected, strict=True))
    if isinstance(expected, dict):
        same = isinstance(value, dict) and value.keys() == expected.keys()
        return same and all(equal(value[key], expected[key]) for key in expected)
    return type(value) is type(expected) and bool(value == expected)


def _compared(outcome: Returned, expected: Sequence[Any]) -> CheckScore:
    values = [each for each in outcome.results if isinstance(each, Value)]
    exploit = next((each for each in outcome.results if isinstance(each, str) and each in EXPLOITS), None)
    if exploit is not None or len(values) < len(expected):
        return CheckScore(False, False, exploit)
    return CheckScore(all(equal(each.value, one) for each, one in zip(values, expected, strict=True)), True)

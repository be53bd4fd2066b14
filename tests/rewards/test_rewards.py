"""Checks and what an answer is worth by them; answers that are executed, in the real sandbox."""

import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ec1.errors import InputError
from ec1.rewards.bounded import found_in
from ec1.rewards.checks import Check, why_unchecked
from ec1.rewards.rewards import REWARDS, CheckScore, equal, score_all
from ec1.sandbox.batch import why_no_python

WRONG, RIGHT, FORMED = CheckScore(False, False), CheckScore(True, True), CheckScore(False, True)


def check(kind: str, value: Any) -> Check:
    return Check(check=kind, value=value)  # type: ignore[arg-type]


@pytest.mark.needs("bwrap")
def test_executed_answers_are_compared_outside() -> None:
    if (why := why_no_python()) is not None:
        pytest.skip(why)
    expression = check("python", [{"given": {"x": x}, "expected": abs(x) - 5} for x in (-7, 0, 3)])
    function = check("python", {"call": "f([3, 1])", "expected": [1, 3]})
    tests = check("tests", "assert f(2) == (4, 'b')\nassert f(0) == (0, 'b')")
    pairs = [
        ("abs(x) - 5", expression, RIGHT),
        ("```python\nabs(x) - 5\n```", expression, RIGHT),
        ("abs(x) + 5", expression, FORMED),
        ("abs(y) - 5", expression, WRONG),
        ("<think>abs(x) - 5</think>x", expression, FORMED),
        ("def f(a): return tuple(sorted(a))", function, RIGHT),
        ("def f(a): return True", function, FORMED),
        ("import os; os._exit(0)", function, CheckScore(False, False, "ended")),
        ("class A(int):\n def __eq__(s, o): return True\ndef f(a): return A()", function, None),
        ("def f(x): return (x * 2, 'b')", tests, RIGHT),
        ("raise SystemExit(0)", tests, WRONG),
    ]
    found = score_all([answer for answer, _, _ in pairs], [[each] for _, each, _ in pairs])
    for (answer, _, wanted), [score] in zip(pairs, found, strict=True):
        assert score == (wanted or CheckScore(False, False, "not a plain value")), answer


def test_several_checks_of_one_answer_keep_their_places() -> None:
    checks = [check("regex", "^yes"), check("exact", "yes"), check("schema", {"type": "object"})]
    assert score_all(["yes!", "yes", '{"a": 1}', "[1]"], [checks] * 4) == [
        [RIGHT, WRONG, WRONG],
        [RIGHT, RIGHT, WRONG],
        [WRONG, WRONG, RIGHT],
        [WRONG, WRONG, FORMED],
    ]
    with pytest.raises(InputError, match="not a program's"):
        score_all(["yes"], [[check("judge", {"criterion": "is yes", "good": "yes", "bad": "no"})]])


HOSTILE = r"^(a|aa)+$"


@pytest.mark.parametrize(
    "asked",
    [
        check("regex", HOSTILE),
        check("schema", {"properties": {"name": {"pattern": HOSTILE}}}),
        check("schema", {"patternProperties": {HOSTILE: {}}, "additionalProperties": False}),
    ],
)
@pytest.mark.timeout(60)
def test_an_expression_that_goes_back_for_ever_costs_its_answer_and_not_the_night(asked: Check) -> None:
    """Rows come from anybody; this one asks the model for the text that its own expression takes years to look at."""
    text = "a" * 60 + "!"
    answer = text if asked.check == "regex" else json.dumps({text: 1, "name": text})
    assert not score_all([answer], [[asked]])[0][0].right
    assert score_all(["yes"], [[check("regex", "^yes$")]]) == [[RIGHT]], "the next one is looked at"


def test_an_alarm_that_somebody_else_waits_for_still_comes() -> None:
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rung.append(number))
    others = signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        assert found_in("^yes$", "yes")
        deadline = time.monotonic() + 20
        while not rung and time.monotonic() < deadline:
            time.sleep(0.01)
        assert rung == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *others)


@pytest.mark.parametrize("reference", ["http://127.0.0.1:{port}/schema.json", "file://{path}", "other.json"])
def test_a_schema_asks_nobody_and_reads_no_file(reference: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        named = reference.format(port=server.getsockname()[1], path=path)
        with pytest.raises(InputError, match="names another one, which is not in it"):
            score_all(["{}"], [[check("schema", {"$ref": named})]])
        with pytest.raises(TimeoutError):
            server.accept()
    meta = check("schema", {"$ref": "https://json-schema.org/draft/2020-12/schema"})
    assert score_all(['{"type": "object"}', '{"type": 1}'], [[meta]] * 2) == [[RIGHT], [FORMED]]


@pytest.mark.parametrize(
    ("value", "expected", "same"),
    [
        (1, 1, True), (1, True, False), (True, 1, False), (1, 1.0, True), (0.1 + 0.2, 0.3, True), ("1", 1, False),
        (10**400, 1.5, False), ([1, [2]], [1, [2]], True), ([1], [1, 2], False), ({"a": 1}, {"a": True}, False),
        (None, None, True), (None, False, False), ({"a": [1]}, {"a": [1]}, True), (float("nan"), float("nan"), False),
    ],
)  # fmt: skip
def test_values_are_equal_by_what_they_are(value: Any, expected: Any, same: bool) -> None:
    assert equal(value, expected) is same


def test_a_check_that_cannot_be_made_is_refused() -> None:
    for kind, value, why in (
        ("python", {"call": "f(1)"}, "expected: Field required"),
        ("python", "f(1) == 2", "a mapping of call, given and expected"),
        ("python", [], "has 0 cases"),
        ("tests", "assert f(1)", "is not `assert CALL == LITERAL`"),
        ("tests", "import os", "is not `assert CALL == LITERAL`"),
        ("tests", "assert f(1) == g(1)", "is not `assert CALL == LITERAL`"),
        ("regex", "(", "is not a regular expression"),
        ("command", [], "the program and its arguments"),
    ):
        with pytest.raises(ValidationError, match=why):
            check(kind, value)


def test_what_is_executed_asks_for_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    for kind in ("python", "tests", "command"):
        assert "apt-get install bubblewrap" in str(why_unchecked({kind}))  # type: ignore[arg-type]
    assert why_unchecked({"regex", "schema", "exact"}) is None
    assert set(REWARDS) == {"python", "tests", "schema", "regex", "exact", "command"}

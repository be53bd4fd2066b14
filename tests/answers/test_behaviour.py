"""Faults in the form of written answers, and task cases: what passes, what does not."""

from typing import Any

import pytest
from pydantic import ValidationError

from ec1.answers.behaviour import faults_of
from ec1.recipes.evaluation import EvaluationOptions, TaskCase, why_unchecked
from ec1.rewards.rewards import passes
from ec1.sandbox.box import why_not

DIFF = "--- a/x.toml\n+++ b/x.toml\n@@ -1,2 +1,2 @@\n retry = 1\n-wait = 3\n+wait = 5  # was 3\n"


@pytest.mark.parametrize(
    ("answer", "wanted", "faults"),
    [
        (DIFF, DIFF, []),
        (DIFF.strip(), DIFF, []),
        (DIFF.replace("wait = 5", "wait = 7"), DIFF, []),
        ("@@ -1 +1 @@\n-wait = 3\n+wait = 5\n", DIFF, ["malformed", "does_not_apply"]),
        (DIFF.replace("-1,2", "-1,3"), DIFF, ["malformed", "does_not_apply"]),
        ("Here you are:\n" + DIFF, DIFF, ["malformed", "does_not_apply"]),
        (DIFF.replace("-wait = 3", "-pause = 3"), DIFF, ["does_not_apply"]),
        ('{"a": 1}', '{"b": 2}', []),
        ("a: 1", '{"b": 2}', ["malformed"]),
        ("  \n", "yes", ["empty"]),
        ("# # # " * 20, "yes", ["repetitive"]),
        ("No.", "yes", []),
    ],
)
def test_faults(answer: str, wanted: str, faults: list[str]) -> None:
    assert faults_of(answer, wanted, cut=False) == faults


def test_an_answer_that_never_ends_is_a_fault() -> None:
    assert faults_of("and then", "yes", cut=True) == ["endless"]


def case(check: str, value: Any) -> TaskCase:
    return TaskCase(name="case", prompt="?", check=check, value=value)  # type: ignore[arg-type]


SCHEMA = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    ("check", "value", "right", "wrong"),
    [
        ("schema", SCHEMA, 'Sure: {"name": "Ann"} as asked', '{"name": 3}'),
        ("schema", SCHEMA, '[1] is broken {"name": ' + '{"name": "Ann"}', "no JSON"),
        ("regex", r"^\d+ km$", "12 km", "12 miles"),
        ("regex", "def main", "```python\ndef main(): ...\n```", "```python\nmain()\n```\ndef main"),
        ("exact", "Paris", "<think>Rome?</think>\n Paris ", "Paris, of course"),
    ],
)
def test_a_task_case_looks_at_the_answer_alone(check: str, value: Any, right: str, wrong: str) -> None:
    assert passes(case(check, value), right) is (not right.startswith("[1]"))
    assert not passes(case(check, value), wrong)


@pytest.mark.needs("bwrap")
def test_a_command_decides_in_a_sandbox() -> None:
    if (why := why_not()) is not None:
        pytest.skip(why)
    assert passes(case("command", ("/usr/bin/grep", "-q", "yes")), "yes")
    assert not passes(case("command", ("/usr/bin/grep", "-q", "yes")), "no")
    assert not passes(case("command", ("/usr/bin/ls", "/home")), "yes")


def test_a_command_without_a_sandbox_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "bubblewrap" in str(why_unchecked(EvaluationOptions(tasks=(case("command", ("true",)),))))
    assert why_unchecked(EvaluationOptions(tasks=(case("exact", "yes"),))) is None


def test_a_case_that_cannot_be_checked_is_refused() -> None:
    for check, value in (("regex", "("), ("schema", "text"), ("command", "rm -rf"), ("exact", {"a": 1})):
        with pytest.raises(ValidationError):
            case(check, value)
    with pytest.raises(ValidationError, match="same name"):
        EvaluationOptions(tasks=(case("exact", "a"), case("exact", "b")))

"""Checks: what is held against an answer. One vocabulary for a recipe's task cases and for tuples of kind `task`.

Belongs here: the kinds of check and what each needs as its value. Does not: holding an answer against one
(`rewards.py`). Light: recipes import it at definition time.
"""

import ast
import json
import re
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from ec1.sandbox.batch import Case, why_no_python
from ec1.sandbox.box import why_not
from ec1.settings import Settings

CheckName = Literal["schema", "regex", "exact", "python", "tests", "command", "judge"]
MAX_CASES = 32


class PythonCase(Settings):
    """One call of what an answer defines, or one evaluation of an answer that is an expression."""

    call: str | None = Field(
        None, min_length=1, description="such as f(3), after the answer; default: the answer is an expression itself"
    )
    given: dict[str, Any] = Field({}, description="names that the call or the expression may use, such as {x: 3}")
    expected: Any = Field(description="the right value, as JSON has it; it never enters the sandbox")

    @property
    def case(self) -> Case:
        return Case(self.call, self.given)


class JudgeCriterion(Settings):
    """What a judge model is asked of an answer, with one that meets it and one that does not: a judge that cannot tell
    these two apart decides nothing."""

    criterion: str = Field(min_length=1, description="what a right answer does, in one sentence")
    good: str = Field(min_length=1, description="an answer that meets it")
    bad: str = Field(min_length=1, description="an answer that does not, of about the same length")


class Check(Settings):
    """One check of an answer: its first JSON value for `schema`, else its first fenced block, else all of it."""

    check: CheckName = Field(description="how `value` is held against the answer")
    value: Any = Field(
        description="a JSON Schema, a regular expression, the answer; `python`: one or several of {call, given, "
        "expected}; `tests`: lines `assert f(3) == 8`; a command that reads the answer from standard input and ends "
        "with status 0 if it is right, in bubblewrap, without network, for 10 seconds at most. Of a judge: "
        "`criterion`, and a `good` and a `bad` answer that it must tell apart (docs/recipes.md)"
    )

    @model_validator(mode="after")
    def _value_fits(self) -> "Check":
        if (why := _misfit(self.check, self.value)) is not None:
            raise ValueError(why)
        return self

    @property
    def runs(self) -> bool:
        """Whether it needs the sandbox."""
        return self.check in ("command", "python", "tests")

    def python_cases(self) -> tuple[PythonCase, ...]:
        """The cases of a check that executes the answer; none of any other."""
        if self.check == "tests":
            return tuple(map(_asserted, _lines(self.value)))
        if self.check == "python":
            several = self.value if isinstance(self.value, list | tuple) else [self.value]
            return tuple(map(PythonCase.model_validate, several))
        return ()


def checks_of(text: str) -> tuple[Check, ...]:
    """The checks of a row of tasks, which it holds as JSON. Raises ValueError for anything else."""
    return tuple(map(Check.model_validate, json.loads(text)))


def why_unchecked(checks: set[CheckName]) -> str | None:
    """Why this machine cannot hold answers against checks of these kinds, or None."""
    if checks & {"python", "tests"}:
        return why_no_python()
    return why_not() if "command" in checks else None


def _misfit(check: CheckName, value: Any) -> str | None:
    """Why a value is none for a kind of check."""
    wanted: dict[str, tuple[Any, str]] = {
        "schema": ((dict,), "a JSON Schema, a mapping"),
        "regex": ((str,), "a text"),
        "exact": ((str,), "a text"),
        "command": ((tuple, list), "a list: the program and its arguments"),
        "judge": ((dict,), "a mapping of criterion, good and bad"),
        "python": ((dict, tuple, list), "a mapping of call, given and expected, or a list of them"),
        "tests": ((str, tuple, list), "lines such as assert f(3) == 8"),
    }
    types, what = wanted[check]
    if not isinstance(value, types):
        return f"check {check} needs {what}, not {type(value).__name__}"
    try:
        if check == "regex":
            re.compile(str(value))
        elif check == "judge":
            JudgeCriterion.model_validate(value)
        elif check == "command" and not (value and all(isinstance(each, str) for each in value)):
            return "check command needs a list of texts: the program and its arguments"
        elif check in ("python", "tests"):
            cases = Check.model_construct(check=check, value=value).python_cases()
            if not 1 <= len(cases) <= MAX_CASES:
                return f"check {check} has {len(cases)} cases: 1 to {MAX_CASES}"
    except re.error as error:
        return f"{value!r} is not a regular expression: {error}"
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return f"check {check} needs {what}: {wrong}"
    except ValueError as error:
        return str(error)
    return None


def _lines(value: Any) -> list[str]:
    lines = value.splitlines() if isinstance(value, str) else [str(each) for each in value]
    return [line.strip() for line in lines if line.strip()]


def _asserted(line: str) -> PythonCase:
    """`assert CALL == LITERAL` as a case: run in the sandbox as it stands, an answer could end it before it fails.
    Raises ValueError for any other line."""
    try:
        (node,) = ast.parse(line).body
        assert isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare)
        assert len(node.test.ops) == 1 and isinstance(node.test.ops[0], ast.Eq)
        return PythonCase(call=ast.unparse(node.test.left), expected=ast.literal_eval(node.test.comparators[0]))
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError):
        raise ValueError(f"check tests: {line[:80]!r} is not `assert CALL == LITERAL`") from None

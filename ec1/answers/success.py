"""Whether a written answer is right, by what its kind allows.

| the wanted answer | right | well formed |
|---|---|---|
| a diff | turns the same lines of the same files into the same ones | applies, and touches the lines that were meant |
| JSON | the same value | of the recipe's `answer_schema`, else of the wanted value's shape |
| Python whose prompt has `assert f(…) == …` | passes all of them in a sandbox | parses |
| anything else | the same words, or nearly (`min_similarity`) | as right |

An answer that is empty or cut off, and one that only repeats its prompt, is neither, whatever another model wrote; nor
is one that comes after more than an introduction of 80 characters.

Belongs here: the kinds, and what an answer of each is held against. Does not: asking for answers (`evaluation.py`),
task cases with checks of their own (`ec1.rewards`), and what follows (`gate.py`).
"""

import ast
import difflib
import functools
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ec1.answers.answering import ModelAnswer
from ec1.answers.behaviour import Form, form_of
from ec1.files import canonical_json
from ec1.recipes.evaluation import EvaluationOptions
from ec1.rewards.bounded import is_of_schema
from ec1.rewards.checks import Check, why_unchecked
from ec1.rewards.rewards import body_of, score_all

AnswerKind = Literal["diff", "json", "python", "text"]

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\w\s]")
"""A word, a mark, or a character of a script that writes no spaces."""
_INTRODUCTION = 80
_OPENS = {"diff": ("--- ", "diff --git "), "json": ("{", "[")}


@dataclass(frozen=True)
class JudgedAnswer:
    """What is to be said of one answer. `similarity` is of its words to the wanted ones, 0 to 1."""

    right: bool
    formed: bool
    similarity: float


@functools.lru_cache(maxsize=4096)
def kind_of(wanted: str, prompt: str) -> AnswerKind:
    """By what an answer to this prompt is judged."""
    form: Form = form_of(body_of(wanted))
    # A diff behind a commit's message is not a whole one: it is compared as words.
    if form == "json" or (form == "diff" and _hunks(body_of(wanted)) is not None):
        return form
    executable = _parsed(body_of(wanted)) is not None and _tests(prompt) is not None
    return "python" if executable and why_unchecked({"tests"}) is None else "text"


def judged(answer: ModelAnswer, wanted: str, prompt: str, options: EvaluationOptions) -> JudgedAnswer:
    """Hold one answer against the wanted one. `prompt`: the user's last message."""
    return judged_all([answer], [wanted], [prompt], options)[0]


def judged_all(
    answers: Sequence[ModelAnswer], wanted: Sequence[str], prompts: Sequence[str], options: EvaluationOptions
) -> list[JudgedAnswer]:
    """As `judged`, one after the other; what is executed shares a few boxes."""
    kinds = [kind_of(target, prompt) for target, prompt in zip(wanted, prompts, strict=True)]
    run = [place for place, kind in enumerate(kinds) if kind == "python"]
    checks = [[check] for place in run if (check := _tests(prompts[place])) is not None]
    scores = score_all([answers[place].text for place in run], checks)
    passed = {place for place, (score,) in zip(run, scores, strict=True) if score.right}
    return [
        _judged(answer, target, prompt, kinds[place], place in passed, options)
        for place, (answer, target, prompt) in enumerate(zip(answers, wanted, prompts, strict=True))
    ]


def hopeless(text: str, wanted: str, prompt: str, options: EvaluationOptions) -> bool:
    """Whether an answer that begins like this can neither be right nor well formed, however it goes on."""
    said = text.rpartition("</think>")[2].lstrip()
    if said.startswith("<think>"):
        return False
    kind = kind_of(wanted, prompt)
    before, fence, inside = said.partition("```")
    introduced = len(before) <= _INTRODUCTION
    if kind == "text":
        return not introduced and _too_much_else(before, wanted, options.min_similarity)
    opens = _OPENS.get(kind)
    if opens is None or said.startswith(opens):
        return False
    if fence and introduced:
        body = inside.partition("\n")[2].lstrip()
        return len(body) >= max(map(len, opens)) and not body.startswith(opens)
    return not introduced


def _too_much_else(text: str, wanted: str, least: float) -> bool:
    """Whether so many words are not the wanted ones that, were all the others to follow, the similarity stayed below
    the least. The last word may go on."""
    words, target = words_of(text)[:-1], words_of(body_of(wanted))
    missing = len(target) - sum((Counter(words) & Counter(target)).values())
    return 2 * len(target) < least * (len(words) + missing + len(target))


def _judged(
    answer: ModelAnswer, wanted: str, prompt: str, kind: AnswerKind, passed: bool, options: EvaluationOptions
) -> JudgedAnswer:
    text, target = body_of(answer.text), body_of(wanted)
    likeness = similarity(text, target)
    if answer.cut or not text or hopeless(answer.text, wanted, prompt, options):
        return JudgedAnswer(False, False, likeness)
    if kind == "diff":
        right, formed = _diff(text, target, prompt)
    elif kind == "json":
        right, formed = _json(text, json.loads(target), options.answer_schema)
    elif kind == "python":
        formed = _parsed(text) is not None
        right = formed and passed
    else:
        same = words_of(text) == words_of(target)
        echo = similarity(text, prompt) >= likeness
        right = formed = same or (likeness >= options.min_similarity and not echo)
    return JudgedAnswer(right, formed, likeness)


def words_of(text: str) -> list[str]:
    """Words and marks in lower case; a character each of scripts that write no spaces."""
    return _WORD.findall(text.casefold())


def similarity(one: str, other: str) -> float:
    """How much of two texts is the same words in the same order, 0 to 1 (Ratcliff and Obershelp)."""
    return difflib.SequenceMatcher(None, words_of(one), words_of(other), autojunk=False).ratio()


# --- diffs


@dataclass(frozen=True)
class _Hunk:
    """What one hunk expects to find, and what it changes: (mark, line) for each line taken or added."""

    file: str
    old: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]


def _diff(answer: str, wanted: str, prompt: str) -> tuple[bool, bool]:
    mine, theirs = _hunks(answer), _hunks(wanted)
    if mine is None or theirs is None:
        return False, False
    # The file as far as it is known: what the prompt shows of it, and what the wanted diff expects there.
    known = [prompt.splitlines(), *(list(each.old) for each in theirs)]
    applies = all(any(_stands_in(each.old, lines) for lines in known) for each in mine)
    touched, meant = ({(each.file, line) for each in hunks for mark, line in each.changes if mark == "-"}
                      for hunks in (mine, theirs))  # fmt: skip
    files = {each.file for each in mine} == {each.file for each in theirs}
    formed = applies and files and (bool(touched & meant) or not meant)
    same = [(each.file, *each.changes) for each in mine] == [(each.file, *each.changes) for each in theirs]
    return formed and same, formed


def _hunks(diff: str) -> list[_Hunk] | None:
    """The hunks of a diff; None if it is not a whole one."""
    from unidiff import PatchSet, UnidiffParseError

    if not diff.startswith(("--- ", "diff --git ")):
        return None
    try:
        patch = PatchSet(f"{diff}\n")
    except UnidiffParseError:
        return None
    found = [
        _Hunk(
            file.path,
            tuple(line.value.rstrip() for line in hunk if not line.is_added),
            tuple((line.line_type, line.value.rstrip()) for line in hunk if not line.is_context),
        )
        for file in patch
        for hunk in file
    ]
    return found if any(each.changes for each in found) else None


def _stands_in(old: tuple[str, ...], lines: list[str]) -> bool:
    """Whether these lines stand there one after the other; blanks at their ends do not count."""
    there = [line.rstrip() for line in lines]
    return any(there[at : at + len(old)] == list(old) for at in range(len(there) - len(old) + 1))


# --- JSON


def _json(answer: str, wanted: Any, schema: dict[str, Any] | None) -> tuple[bool, bool]:
    try:
        value = json.loads(answer)
        # As text: in Python 1, 1.0 and True are equal.
        right = canonical_json(value) == canonical_json(wanted)
    except (ValueError, RecursionError):
        return False, False
    formed = _same_shape(value, wanted) if schema is None else is_of_schema(value, schema)
    return right and formed, formed


def _same_shape(value: Any, wanted: Any) -> bool:
    """Whether a value has the keys and types of another one; of a list, those of one of its items."""
    if isinstance(wanted, dict):
        fits = isinstance(value, dict) and value.keys() == wanted.keys()
        return fits and all(_same_shape(value[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(value, list) and all(any(_same_shape(each, one) for one in wanted) for each in value)
    number = (int, float)
    if isinstance(wanted, number) and not isinstance(wanted, bool):
        return isinstance(value, number) and not isinstance(value, bool)
    return type(value) is type(wanted)


# --- Python with its tests in the prompt


def _parsed(code: str) -> ast.Module | None:
    """A program that defines something, or None."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in tree.body) else None


@functools.lru_cache(maxsize=512)
def _tests(prompt: str) -> Check | None:
    """The assertions of a prompt; None if it has none, or one that is not `assert CALL == LITERAL`."""
    lines = [line.strip() for line in prompt.splitlines() if line.strip().startswith("assert ")]
    try:
        return Check(check="tests", value=lines)
    except ValueError:
        return None

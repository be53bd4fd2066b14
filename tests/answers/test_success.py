"""Right, well formed or wrong: one answer at a time, by its kind; and what training knows of the held-out side."""

import json
from pathlib import Path
from typing import Any

import pytest

from ec1.adapters.likelihood import HeldOutExample
from ec1.adapters.overlap import overlap_with
from ec1.adapters.written import room_for, to_write
from ec1.answers.answering import ModelAnswer
from ec1.answers.success import hopeless, judged, kind_of, words_of
from ec1.corpus.row_kinds import ANSWERS, PAIRS
from ec1.recipes.evaluation import EvaluationOptions
from ec1.sandbox.box import why_not

OPTIONS = EvaluationOptions()
FILE = "x.toml:\n# first\nretry = 1\nwait = 3\n"
ASKED = f"Raise wait to 5.\n\nBefore the change:\n\n{FILE}"
DIFF = "--- a/x.toml\n+++ b/x.toml\n@@ -2,2 +2,2 @@\n retry = 1\n-wait = 3\n+wait = 5  # was 3\n"
MORE = DIFF.replace("@@ -2,2 +2,2 @@\n", "@@ -1,3 +1,3 @@\n # first\n")


@pytest.mark.parametrize(
    ("answer", "right", "formed"),
    [
        (DIFF, True, True),
        (f"```diff\n{DIFF}```", True, True),
        (f"<think>wait?</think>\n{DIFF.strip()}", True, True),
        (MORE, True, True),
        (DIFF.replace("wait = 5", "wait = 7"), False, True),
        (DIFF.replace("x.toml", "y.toml"), False, False),
        (DIFF.replace("-wait = 3", "-wait = 4"), False, False),
        (DIFF.replace(" retry = 1", " pause = 1"), False, False),
        ("--- a/x.toml\n+++ b/x.toml\n@@ -2 +2 @@\n-retry = 1\n+retry = 2\n", False, False),
        (DIFF.replace("-2,2", "-2,3"), False, False),
        (FILE, False, False),
        (ASKED, False, False),
        ("--- a/x.toml", False, False),
        ("", False, False),
        ("--- a/x.toml\n+++ b/x.toml\n@@ -2,0 +2,0 @@\n", False, False),
    ],
)
def test_a_diff_applies_and_does_what_was_meant(answer: str, right: bool, formed: bool) -> None:
    found = judged(ModelAnswer(answer, cut=False), DIFF, ASKED, OPTIONS)
    assert (found.right, found.formed) == (right, formed)
    assert not judged(ModelAnswer(answer, cut=True), DIFF, ASKED, OPTIONS).formed, "what was cut off is wrong"


def test_what_can_be_right_no_more_is_known_from_its_beginning() -> None:
    talk = "The wait was raised, since the answer came too late, and what stood there is noted behind it. "
    for text in (talk, FILE * 3, f"{talk}\n```diff\n{DIFF}```"):
        assert (
            hopeless(text, DIFF, ASKED, OPTIONS)
            and not judged(ModelAnswer(text, cut=False), DIFF, ASKED, OPTIONS).formed
        )
    for text in (
        talk[:80],
        DIFF,
        f"Here it is:\n```diff\n{DIFF}```",
        f"<think>{talk}",
        f"<think>{talk}</think>\n{DIFF}",
    ):
        assert not hopeless(text, DIFF, ASKED, OPTIONS), text
    for text in ("```python\n# -*- coding", "Here:\n```\nx = 1  # as asked"):
        assert hopeless(text, DIFF, ASKED, OPTIONS), "what is fenced is not a diff"
    assert not hopeless("```diff\n--- ", DIFF, ASKED, OPTIONS) and not hopeless("```di", DIFF, ASKED, OPTIONS)
    as_json = ('{"a": 1}', "As JSON.", OPTIONS)
    assert hopeless(talk, *as_json) and not hopeless('{"b": ' + "1" * 99, *as_json)
    told = f"fix(x): wait longer\n\n{DIFF}"
    assert kind_of(told, ASKED) == "text" and judged(ModelAnswer(told, cut=False), told, ASKED, OPTIONS).right


def test_words_are_given_up_where_no_end_could_make_them_right() -> None:
    """Of every beginning of an answer: one that is given up is that of an answer which is wrong as a whole."""
    wanted = "The valve of the second boiler was changed on Tuesday because its seat had worn, and the pump runs again."
    others = "Nobody knows where the key to the archive is kept, and the list that says so has been lost since May. "
    asked = "What became of the valve?"
    words = wanted.split()
    answers = [
        wanted,
        others * 3,
        f"Well, {wanted}",
        " ".join([*words[:5], *others.split(), *words[5:]]),
        " ".join([*words[:-3], "and", "that", "is", "all"]),
        f"{others}{wanted}",
    ]
    given_up = 0
    for answer in answers:
        right = judged(ModelAnswer(answer, cut=False), wanted, asked, OPTIONS).right
        for end in range(len(answer)):
            if hopeless(answer[:end], wanted, asked, OPTIONS):
                assert not right, answer[:end]
                given_up += 1
                break
    assert given_up == 3
    assert not hopeless(others[:80], wanted, asked, OPTIONS), "an introduction"


def test_a_new_file_is_a_diff_too() -> None:
    new = "diff --git a/n.py b/n.py\nnew file mode 100644\n--- /dev/null\n+++ b/n.py\n@@ -0,0 +1 @@\n+n = 1\n"
    assert judged(ModelAnswer(new, cut=False), new, "n.py is new.", OPTIONS).right
    assert not judged(ModelAnswer(new.replace("n = 1", "n = 2"), cut=False), new, "n.py is new.", OPTIONS).right


@pytest.mark.parametrize(
    ("answer", "schema", "right", "formed"),
    [
        ('{"b": [1, 2], "a": "x"}', None, True, True),
        ('```json\n{"a": "x", "b": [1, 2]}\n```', None, True, True),
        ('{"a": "y", "b": [3]}', None, False, True),
        ('{"a": "x", "b": [true, 2]}', None, False, False),
        ('{"a": "x"}', None, False, False),
        ('{"a": 1, "b": [1, 2]}', None, False, False),
        ('{"a": "y", "c": 1}', {"type": "object", "required": ["c"]}, False, True),
        ('{"a": "x", "b": [1, 2]}', {"type": "object", "required": ["c"]}, False, False),
        ('{"a": "x", "b": [1, 2]', None, False, False),
        ("[" * 100_000, None, False, False),
    ],
)
def test_json_is_compared_by_its_value(answer: str, schema: Any, right: bool, formed: bool) -> None:
    options = EvaluationOptions(answer_schema=schema)
    found = judged(ModelAnswer(answer, cut=False), '{"a": "x", "b": [1, 2]}', "As JSON.", options)
    assert (found.right, found.formed) == (right, formed)


@pytest.mark.parametrize(
    ("answer", "wanted", "right"),
    [
        ("the bus leaves at nine", "The bus leaves at nine.", True),
        ("The bus leaves every day at nine.", "The bus leaves each day at nine.", True),
        ("The", "The bus leaves at nine.", False),
        ("When does the bus to the mill leave?", "The bus to the mill does leave at nine.", False),
        ("The bus leaves at ten past four.", "The bus leaves at nine.", False),
        ("九点开车", "九点开车。", True),
        ("十点开车", "九点开车。", False),
        ("Yes", "yes", True),
        ("No", "yes", False),
    ],
)
def test_words_are_right_if_they_are_nearly_the_wanted_ones(answer: str, wanted: str, right: bool) -> None:
    asked = "When does the bus to the mill leave?"
    assert judged(ModelAnswer(answer, cut=False), wanted, asked, OPTIONS).right is right


ADD = "def add(a, b):\n    return a + b\n"
TESTED = "Write add.\n\nassert add(1, 2) == 3\nassert add('a', 'b') == 'ab'\n"


@pytest.mark.skipif(why_not() is not None, reason="no sandbox")
@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (f"```python\n{ADD}```", True),
        ("def add(x, y):\n    return sum([x, y]) if isinstance(x, int) else x + y\n", True),
        ("def add(a, b):\n    return a\n", False),
        ("def add(a, b):\n    raise SystemExit(0)\n", False),
        ("import os\ndef add(a, b):\n    os._exit(0)\n", False),
        ("class Same:\n    def __eq__(self, other): return True\ndef add(a, b):\n    return Same()\n", False),
        ("def add(a, b:\n", False),
    ],
)
def test_code_is_right_if_it_passes_the_tests_of_its_prompt(answer: str, right: bool) -> None:
    assert kind_of(ADD, TESTED) == "python"
    assert judged(ModelAnswer(answer, cut=False), ADD, TESTED, OPTIONS).right is right


def example(name: str, prompt: str, expected: str, tokens: int = 5) -> HeldOutExample:
    return HeldOutExample(name, name, [1, 2], ([3] * tokens,), prompt, expected)


def test_fifty_prompts_are_answered_or_all_that_there_are() -> None:
    examples = [example(str(n), "p", "e", tokens=20 if n % 10 == 0 else 5) for n in range(100)]
    options = EvaluationOptions(sample_tokens=16)
    chosen, too_long = to_write(examples, options)
    assert (len(chosen), too_long) == (50, 10) and chosen == sorted(chosen)
    assert to_write(examples[::-1], options)[0] == sorted(99 - place for place in chosen), "the order is no matter"
    assert len(to_write(examples[:8], options)[0]) == 7
    assert room_for([examples[1]], OPTIONS) == 23 and room_for(examples, options) == 16


QUESTION = "Who of the mill team keeps the keys to the north store, and since when?"
ANSWER = "Ilse of the mill team has kept them since the frost in March."


@pytest.mark.parametrize(
    ("prompt", "answer", "found"),
    [
        ("Something else entirely.", ANSWER.upper().replace(".", "!"), "equal_answers"),
        (QUESTION.lower().replace(",", " -"), "Nobody knows.", "equal_prompts"),
        (f"Please tell me now: {QUESTION} Thank you.", f"Well. {ANSWER[:-7]} April.", "near"),
        ("Who keeps the cart?", "Yes.", None),
        ("Who of the barn team keeps the cart, and since when?", "Per of the barn team, since the thaw.", None),
    ],
)
@pytest.mark.parametrize("kind", [ANSWERS, PAIRS], ids=lambda kind: kind.name)
def test_what_training_knows_is_found_behind_another_wrapper(
    prompt: str, answer: str, found: str | None, kind: Any, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sides = {side: [{"role": "assistant", "content": answer}] for side in kind.sides}
    rows = [{"prompt": [{"role": "user", "content": prompt}], **sides}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    examples = [example("asked", QUESTION, ANSWER), example("short", "Is it so?", "Yes.")]
    overlap, known = overlap_with(tmp_path, examples, kind)
    assert (overlap.examples, overlap.rows, overlap.removed) == (2, 1, int(found is not None))
    assert known == ({0} if found else set())
    assert found is None or getattr(overlap, found) == 1
    assert json.loads(overlap.model_dump_json()) and "held-out examples stand in training" in str(overlap)


def test_a_script_without_spaces_is_read_by_characters() -> None:
    assert words_of("会议室 is OK.") == ["会", "议", "室", "is", "ok", "."]

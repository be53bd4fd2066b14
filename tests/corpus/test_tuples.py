"""The formats of docs/contracts.md and the rules of what can be trained on."""

import json

import pytest
from corpus_builder import apprenticeship, edit, feedback

from ec1.corpus.tuples import TupleKind, example_of, group_of, load_record, parse_record, trainable
from ec1.errors import RejectedError


def test_the_target_of_an_edit_is_its_diff_and_never_the_subject() -> None:
    record = edit(1)
    example = example_of(parse_record(record), "sft")
    assert example["completion"] == [{"role": "assistant", "content": record["diff"]}]
    assert record["commit_msg"] in example["prompt"][0]["content"]
    assert "def handler" not in example["prompt"][0]["content"]


@pytest.mark.parametrize("changes", [{"diff": ""}, {"diff": None}, {"diff_truncated": True}])
def test_an_edit_without_a_whole_diff_teaches_its_description(changes: dict[str, object]) -> None:
    subject_only = parse_record(edit(1, **changes))
    assert trainable(subject_only, "sft") is not None
    described = parse_record(edit(1, commit_msg="fix: limits\n\nCallers above the limit now wait.", **changes))
    example = example_of(described, "sft")
    assert example["completion"][0]["content"] == "Callers above the limit now wait."
    assert "Callers" not in example["prompt"][0]["content"]


def test_the_verdict_is_chosen_and_the_attempt_rejected() -> None:
    record = apprenticeship(1)
    example = example_of(parse_record(record), "dpo")
    assert example["prompt"][0]["content"] == record["brief"]["body"]
    assert example["chosen"][0]["content"] == record["actual_diff"]
    assert example["rejected"][0]["content"] == record["attempt"]["diff"]
    final = record["actual_diff"].replace("retry=3", "retry=4")
    assert example_of(parse_record(record | {"final_diff": final}), "dpo")["chosen"][0]["content"] == final


LONG = "a useful answer that says what was asked for, in words that can be learnt from, number "


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"chosen": "x" * 79}, "chosen is shorter"),
        ({"rejected": "x" * 79}, "rejected is shorter"),
        ({"chosen": "x" * 50_001, "rejected": "y" * 50_000}, "longer than 50000"),
        ({"chosen": "x" * 801, "rejected": "y" * 100}, "8 times"),
        ({"chosen": LONG, "rejected": LONG}, "same"),
        ({"rejected": "<no diff provided> " + LONG}, "echo"),
        ({"chosen": "```diff\n<Insert diff here>\n```" + LONG}, "echo"),
        ({"rejected": "auto-reject: " + LONG}, "echo"),
        ({"rejected": LONG + "\n<no changes needed>"}, "echo"),
        ({"tier_used": "external"}, "licence"),
        ({"prompt": "  "}, "empty prompt"),
    ],
)
def test_a_pair_that_must_not_be_trained_on_says_why(changes: dict[str, object], word: str) -> None:
    assert trainable(parse_record(feedback(1)), "dpo") is None
    assert word in (trainable(parse_record(feedback(1, **changes)), "dpo") or "")


def test_a_pair_at_the_edges_is_trained_on() -> None:
    for chosen, rejected in ((80, 80), (640, 80), (50_000, 6_250)):
        pair = parse_record(feedback(1, chosen="x" * chosen, rejected="y" * rejected))
        assert trainable(pair, "dpo") is None


def test_code_that_mentions_a_template_is_no_echo() -> None:
    code = '+    if text.startswith("auto-reject:"):\n+        return None\n' + LONG
    assert trainable(parse_record(feedback(1, chosen=code)), "dpo") is None


def test_each_objective_has_its_own_rule() -> None:
    assert trainable(parse_record(edit(1)), "sft") is None
    assert trainable(parse_record(edit(1)), "dpo") is not None
    external = apprenticeship(1)
    external["attempt"]["tier"] = "external"
    assert trainable(parse_record(external), "sft") == trainable(parse_record(external), "dpo") is not None


@pytest.mark.parametrize(
    ("record", "objective", "keys"),
    [
        ({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}, "sft", "completion"),
        ({"prompt": "q", "completion": "a"}, "sft", "completion"),
        ({"prompt": [{"role": "user", "content": "q"}], "chosen": LONG + "1", "rejected": LONG + "2"}, "dpo", "chosen"),
    ],
)
def test_records_of_the_hugging_face_conventions_are_accepted(record: object, objective: str, keys: str) -> None:
    item = parse_record(load_record(json.dumps(record)))
    assert item.kind is TupleKind.GENERIC
    example = example_of(item, objective)  # type: ignore[arg-type]
    assert example["prompt"] == [{"role": "user", "content": "q"}]
    assert example[keys][0]["role"] == "assistant"


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"1",
        b"\xff\xfe",
        b'{"tuple_type": "edit", "diff": 3}',
        b'{"tuple_type": "apprenticeship", "brief": []}',
        b'{"tuple_type": "unheard-of"}',
        b'{"text": ["no text"]}',
        b'{"messages": [{"role": "user", "content": "q"}]}',
        b'{"messages": "nothing"}',
        b'{"prompt": "q", "completion": NaN}',
        b'{"prompt": "q", "completion": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_tuple_is_rejected_in_words(line: bytes) -> None:
    with pytest.raises(RejectedError, match=r"^[a-zA-Z/]"):
        parse_record(load_record(line))


def test_the_reason_of_a_reject_repeats_nothing_of_the_line() -> None:
    for line in (
        b'{"password": "hunter2hunter2"',
        b'{"tuple_type": "hunter2hunter2"}',
        b'{"messages": ["hunter2hunter2"]}',
    ):
        with pytest.raises(RejectedError) as error:
            parse_record(load_record(line))
        assert "hunter2" not in str(error.value)


def test_the_group_is_the_coarsest_source() -> None:
    assert group_of(parse_record(apprenticeship(1, session_id="S1"))) == "session_id:S1"
    assert group_of(parse_record(apprenticeship(1))) == group_of(parse_record(feedback(1))) == "brief_id:B1"
    assert group_of(parse_record(edit(1))).startswith("source_commit:")
    same_prompt = [{"prompt": "q", "completion": text} for text in ("a", "b")]
    assert len({group_of(parse_record(record)) for record in same_prompt}) == 1
    assert group_of(parse_record({"prompt": "r", "completion": "a"})) != group_of(parse_record(same_prompt[0]))


def test_a_task_has_checks_and_no_answer() -> None:
    checks = [{"check": "python", "value": {"call": "f(2)", "expected": 4}}]
    record = {"tuple_type": "task", "prompt": "Double x.", "checks": checks, "group": "double"}
    item = parse_record(record)
    assert (item.kind, item.sources) == (TupleKind.TASK, ("group:double",))
    example = example_of(item, "task")
    assert [message["role"] for message in example["checks"]] == ["checks"]
    assert json.loads(example["checks"][0]["content"]) == checks
    assert trainable(item, "sft") == "empty target" and trainable(item, "dpo") is not None
    for wrong in (None, [], "f(2) == 4", [{"check": "python"}], [{"check": "guess", "value": "x"}]):
        with pytest.raises(RejectedError, match="check"):
            parse_record({**record, "checks": wrong})
    with pytest.raises(RejectedError, match="rewards"):
        parse_record({**record, "rewards": 1})
    answer = parse_record({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})
    assert trainable(answer, "task") == "no checks to hold answers against"

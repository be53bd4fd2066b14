"""Evaluation cases: which rows they are, that they are held out, and that an evaluation asks them first."""

import json
from pathlib import Path

import pytest

from ec1.adapters.likelihood import read_examples
from ec1.adapters.written import to_write
from ec1.corpus.cases import GROUP, case_of, chosen
from ec1.corpus.split import HeldOutGroups, assign
from ec1.errors import RejectedError
from ec1.recipes.evaluation import EvaluationOptions


def test_cases_come_first_and_leave_half_to_chance() -> None:
    items = [(f"g{n}", n) for n in range(10)] + [(f"{GROUP}{n}", n) for n in range(10, 18)] + [(None, 18)]
    assert chosen(items, 6) == [10, 11, 12, 0, 1, 2]
    assert chosen(items, 40) == [*range(10, 18), *range(10), 18]
    assert chosen(items, 1) == [0]
    assert chosen(items[:10], 3) == [0, 1, 2], "without cases nothing changes"


def test_cases_are_held_out_beside_what_chance_holds_out(tmp_path: Path) -> None:
    record = HeldOutGroups(tmp_path / "splits" / "b.json")
    case = GROUP + "0" * 24
    record.add_case(case)
    training = [group for group in (f"g{number}" for number in range(200)) if assign(group, 0.05, 0) == "train"][:5]
    held = set(record.complete([*training, case], 0.05, 0))
    assert case in held and len(held) == 2, "a case alone is no held-out side"
    again = HeldOutGroups(record.path)
    assert set(again.complete([*training, case], 0.05, 0)) == held and again.forced() == held
    assert set(record.complete([case], 0.05, 0)) == {case} and again.cases() == {case}
    assert case not in json.loads(record.path.read_text())["groups"]


def test_an_evaluation_asks_cases_first(tmp_path: Path) -> None:
    path = tmp_path / "heldout.jsonl"

    def row(number: int) -> dict[str, object]:
        said = {
            "prompt": [{"role": "user", "content": f"{number}?"}],
            "completion": [{"role": "assistant", "content": "x"}],
        }
        group = f"{GROUP}{number}" if number >= 38 else f"g{number}"
        return {**said, "group": group, "row": f"{number:064}", "input_ids": [1, 2, 3], "completion_mask": [0, 1, 1]}

    path.write_text("".join(f"{json.dumps(row(number))}\n" for number in range(40)))
    examples, _ = read_examples(path, "sft", None, system_prompt=None, max_length=9, limit=8)
    assert len(examples) == 8 and {each.group for each in examples} > {f"{GROUP}38", f"{GROUP}39"}
    asked, _ = to_write(examples, EvaluationOptions(sample_generations=4))
    assert {examples[place].group for place in asked} > {f"{GROUP}38", f"{GROUP}39"}


def test_a_question_is_one_case_whatever_was_said_of_it() -> None:
    row = {"prompt": "Where is she?", "completion": "At berth 4.", "metadata": {"why": "known"}}
    name, record = case_of(row, "anna")
    assert record["metadata"] == {"why": "known", "origin": "evaluation-case", "written_by": "anna"}
    assert case_of({**row, "completion": "At berth 5."}, "ben")[0] == name != case_of({**row, "prompt": "?"}, "anna")[0]
    assert f"brief_id:{name}".startswith(GROUP)
    with pytest.raises(RejectedError):
        case_of({"prompt": 7}, "anna")

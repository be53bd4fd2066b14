"""What models said at the last evaluation: asked again only if something that the answer depends on has changed."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ec1.adapters.evaluation import EvaluationSpec, evaluate
from ec1.adapters.likelihood import read_answers
from ec1.adapters.remembered import Remembered, remembered
from ec1.recipes.evaluation import EvaluationOptions

WEIGHTS = {"adapter_model.safetensors": "aa"}


class Model:
    """Says a question backwards, and keeps which it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def of(self, questions: Sequence[str]) -> Callable[[list[int]], list[Any]]:
        def ask(places: list[int]) -> list[Any]:
            self.asked += [questions[place] for place in places]
            return [[questions[place][::-1], 0.1] for place in places]

        return ask


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "base"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_only_what_is_new_is_asked_and_what_is_not_asked_any_more_is_forgotten(tmp_path: Path) -> None:
    model, path = Model(), tmp_path / "model.jsonl"
    for questions in (["ab", "cd"], ["cd", "ef", "ab"], ["ef"], ["ab", "ef"]):
        memory = Remembered(path)
        assert memory.said(questions, model.of(questions)) == [[each[::-1], 0.1] for each in questions]
        assert memory.asked == len(questions)
        memory.keep()
    assert model.asked == ["ab", "cd", "ef", "ab"]


def test_a_question_that_comes_twice_has_one_answer(tmp_path: Path) -> None:
    memory, model = Remembered(tmp_path / "model.jsonl"), Model()
    assert memory.said(["ab", "ab"], model.of(["ab", "ab"])) == [["ba", 0.1]] * 2
    assert memory.said(["ab"], model.of(["ab"])) == [["ba", 0.1]]
    assert memory.found == 0, "none of it from an earlier evaluation"


@pytest.mark.parametrize("damage", [b"\xff", b"", b'0000000000000000 ["x", 1]\nno line'])
def test_what_a_disk_changed_is_asked_again(tmp_path: Path, damage: bytes) -> None:
    path, model = tmp_path / "model.jsonl", Model()
    memory = Remembered(path)
    memory.said(["ab"], model.of(["ab"]))
    memory.keep()
    path.write_bytes(path.read_bytes().replace(b'"ba"', b'"bb"') + damage)
    again = Remembered(path)
    assert again.said(["ab"], model.of(["ab"])) == [["ba", 0.1]] and again.found == 0


def test_what_is_not_finite_is_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "model.jsonl"
    memory = Remembered(path)
    assert math.isnan(memory.said(["ab"], lambda places: [math.nan])[0])
    memory.keep()
    assert path.read_bytes() == b""


def test_a_model_is_its_files_and_how_it_computes(tmp_path: Path, base: Path) -> None:
    def knows(adapter: dict[str, str] | None = None, computes: str = "bfloat16 on cpu") -> bool:
        memory = remembered(tmp_path / "role", base, adapter, computes)
        memory.said(["ab"], Model().of(["ab"]))
        memory.keep()
        return bool(memory.found)

    assert [knows(), knows()] == [False, True]
    assert [knows(WEIGHTS), knows(WEIGHTS), knows({"adapter_model.safetensors": "bb"})] == [False, True, False]
    assert not knows(computes="float32 on cpu")
    (base / "model.safetensors").write_bytes(b"others")
    assert not knows()


def test_a_role_keeps_few_models(tmp_path: Path, base: Path) -> None:
    for number in range(12):
        memory = remembered(tmp_path / "role", base, {"adapter_model.safetensors": str(number)}, "cpu")
        memory.said(["ab"], Model().of(["ab"]))
        memory.keep()
    assert len(list((tmp_path / "role").iterdir())) == 8


@pytest.mark.slow
def test_the_next_evaluation_asks_the_base_only_what_is_new(
    tiny_model: Path, heldout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counting(model: Any, examples: Any, **rest: Any) -> Any:
        read.append(len(examples))
        return read_answers(model, examples, **rest)

    monkeypatch.setattr("ec1.adapters.evaluation.read_answers", counting)
    rows = heldout.read_text(encoding="utf-8").splitlines()
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(rows[:8]) + "\n")
    lines: list[str] = []
    spec = EvaluationSpec(
        model=tiny_model,
        device="cpu",
        candidates={"base": None},
        heldout=few,
        objective="sft",
        options=EvaluationOptions(sample_tokens=24, sample_generations=10),
        remembered=tmp_path / "role",
        output=tmp_path / "out",
    )
    first = evaluate(spec, lines.append)
    # Examples, the same behind other prompts and the general set; and the base in another batching.
    assert read == [80, 8] and "before" not in lines[-1]
    read.clear()
    again = evaluate(spec, lines.append)
    assert read == [8], "the other batching measures noise, so it is always computed"
    assert "of 88 questions 88 were answered before" in lines[-1]
    assert again.examples == first.examples and again.samples == first.samples and again.general == first.general
    read.clear()
    more = evaluate(spec.model_copy(update={"heldout": heldout}), lines.append)
    assert read[0] < 12, "two rows are new, and a few stand behind another prompt"
    known = {each.example: each for each in first.examples}
    assert all(each.scores == known[each.example].scores for each in more.examples if each.example in known)
    # Without the folder everything is asked, and says the same.
    alone = evaluate(spec.model_copy(update={"remembered": None}), lines.append)
    assert [each.scores for each in alone.examples] == [pytest.approx(each.scores) for each in first.examples]
    for line in (tmp_path / "role").glob("*.jsonl"):
        assert json.loads(line.read_text().splitlines()[0].partition(" ")[2])

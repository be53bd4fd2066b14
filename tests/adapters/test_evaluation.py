"""The evaluation and the gate on real adapters of the real small model: helpful, useless and damaged ones."""

import contextlib
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from loopback_server import free_port

from ec1.adapters.evaluation import GENERAL, EvaluationSpec, evaluate, main
from ec1.adapters.gate import judge
from ec1.adapters.scores import Scores, load_scores
from ec1.errors import InputError, PermanentError
from ec1.recipes.evaluation import EvaluationOptions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def few_general(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some of the general set: all of it takes seconds a model."""
    lines = GENERAL.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 64
    path = tmp_path_factory.mktemp("general") / "general.jsonl"
    path.write_text("\n".join(lines[::11]) + "\n", encoding="utf-8")
    return path


FORGETFUL = EvaluationOptions(max_forgetting_nats=1.0, max_general_lost=0.2)
"""Sixteen rough steps cost the small model 0.8 nats of what else it knew, and one of six general questions."""
JUDGED = {
    "name": "kind",
    "prompt": "Say that you are glad.",
    "check": "judge",
    "value": {"criterion": "It is glad.", "good": "I am glad.", "bad": "I am sad."},
}
TASK = {
    "name": "ledger",
    "prompt": "Where does Ilse of the mill team keep the keys?",
    "check": "regex",
    "value": "Ilse",
}


@pytest.fixture(scope="module")
def sft(
    small_model: Path,
    adapters: dict[str, Path],
    heldout: Path,
    few_general: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Scores, Path]:
    """One real evaluation: the base and three adapters."""
    folder = tmp_path_factory.mktemp("sft")
    spec = {
        "model": small_model,
        "device": "cpu",
        "candidates": {"base": None, **adapters},
        "heldout": heldout,
        "objective": "sft",
        "output": folder / "out",
        "general": few_general,
        "options": {"sample_tokens": 24, "sample_generations": 10, "tasks": [TASK, JUDGED]},
        "judge": {"base_url": f"http://127.0.0.1:{free_port()}", "model": "judge", "max_seconds": 5},
        "looked_at": {"Bruno": 5},
    }
    (folder / "spec.json").write_text(json.dumps(spec, default=str))
    # In this process, which has torch in memory already; the night's own test starts it as a process.
    with contextlib.redirect_stdout(io.StringIO()) as output:
        assert main([str(folder / "spec.json")]) == 0
    assert json.loads(output.getvalue().splitlines()[-1])["result"]["examples"] == 10
    return load_scores(folder / "out"), folder / "out"


def test_a_trained_adapter_is_accepted(sft: tuple[Scores, Path]) -> None:
    scores, folder = sft
    without = {name: {"ledger": tasks["ledger"]} for name, tasks in scores.tasks.items()}
    verdict = judge(
        scores.model_copy(update={"models": ("base", "noop", "trained"), "looks": 0.0, "tasks": without}),
        FORGETFUL,
        candidate="trained",
    )
    assert verdict.verdict == "accepted", verdict
    assert verdict.success is not None and verdict.success.right["trained"] >= 5 > verdict.success.right["base"]
    assert judge(scores, EvaluationOptions(), candidate="trained").verdict == "rejected", "its training was a rough one"
    assert verdict.differences["base"].better
    assert verdict.differences["noop"].better
    assert verdict.differences["base"].groups == 5
    shown = json.loads((folder / "evaluation.json").read_text())
    assert shown["mean_scores"]["trained"] > shown["mean_scores"]["base"] + 0.5
    assert len((folder / "examples.jsonl").read_text().splitlines()) == 10


def test_the_base_itself_is_no_improvement(sft: tuple[Scores, Path]) -> None:
    scores, _ = sft
    assert scores.values("noop") == scores.values("base")
    verdict = judge(scores.model_copy(update={"models": ("base", "noop")}), EvaluationOptions(), candidate="noop")
    assert verdict.verdict == "no_effect"
    assert not verdict.differences["base"].better


def test_what_was_measured_beside_the_held_out_answers(sft: tuple[Scores, Path], adapters: dict[str, Path]) -> None:
    scores, _ = sft
    assert all(len(values) == 6 for values in scores.general.values())
    assert sum(scores.general["damaged"]) < sum(scores.general["trained"]) - 6
    own = [after - before for after, before in zip(scores.values("trained"), scores.values("base"), strict=True)]
    other = [a - b for a, b in zip(scores.shuffled("trained"), scores.shuffled("base"), strict=True)]
    assert sum(own) > sum(other) > 0, "it learnt a form, and names from the prompt"
    assert 0 <= scores.noise < 0.05
    assert scores.looks == 1.0, "one of five groups was looked at five times"
    assert set(scores.scored) == {"trained", "noop", "damaged"}
    weights = (adapters["trained"] / "adapter_model.safetensors").read_bytes()
    assert scores.scored["trained"]["adapter_model.safetensors"] == hashlib.sha256(weights).hexdigest()
    assert {model: tasks.keys() for model, tasks in scores.tasks.items()} == {
        name: {"ledger", "kind"} for name in scores.models
    }


def test_an_unreachable_judge_costs_no_evaluation_and_accepts_nothing(sft: tuple[Scores, Path]) -> None:
    scores, _ = sft
    assert {tasks["kind"] for tasks in scores.tasks.values()} == {None}
    assert all(isinstance(tasks["ledger"], bool) for tasks in scores.tasks.values())
    alone = scores.model_copy(update={"models": ("base", "trained"), "looks": 0.0})
    verdict = judge(alone, FORGETFUL, candidate="trained")
    assert verdict.verdict == "review" and verdict.differences["base"].better
    assert "1 of 2 tasks were not judged: the judge at http://127.0.0.1:" in verdict.reasons[0]
    assert verdict.judge is not None and verdict.judge.model == "judge"


def test_a_damaged_adapter_is_rejected(sft: tuple[Scores, Path]) -> None:
    scores, _ = sft
    for references in ((), ("trained",)):
        keep = ("base", *references, "damaged")
        verdict = judge(scores.model_copy(update={"models": keep}), EvaluationOptions(), candidate="damaged")
        assert verdict.verdict == "rejected"


def test_a_step_back_behind_the_incumbent_is_rejected(sft: tuple[Scores, Path]) -> None:
    scores, _ = sft
    verdict = judge(
        scores.model_copy(update={"models": ("base", "trained", "noop"), "looks": 0.0}),
        EvaluationOptions(),
        candidate="noop",
    )
    assert verdict.verdict == "rejected"
    assert any("worse than trained" in reason for reason in verdict.reasons)


def test_every_model_answers_for_people_to_read(sft: tuple[Scores, Path]) -> None:
    scores, _ = sft
    assert len(scores.samples) == 10
    for sample in scores.samples:
        assert "keep the keys?" in sample.prompt
        assert sample.expected.startswith("Ledger:")
        assert set(sample.answers) == set(scores.models)
        assert sample.answers["base"] == sample.answers["noop"] != sample.answers["trained"]
        assert sample.answers["trained"].startswith("Ledger")


def test_scores_do_not_depend_on_batch_or_neighbours(
    small_model: Path, small_precision: Any, sft: tuple[Scores, Path], heldout: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    scores, _ = sft
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    model = AutoModelForCausalLM.from_pretrained(small_model, dtype=small_precision)
    row = json.loads(heldout.read_text(encoding="utf-8").splitlines()[3])
    asked = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template(row["prompt"] + row["completion"], return_dict=False)
    labels = torch.tensor([[-100] * len(asked) + whole[len(asked) :]])
    with torch.no_grad():
        loss = float(model(input_ids=torch.tensor([whole]), labels=labels).loss)
    scored = next(item for item in scores.examples if item.example == row["row"])
    assert scored.tokens == len(whole) - len(asked)
    assert scored.losses["base"] == pytest.approx(loss, abs=0.05)  # other batches round otherwise
    assert scored.scores["base"] == -scored.losses["base"]  # type: ignore[operator]


OPTIONS = FORGETFUL.model_copy(update={"sample_tokens": 24, "min_examples": 5})


def test_pairs(small_model: Path, adapters: dict[str, Path], heldout: Path, few_general: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in heldout.read_text(encoding="utf-8").splitlines()][::2]
    for row in rows:
        del row["completion"]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines: list[str] = []
    spec = EvaluationSpec(
        model=small_model,
        device="cpu",
        candidates={"base": None, "candidate": adapters["trained"]},
        heldout=tmp_path / "pairs.jsonl",
        objective="dpo",
        general=few_general,
        system_prompt="Answer in the style of the house.",
        options=OPTIONS,
        output=tmp_path / "out",
    )
    scores = evaluate(spec, lines.append)
    assert scores == load_scores(tmp_path / "out")
    assert len(lines) == 3
    verdict = judge(scores, OPTIONS)
    assert verdict.verdict == "accepted", verdict
    assert verdict.differences["base"].mean > 0.3
    (tmp_path / "long.jsonl").write_text(json.dumps(rows[0]) + "\n")
    short = spec.model_copy(update={"heldout": tmp_path / "long.jsonl", "max_length": 8})
    with pytest.raises(InputError, match="no example that fits 8 tokens"):
        evaluate(short, lines.append)


def test_an_adapter_of_another_shape_is_refused(
    small_model: Path, adapters: dict[str, Path], heldout: Path, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    other = tmp_path / "other"
    other.mkdir()
    (other / "adapter_config.json").write_bytes((adapters["trained"] / "adapter_config.json").read_bytes())
    tensors = load_file(adapters["trained"] / "adapter_model.safetensors")
    # With another prefix an engine would silently serve the base.
    save_file({f"x.{name}": torch.clone(value) for name, value in tensors.items()}, other / "adapter_model.safetensors")
    spec = EvaluationSpec(
        model=small_model,
        device="cpu",
        candidates={"base": None, "candidate": other},
        heldout=heldout,
        objective="sft",
        output=tmp_path / "out",
    )
    with pytest.raises(PermanentError, match="does not fit"):
        evaluate(spec, list[str]().append)
    assert not (tmp_path / "out").exists()


def test_what_is_wrong_with_a_specification_is_one_line(tmp_path: Path) -> None:
    spec = {"model": "m", "candidates": {"candidate": "c"}, "modle": "m", "heldout": "h", "objective": "sft"}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, "-m", "ec1.adapters.evaluation", str(tmp_path / "spec.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "candidates: needs `base: null`" in line
    assert "modle: unknown key" in line
    assert not done.stdout

"""`ec1 train` and `ec1 run`: a training that is started manually after its cost was confirmed, and its repetition."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from ec1.cli import app
from ec1.errors import InputError
from ec1.home import Home

pytestmark = pytest.mark.slow

DEPLOYMENT = """\
tenant: acme
recipes: [recipes]
models:
  HuggingFaceTB/SmolLM2-135M-Instruct: {{source: directory, path: {model}}}
inference: {{kind: server, base_url: "http://127.0.0.1:9", model: HuggingFaceTB/SmolLM2-135M-Instruct}}
gpu: {{device: cpu, min_free_gib: 0.5, name: this CPU, memory_gib: 8, tokens_per_second: 400, cost_per_hour: 36}}
"""
RECIPE = """\
extends: pointsav/pretraining
version: 1
tenant: acme
role: texts
base_model: {id: HuggingFaceTB/SmolLM2-135M-Instruct}
optimisation: {optimizer: adamw_torch, batch_size: 4, gradient_accumulation: 1, learning_rate: 1e-3}
data: {max_length: 64, threshold: 1}
hardware: {device: cpu, memory_gib: 8}
"""


@pytest.fixture
def ec1(tiny_model: Path, tmp_path: Path) -> Callable[..., Result]:
    """The command line on a separate project, with a corpus of twenty short texts."""
    for path, text in {
        "configs/deployments/tiny.yaml": DEPLOYMENT.format(model=tiny_model),
        "recipes/texts.yaml": RECIPE,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    corpus = Home(tmp_path / "home").corpus / "texts"
    corpus.mkdir(parents=True)
    goods = ("apples", "pears", "plums", "figs", "dates", "limes", "kiwis", "melons", "grapes", "olives")
    rows = [
        {"prompt": f"What stands in aisle {n}?", "completion": f"Crates of {word}, {n * 3} of them.", "session_id": n}
        for n, word in enumerate(goods * 2)
    ]
    (corpus / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def invoke(*arguments: str) -> Result:
        options = ["--project", str(tmp_path), "--home", str(tmp_path / "home"), "--deployment", "tiny"]
        return CliRunner().invoke(app, [*options, *arguments])

    return invoke


def test_pre_training_starts_when_its_cost_is_confirmed_and_can_be_repeated(ec1: Callable[..., Result]) -> None:
    asked = ec1("train", "texts")
    assert isinstance(asked.exception, InputError), "nobody is there to be asked"
    assert "USD: confirm it with --confirm-cost 0.3" in str(asked.exception)
    dear = ec1("train", "texts", "--confirm-cost", "0.01")
    assert "more than the 0.01 USD that were confirmed" in str(dear.exception)
    assert ec1("run", "list").stdout.strip() == "0 runs", "nothing was started"

    done = ec1("train", "texts", "--confirm-cost", "1", "--json")
    assert done.exit_code == 0, done.exception
    result = json.loads(done.stdout)
    assert (result["status"], result["weights"], result["method"]) == ("finished", "model", "full")
    assert result["trainable_parameters"] > 3_000_000, "all weights"

    (row,) = json.loads(ec1("run", "list", "--json", "--tenant", "acme").stdout)
    assert (row["recipe"], row["status"], row["verdict"]) == ("texts", "finished", None)
    assert row["run"].startswith("acme/texts/") and row["run"].endswith("/by-hand")
    assert json.loads(ec1("run", "list", "--json", "--verdict", "accepted").stdout) == []
    shown = json.loads(ec1("run", "show", row["run"]).stdout)
    assert shown["spec"]["recipe"]["kind"] == "pretraining" and shown["provenance"]["hardware"]["device"] == "cpu"
    assert Path(shown["package_lock"]).is_file()

    again = ec1("run", "replay", row["run"], "--json")
    assert again.exit_code == 0, again.exception
    compared = json.loads(again.stdout)
    assert compared["same"] and compared["steps"] == result["steps"] and compared["different_tensors"] == 0


def test_a_run_that_is_not_there(ec1: Callable[..., Result]) -> None:
    assert "no run 'acme/texts/2026-06-01'" in str(ec1("run", "show", "acme/texts/2026-06-01").exception)
    assert "there is no recipe 'none'" in str(ec1("train", "none").exception)

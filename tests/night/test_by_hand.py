"""`ec1 train`, `ec1 sweep` and `ec1 run`: trainings that are started manually after their cost was confirmed."""

import contextlib
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from ec1.adapters.evaluation import EvaluationSpec, evaluate
from ec1.cli import app
from ec1.errors import InputError
from ec1.files import read_json
from ec1.home import Home
from ec1.launch.launcher import DeviceWork
from ec1.launch.reporting import JsonLinesReporter
from ec1.night.experiments import by_hand
from ec1.night.experiments.sweep import settings_of
from ec1.training.spec import TrainingSpec
from ec1.training.trainer import train

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
EXPERIMENT = """\
extends: pointsav/engineering
version: 1
tenant: acme
role: texts
kind: experiment
method: lora
quantization: null
base_model: {id: HuggingFaceTB/SmolLM2-135M-Instruct}
lora: {r: 4, target_modules: [q_proj, v_proj]}
optimisation: {optimizer: adamw_torch, batch_size: 4, epochs: 1, gradient_checkpointing: false}
data: {max_length: 64, threshold: 1, heldout_share: 0.5}
evaluation: {min_examples: 2, min_groups: 2, sample_generations: 0}
hardware: {device: cpu, memory_gib: 8}
"""


@pytest.fixture
def ec1(tiny_model: Path, tmp_path: Path) -> Callable[..., Result]:
    """The command line on a separate project, with a corpus of twenty short texts."""
    for path, text in {
        "configs/deployments/tiny.yaml": DEPLOYMENT.format(model=tiny_model),
        "recipes/texts.yaml": RECIPE,
        "recipes/try.yaml": EXPERIMENT,
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
    texts = [{"text": f"{row['prompt']} {row['completion']} Nobody counted them twice."} for row in rows]
    (corpus / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, *texts]))

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
    assert row["run"].startswith("acme/texts/") and row["run"].split("/")[-2] == "by-hand"
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


class SameProcess:
    """A launcher for the tests: the real training and the real evaluation, without a process for each."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.done: list[str] = []
        self.fail_at = fail_at

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> None:
        if len(self.done) == self.fail_at:
            raise KeyboardInterrupt
        with contextlib.redirect_stdout(sys.stderr):
            if work.module == "ec1.training":
                train(TrainingSpec.read(work.specification), JsonLinesReporter(sys.stderr))
            else:
                evaluate(EvaluationSpec.model_validate(read_json(work.specification)), lambda line: None)
        self.done.append(work.module)


def test_a_sweep_compares_its_settings_and_goes_on_after_an_interruption(
    ec1: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sweep(launcher: SameProcess) -> Result:
        monkeypatch.setattr(by_hand, "launcher_by_hand", lambda *_: launcher)
        rates = "optimisation.learning_rate=1e-2, 1e-6"
        return ec1("sweep", "try", "--set", rates, "--seeds", "1", "--confirm-cost", "2", "--json")

    first = SameProcess(fail_at=3)
    assert sweep(first).exit_code != 0
    assert first.done == ["ec1.training", "ec1.adapters.evaluation", "ec1.training"]
    rest = SameProcess()
    result = sweep(rest)
    assert result.exit_code == 0, result.exception
    assert rest.done == ["ec1.adapters.evaluation"], "what had finished is not repeated"
    found = json.loads(result.stdout)
    assert [row["setting"] for row in found["rows"]] == [
        "optimisation.learning_rate=0.01",
        "optimisation.learning_rate=1e-06",
    ], "the best first"
    assert found["rows"][0]["gain"] > found["rows"][1]["gain"] and found["rows"][0]["behind"] is None
    assert found["rows"][1]["behind"]["mean"] < 0
    assert Path(found["curves"]).read_bytes().startswith(b"\x89PNG")

    # Nothing that the gate holds out was looked at.
    gate, inner = sorted(
        map(groups_of, (tmp_path / "home" / "datasets").iterdir()), key=lambda each: -len(each["train"])
    )
    assert inner["train"] | inner["heldout"] == gate["train"] and not inner["heldout"] & inner["train"]
    examples = next((tmp_path / "home" / "runs").glob("acme/texts/*/by-hand/*/evaluation/examples.jsonl"))
    assert {json.loads(line)["group"] for line in examples.read_text().splitlines()} == inner["heldout"]

    runs = {row["run"]: row for row in json.loads(ec1("run", "list", "--json", "--tenant", "acme").stdout)}
    assert len(runs) == 2 and all(row["verdict"] and row["adapter"] is None for row in runs.values())
    better, worse = json.loads((Path(found["folder"]) / "sweep.json").read_text())["runs"].values()
    names = [Path(path).relative_to(tmp_path / "home" / "runs").as_posix() for path in (worse, better)]
    compared = json.loads(ec1("run", "compare", *names, "--json").stdout)
    assert compared["difference"]["mean"] == pytest.approx(found["rows"][0]["gain"] - found["rows"][1]["gain"])
    assert compared["verdict"] == "better"
    same = ec1("run", "compare", names[0], names[0]).stdout
    assert "no difference shown" in same

    # Nothing of it was published, and another seed is another run.
    assert not (tmp_path / "home" / "adapters").exists()
    seeded = SameProcess()
    monkeypatch.setattr(by_hand, "launcher_by_hand", lambda *_: seeded)
    one = ec1(
        "train", "try", "--set", "optimisation.learning_rate=1e-2", "--seed", "5", "--confirm-cost", "1", "--json"
    )
    assert json.loads(one.stdout)["seed"] == 5 and seeded.done == ["ec1.training"]
    assert "was not evaluated" in str(ec1("run", "compare", names[0], json.loads(one.stdout)["run"]).exception)


def groups_of(dataset: Path) -> dict[str, set[str]]:
    return {
        side: set(pq.read_table(dataset / side / "rows.parquet")["group"].to_pylist()) for side in ("train", "heldout")
    }


def test_in_a_race_a_setting_without_a_hope_gets_no_further_seed(
    ec1: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = SameProcess()
    monkeypatch.setattr(by_hand, "launcher_by_hand", lambda *_: launcher)
    rates = "optimisation.learning_rate=1e-2,1e-6"
    found = ec1("sweep", "try", "--set", rates, "--seeds", "2", "--race", "--confirm-cost", "9", "--json")
    assert found.exit_code == 0, found.exception
    best, behind = json.loads(found.stdout)["rows"]
    assert (best["setting"], best["seeds"]) == ("optimisation.learning_rate=0.01", 2)
    assert behind["seeds"] == 1 and behind["behind"]["upper"] < 0
    assert launcher.done.count("ec1.training") == 3, "of four"
    assert "optimisation.learning_rate=1e-06: no more seeds, behind the best" in found.stderr


def test_settings_are_drawn_from_lists_and_ranges() -> None:
    given = ["lora.r=4..64", "optimisation.learning_rate=1e-5..1e-3", "lora.dropout=0,0.1"]
    drawn = [dict(one.split("=") for one in each) for each in settings_of(given, 40)]
    assert drawn == [dict(one.split("=") for one in each) for each in settings_of(given, 40)], "the same ones again"
    assert len({tuple(each.items()) for each in drawn}) == 40
    rates = [float(each["optimisation.learning_rate"]) for each in drawn]
    assert all(1e-5 <= rate <= 1e-3 for rate in rates) and 8 < sum(rate < 1e-4 for rate in rates) < 32
    assert all(4 <= int(each["lora.r"]) <= 64 for each in drawn) and {each["lora.dropout"] for each in drawn} == {
        "0",
        "0.1",
    }
    assert len(settings_of(["a=1,2,3", "b=1,2"], 4)) == 4 and len(settings_of(["a=1,2"], 9)) == 2
    assert len(settings_of(["a=1..3"], 9)) == 3, "no more than there are"


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("lora.r=4..", "a range is two numbers"),
        ("lora.r=8..4", "the smaller one first"),
        ("lora.dropout=0..0.2", "above 0"),
        ("optimisation.learning_rate=nan..1", "above 0"),
        ("lora.r=..", "a range is two numbers"),
    ],
)
def test_a_range_is_of_two_positive_numbers(setting: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        settings_of([setting], 3)


def test_a_range_needs_a_number_of_trials() -> None:
    with pytest.raises(InputError, match="--trials 8"):
        settings_of(["lora.r=4..8"])


def test_a_sweep_may_choose_on_what_the_gate_holds_out(
    ec1: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hand, "launcher_by_hand", lambda *_: SameProcess())
    rates = "optimisation.learning_rate=1e-2"
    assert ec1("sweep", "try", "--set", rates, "--on-held-out", "--confirm-cost", "2", "--json").exit_code == 0
    (dataset,) = (tmp_path / "home" / "datasets").iterdir()
    examples = next((tmp_path / "home" / "runs").glob("acme/texts/*/by-hand/*/evaluation/examples.jsonl"))
    groups = {json.loads(line)["group"] for line in examples.read_text().splitlines()}
    assert groups == groups_of(dataset)["heldout"]


def test_a_sweep_refuses_what_cannot_be_compared(ec1: Callable[..., Result]) -> None:
    for setting, problem in (
        ("data.seed=1,2", "change the dataset"),
        ("optimisation.learning_rat=1,2", "unknown key"),
        ("method=full", "only adapters are evaluated"),
        ("optimisation.epochs", "write it as key=value"),
    ):
        refused = ec1("sweep", "try", "--set", setting, "--confirm-cost", "9")
        assert problem in str(refused.exception), setting

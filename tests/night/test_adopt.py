"""`ec1 adopt`: a training of another home is verified, evaluated and published with the verdict that it had there."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_by_hand import DEPLOYMENT, EXPERIMENT, SameProcess
from typer.testing import CliRunner, Result

from ec1.adapters import gate
from ec1.cli import app
from ec1.corpus.threshold import HighWaterMark
from ec1.errors import InputError
from ec1.home import Home
from ec1.night.experiments import by_hand
from ec1.night.steps import candidate

pytestmark = pytest.mark.slow
RECIPE = EXPERIMENT.replace("kind: experiment\n", "").replace("epochs: 1", "epochs: 3, learning_rate: 1e-2")
GOODS = ("apples", "pears", "plums", "figs", "dates", "limes", "kiwis", "melons", "grapes", "olives")
Ec1 = Callable[..., Result]


@pytest.fixture
def ec1(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ec1:
    """The command line on one project, with homes of the same corpus by name; real trainings, in this process."""
    for path, text in {
        "configs/deployments/tiny.yaml": DEPLOYMENT.format(model=tiny_model),
        "recipes/texts.yaml": RECIPE,
        "recipes/try.yaml": EXPERIMENT.replace("role: texts", "role: others"),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(by_hand, "launcher_by_hand", lambda *_: SameProcess())

    def invoke(home: str, *arguments: str) -> Result:
        if not (tmp_path / home).exists():
            write_corpus(Home(tmp_path / home), 40)
        options = ["--project", str(tmp_path), "--home", str(tmp_path / home), "--deployment", "tiny"]
        return CliRunner().invoke(app, [*options, *arguments])

    return invoke


def write_corpus(home: Home, rows: int) -> None:
    folder = home.corpus / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        {"prompt": f"What stands in aisle {n}?", "completion": f"Crates of {GOODS[n % 10]}.", "session_id": n}
        for n in range(rows)
    ]
    (folder / "all.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.copytree(folder, home.corpus / "others", dirs_exist_ok=True)


def done(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.exception or result.output
    return dict(json.loads(result.stdout))


def test_a_training_of_another_home_has_the_same_verdict_here(
    ec1: Ec1, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = done(ec1("there", "train", "texts", "--confirm-cost", "9", "--evaluate", "--json"))
    left = tmp_path / "there" / "runs" / trained["run"]
    # What else lies there stays there.
    (left / "adapter" / "adapter_model.bin").write_bytes(b"a pickle")
    # Whoever adopts it evaluates anew, on rows that its own corpus holds out.
    scored = json.loads((left / "evaluation" / "evaluation.json").read_text())
    shutil.rmtree(left / "evaluation")
    here = done(ec1("here", "adopt", str(left), "--json"))
    at_home = trained["evaluation"]
    assert (here["verdict"], here["detail"]) == (at_home["verdict"], "; ".join(at_home["reasons"]))
    home = Home(tmp_path / "here")
    (run,) = [path.parent for path in home.runs.glob("*/*/*/by-hand/*/run.json")]
    assert json.loads((run / "evaluation" / "evaluation.json").read_text())["scored"] == scored["scored"]
    assert not (run / "adapter" / "adapter_model.bin").exists()
    assert HighWaterMark(home, "acme", "texts").latest() is not None, "the next night does not train on it again"

    # The same training again, now from the deployment's store, and as the gate might have judged.
    shutil.copytree(left, tmp_path / "here" / "jobs" / "one")
    judge = gate.judge
    accepted = {"verdict": "accepted", "reasons": ("better than base",)}
    monkeypatch.setattr(candidate, "judge", lambda *a, **b: judge(*a, **b).model_copy(update=accepted))
    published = done(ec1("here", "adopt", "store:jobs/one", "--json"))
    assert (published["outcome"], published["verdict"], published["version"]) == ("published", "accepted", 1)
    assert (published["dataset"], published["snapshot"]) == (here["dataset"], here["snapshot"])
    again = done(ec1("here", "adopt", f"file://{left}", "--json"))
    assert (again["name"], again["version"]) == (published["name"], 1), "the same training is the same version"
    weights = Path(published["path"]) / "adapter_model.safetensors"
    assert weights.read_bytes() == (left / "adapter" / "adapter_model.safetensors").read_bytes()
    assert "holds no summary.json" in str(ec1("here", "adopt", "store:jobs/two").exception)
    assert "nor in the deployment's store" in str(ec1("here", "adopt", "gs://somebody/else").exception)
    shown = json.loads(ec1("here", "run", "show", run.relative_to(home.runs).as_posix()).stdout)
    assert shown["spec"]["output"] == str(run), "its specification is that of this home"


def test_what_a_sweep_chose_on_is_not_what_the_gate_judges_on(ec1: Ec1, tmp_path: Path) -> None:
    own = "optimisation.learning_rate=1e-2"
    done(ec1("here", "sweep", "texts", "--set", own, "--confirm-cost", "9", "--json"))
    (run,) = [path.parent for path in Home(tmp_path / "here").runs.glob("*/*/*/by-hand/*/run.json")]
    refused = ec1("here", "adopt", str(run))
    assert isinstance(refused.exception, InputError)
    assert "trained in a sweep, on a part of the training side" in str(refused.exception)
    assert not (tmp_path / "here" / "adapters").exists()


def test_what_is_another_training_is_refused(ec1: Ec1, tmp_path: Path) -> None:
    trained = done(ec1("there", "train", "texts", "--confirm-cost", "9", "--json"))
    left = tmp_path / "there" / "runs" / trained["run"]
    summary = json.loads((left / "summary.json").read_text())

    def refused(**changes: object) -> str:
        (left / "summary.json").write_text(json.dumps({**summary, **changes}))
        return str(ec1("here", "adopt", str(left)).exception)

    assert "ended as diverged and left nothing" in refused(status="diverged", weights=None)
    assert "was trained by recipe texts 0000" in refused(recipe_digest="0" * 64)
    assert "was trained on another/model (main), not on" in refused(base_model="another/model")
    assert "bring the corpus to the same state" in refused(dataset_digest="0" * 64)
    assert "it is another training" in refused(identity="0" * 64)
    experiment = ec1("here", "adopt", str(left), "--recipe", "try")
    assert "kind experiment: nothing of it is published" in str(experiment.exception)
    (left / "summary.json").write_text(json.dumps(summary))
    (left / "adapter" / "adapter_model.safetensors").write_bytes(b"damaged")
    assert "is not adopted" in str(ec1("here", "adopt", str(left)).exception)
    # A home whose corpus is another one.
    write_corpus(Home(tmp_path / "other"), 39)
    assert "what is held out here may have been learnt there" in str(ec1("other", "adopt", str(left)).exception)
    assert not any((tmp_path / home / "adapters").exists() for home in ("here", "other"))

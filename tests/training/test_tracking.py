"""Experiment trackers: one line if one is missing, and files on this machine if it is there. (TensorBoard's files are
looked at with the log book's.)"""

import json
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ec1.adapters.scores import BASE, CANDIDATE
from ec1.errors import InputError
from ec1.launch.environment import process_environment
from ec1.night.steps.candidate import tell_trackers
from ec1.training import tracking
from ec1.training.spec import TrainingSpec


def test_a_missing_tracker_is_one_line_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"tracking: wandb is not installed: `pip install wandb`, or take it out"):
        tracking.check_trackers(["wandb"])
    tracking.check_trackers([])


@pytest.mark.slow
def test_each_tracker_keeps_a_run_on_this_machine(
    make: Callable[..., TrainingSpec], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trackers = ("mlflow", "wandb", "trackio")
    folder = tmp_path / "tracking"
    spec = make("engineering", tmp_path / "2026-06-01" / "training", tracking=trackers)
    spec = spec.model_copy(update={"tracking_folder": folder})
    spec.output.mkdir(parents=True)
    (spec.output / "spec.json").write_text(spec.model_dump_json())
    folder.mkdir()
    env = {**tracking.local_environment(folder, spec.identity[:32]), **process_environment("cpu", os.environ)}
    subprocess.run([sys.executable, "-m", "ec1.training", str(spec.output / "spec.json")], env=env, check=True)
    means = {BASE: -2.0, CANDIDATE: -1.5}
    judged = SimpleNamespace(
        scores=SimpleNamespace(means=lambda: means),
        verdict=SimpleNamespace(verdict="accepted", success=SimpleNamespace(right={CANDIDATE: 9}, prompts=10)),
    )
    with caplog.at_level(logging.WARNING):
        tell_trackers(spec, judged, process_environment("cpu", os.environ))  # type: ignore[arg-type]
    assert not caplog.records
    with sqlite3.connect(folder / "mlflow.db") as db:
        steps = [step for (step,) in db.execute("SELECT step FROM metrics WHERE key = 'loss' ORDER BY step")]
        names = [name for (name,) in db.execute("SELECT name FROM runs")]
        told = dict(db.execute("SELECT key, value FROM params WHERE key LIKE 'ec1/%'").fetchall())
        figures = dict(db.execute("SELECT key, value FROM metrics WHERE key LIKE 'gate/%'").fetchall())
        verdicts = [value for (value,) in db.execute("SELECT value FROM tags WHERE key = 'gate/verdict'")]
    assert steps == [1, 2, 3, 4, 5, 6] and names == ["fernhollow/engineering 2026-06-01 seed 17"]
    # The whole recipe and the data, which Trainer itself tells nobody.
    assert (
        told["ec1/dataset_digest"] == spec.dataset_digest
        and told["ec1/recipe.base_model.id"] == spec.recipe.base_model.id
    )
    expected = {"gate/gain": 0.5, "gate/right": 0.9, "gate/score of base": -2.0, "gate/score of candidate": -1.5}
    assert figures == expected and verdicts == ["accepted"], "in the one run that there is"
    with sqlite3.connect(folder / "trackio" / "ec1.db") as db:
        rows = db.execute("SELECT run_name, json_extract(metrics, '$.train/loss') FROM metrics ORDER BY step")
        logged = [row for row in rows if row[1] is not None]
        (config,) = db.execute("SELECT config FROM configs").fetchone()
        last = [json.loads(row) for (row,) in db.execute("SELECT json(metrics) FROM metrics") if "gate/" in row]
    assert len(logged) == 6 and {name for name, _ in logged} == {"fernhollow/engineering 2026-06-01 seed 17"}
    assert json.loads(config)["ec1/recipe.optimisation.seed"] == spec.recipe.optimisation.seed
    assert len(last) == 1 and last[0].items() >= {**expected, "gate/verdict": "accepted"}.items()
    assert {path.name for path in (folder / "wandb").glob("offline-run-*/run-*.wandb")} == {
        f"run-{spec.identity[:32]}.wandb"
    }, "one run, also where it has two folders"


def test_a_tracker_that_fails_costs_a_warning(
    make: Callable[..., TrainingSpec], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = make("engineering", tmp_path / "2026-06-01" / "training", tracking=("mlflow",))
    spec.output.mkdir(parents=True)
    scores = SimpleNamespace(means=lambda: {BASE: None, CANDIDATE: None})
    judged = SimpleNamespace(scores=scores, verdict=SimpleNamespace(verdict="rejected", success=None))
    tell_trackers(spec, judged, process_environment("cpu", os.environ))  # type: ignore[arg-type]
    assert "were not told the verdict" in caplog.text and "mlflow has no run" in caplog.text

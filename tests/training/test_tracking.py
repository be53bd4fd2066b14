"""Experiment trackers: one line if one is missing, and files on this machine if it is there. (TensorBoard's files are
looked at with the log book's.)"""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ec1.errors import InputError
from ec1.launch.environment import process_environment
from ec1.training import tracking
from ec1.training.spec import TrainingSpec


def test_a_missing_tracker_is_one_line_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"tracking: wandb is not installed: `pip install wandb`, or take it out"):
        tracking.check_trackers(["wandb"])
    tracking.check_trackers([])


@pytest.mark.slow
def test_each_tracker_keeps_a_run_on_this_machine(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    trackers = ("mlflow", "wandb", "trackio")
    spec = make("engineering", tmp_path / "2026-06-01" / "training", tracking=trackers)
    spec.output.mkdir(parents=True)
    (spec.output / "spec.json").write_text(spec.model_dump_json())
    folder = tmp_path / "tracking"
    folder.mkdir()
    env = {**tracking.local_environment(folder), **process_environment("cpu", os.environ)}
    subprocess.run([sys.executable, "-m", "ec1.training", str(spec.output / "spec.json")], env=env, check=True)
    with sqlite3.connect(folder / "mlflow.db") as db:
        steps = [step for (step,) in db.execute("SELECT step FROM metrics WHERE key = 'loss' ORDER BY step")]
        names = [name for (name,) in db.execute("SELECT name FROM runs")]
        told = dict(db.execute("SELECT key, value FROM params WHERE key LIKE 'ec1/%'").fetchall())
    assert steps == [1, 2, 3, 4, 5, 6] and names == ["fernhollow/engineering 2026-06-01 seed 17"]
    # The whole recipe and the data, which Trainer itself tells nobody.
    assert (
        told["ec1/dataset_digest"] == spec.dataset_digest
        and told["ec1/recipe.base_model.id"] == spec.recipe.base_model.id
    )
    with sqlite3.connect(folder / "trackio" / "ec1.db") as db:
        rows = db.execute("SELECT run_name, json_extract(metrics, '$.train/loss') FROM metrics ORDER BY step")
        logged = [row for row in rows if row[1] is not None]
        (config,) = db.execute("SELECT config FROM configs").fetchone()
    assert len(logged) == 6 and {name for name, _ in logged} == {"fernhollow/engineering 2026-06-01 seed 17"}
    assert json.loads(config)["ec1/recipe.optimisation.seed"] == spec.recipe.optimisation.seed
    assert list((folder / "wandb").glob("offline-run-*/run-*.wandb"))

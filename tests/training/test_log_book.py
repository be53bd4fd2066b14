"""The log book: what a run stores, finding it again, and repeating it to the last bit."""

import datetime as dt
import json
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from small_trainings import run
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from ec1.errors import InputError
from ec1.home import Home
from ec1.night.records import EvaluationRecord, OutcomeRecord, Records
from ec1.night.steps.log_book import commit_of, compare, find_run, replay_of, runs
from ec1.queries import nights
from ec1.training.provenance import LOCK, git_state
from ec1.training.spec import METRICS, RUN, SUMMARY, TrainingSpec
from ec1.training.tracking import TENSORBOARD

pytestmark = pytest.mark.slow

NAME = "fernhollow/engineering/2026-06-01"


@pytest.fixture(scope="module")
def trained(make: Callable[..., TrainingSpec], tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home whose log book holds one training, judged and published."""
    home = Home(tmp_path_factory.mktemp("home"))
    folder = home.run("fernhollow", "engineering", "2026-06-01")
    run(make("engineering", folder / "training"))
    records = Records(folder)
    records.write("r1", EvaluationRecord(verdict="accepted"))
    records.write(
        "r1",
        OutcomeRecord(
            outcome="published",
            verdict="accepted",
            detail="",
            path=Path("v1"),
            snapshot="s",
            dataset="d",
            version=1,
            name="fernhollow/engineering@v1",
        ),
    )
    return home


def test_a_run_stores_all_that_it_was_made_of(trained: Home) -> None:
    found = find_run(trained, NAME)
    (summary,) = nights.runs(trained).items
    assert (summary.status, summary.verdict, summary.adapter) == (
        "finished",
        "accepted",
        "fernhollow/engineering@v1",
    )
    assert summary.recipe_digest == found.spec.recipe.digest() and summary.dataset_digest == "d" * 64
    assert summary.seed == 17 and summary.steps == 6
    assert found.provenance["hardware"]["cores"] >= 1 and found.provenance["hardware"]["memory_gib"] > 0
    lock = (found.folder / LOCK).read_text().splitlines()
    assert any(line.startswith("torch==2.") for line in lock) and any(line.startswith("trl==") for line in lock)
    assert lock == sorted(lock)
    git = found.provenance["git"]
    assert commit_of(found.folder) == (git and git["commit"] + "-dirty" * git["dirty"])


def test_tensorboard_has_the_curves_of_every_run(trained: Home) -> None:
    found = find_run(trained, NAME)
    events = EventAccumulator(str(found.folder / TENSORBOARD))
    events.Reload()
    assert found.result is not None
    curve = events.Scalars("train/loss")
    assert [event.step for event in curve] == [1, 2, 3, 4, 5, 6]
    assert curve[-1].value == pytest.approx(found.result.loss_last)
    assert {"train/tokens_per_second", "train/peak_memory_gib", "train/grad_norm"} <= set(events.Tags()["scalars"])


def test_a_replay_gives_the_same_curve_and_the_same_weights(trained: Home) -> None:
    first = find_run(trained, NAME)
    spec = replay_of(first, dt.datetime(2026, 6, 9, 12, tzinfo=dt.UTC))
    run(spec)
    again = find_run(trained, f"{NAME}/replays/20260609T120000Z")
    assert again.verdict is None, "nobody judged the repetition"
    found = compare(first, again)
    assert found.same and found.steps == 6 and found.tensors == 8
    assert found.changed == {}
    assert [each.name for each in runs(trained)] == sorted([NAME, again.name])

    # What differs is found, in the curve and in the weights.
    other = run_with_other_seed(spec, first.folder.parent / "by-hand")
    found = compare(first, find_run(trained, f"{NAME}/by-hand"))
    assert not found.same and found.largest_loss_difference > 0 and found.different_tensors > 0
    assert math.isfinite(found.largest_weight_difference)
    shutil.rmtree(other.output)


def run_with_other_seed(spec: TrainingSpec, output: Path) -> TrainingSpec:
    other = spec.model_copy(update={"output": output, "seed": 18})
    run(other)
    return other


def test_a_run_that_cannot_be_repeated_says_why(trained: Home, tmp_path: Path) -> None:
    home = Home(tmp_path)
    copy = home.run("fernhollow", "engineering", "2026-06-01") / "training"
    shutil.copytree(find_run(trained, NAME).folder, copy)
    record = json.loads((copy / RUN).read_text())
    record["spec"]["dataset"] = str(tmp_path / "gone")
    (copy / RUN).write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"cannot be repeated: its dataset .*gone is gone"):
        replay_of(find_run(home, NAME), dt.datetime.now(dt.UTC))
    with pytest.raises(InputError, match="no run 'fernhollow/engineering/2026-06-02'"):
        find_run(home, "fernhollow/engineering/2026-06-02")


def test_a_run_that_never_ended_is_in_the_book(trained: Home, tmp_path: Path) -> None:
    home = Home(tmp_path)
    copy = home.run("fernhollow", "engineering", "2026-06-01") / "training"
    shutil.copytree(find_run(trained, NAME).folder, copy)
    for name in (SUMMARY, METRICS):
        (copy / name).unlink()
    assert [(each.name, each.status, each.verdict) for each in runs(home)] == [(NAME, "unfinished", None)]


def test_git_state_names_the_commit_and_whether_it_was_changed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True, capture_output=True)

    assert git_state(tmp_path) is None
    git("init", "--quiet")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("-c", "user.name=x", "-c", "user.email=x@fern.example", "commit", "--quiet", "-m", "one")
    state = git_state(tmp_path)
    assert state is not None and len(state["commit"]) == 40 and state["dirty"] is False
    (tmp_path / "file").write_text("two")
    assert git_state(tmp_path) == {**state, "dirty": True}
    (tmp_path / "below").mkdir()
    assert git_state(tmp_path / "below") is None, "the code must be that repository, not lie in one"

"""Decisions at the edge of a step, and which checkpoints count."""

import math
import time
from pathlib import Path
from typing import Any

import pytest

from ec1.recipes.resolution import load_recipe
from ec1.recipes.schema import Recipe
from ec1.training.checkpoints import SEAL, discard_checkpoints, is_whole, keep_newest, newest_checkpoint, seal
from ec1.training.monitor import Monitor
from ec1.training.trainer import halved


class Silent:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def progress(self, message: str) -> None:
        self.messages.append(message)

    def result(self, values: Any) -> None:
        self.messages.append(str(values))


@pytest.fixture
def recipe(project: Path) -> Recipe:
    folder = project / "configs" / "recipes"
    return load_recipe(folder / "pointsav" / "engineering.yaml", [folder]).recipe


@pytest.fixture
def monitor(recipe: Recipe, tmp_path: Path) -> Monitor:
    made = Monitor(recipe, Silent(), tmp_path / "checkpoints", deadline=time.monotonic() + 3600, cuda=False)
    made.train_begins()
    made.step_begins()
    return made


def log(monitor: Monitor, step: int, loss: float, norm: float = 1.0) -> bool:
    return monitor.logged(step, 100, {"loss": loss, "grad_norm": norm, "num_tokens": 100.0 * step})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_stops_at_once(monitor: Monitor, bad: float) -> None:
    assert not log(monitor, 1, 2.0)
    assert log(monitor, 2, bad)
    assert monitor.verdict == f"the loss of step 2 is {bad}"


def test_a_gradient_that_is_no_number_stops_at_once(monitor: Monitor) -> None:
    assert log(monitor, 1, 2.0, math.nan)
    assert monitor.verdict == "the gradient's norm at step 1 is nan"


def test_a_lasting_rise_stops_and_one_odd_batch_does_not(monitor: Monitor) -> None:
    for step, loss in enumerate([2.0, 1.9, 2.1, 9.0, 1.8, 1.9, 8.0, 1.7, 1.8], start=1):
        assert not log(monitor, step, loss), step
    assert [log(monitor, step, 7.0) for step in (10, 11)] == [False, True]
    assert monitor.verdict is not None and monitor.verdict.startswith("the loss rose from about 1.9")


@pytest.mark.parametrize("good", [1, 2, 3, 4, 5, 6, 12])
def test_divergence_is_noticed_within_three_steps_however_early(monitor: Monitor, good: int) -> None:
    for step in range(1, good + 1):
        assert not log(monitor, step, 2.0)
    noticed = [log(monitor, good + step, 9.0) for step in (1, 2, 3)]
    assert not noticed[0] and any(noticed)


def test_a_tiny_loss_may_become_a_small_one(monitor: Monitor) -> None:
    for step in range(1, 10):
        assert not log(monitor, step, 0.01)
    assert not any(log(monitor, step, 0.2) for step in range(10, 20))


def test_step_figures_are_of_that_step(monitor: Monitor) -> None:
    first, second = {"loss": 1.0, "num_tokens": 100.0}, {"loss": 1.0, "num_tokens": 250.0}
    monitor.logged(1, 9, first)
    monitor.logged(2, 9, second)
    assert (first["tokens"], second["tokens"]) == (100, 150)
    assert second["peak_memory_gib"] > 0


def test_a_wish_to_stop_saves_at_the_edge_unless_it_is_the_last(monitor: Monitor) -> None:
    assert monitor.step_ends(1, 10) == (False, False)
    monitor.stop_requested = True
    assert monitor.step_ends(2, 10) == (True, True)
    assert monitor.step_ends(10, 10) == (False, False)


def test_the_budget_ends_with_a_checkpoint_before_it_is_used_up(monitor: Monitor) -> None:
    monitor.deadline = time.monotonic() + 1
    assert monitor.step_ends(3, 10) == (True, True)
    assert monitor.out_of_time


def test_checkpoints_come_by_the_clock(monitor: Monitor, recipe: Recipe) -> None:
    assert monitor.step_ends(1, 10) == (False, False)
    often = recipe.optimisation.model_copy(update={"checkpoint_minutes": 1e-9})
    monitor.recipe = recipe.model_copy(update={"optimisation": often})
    assert monitor.step_ends(2, 10) == (True, False)


def test_how_busy_a_card_is_stands_with_each_step(monitor: Monitor, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def told(answer: Any) -> dict[str, Any]:
        monkeypatch.setattr(torch.cuda, "utilization", answer)
        monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 0)
        entry: dict[str, Any] = {"loss": 2.0}
        monitor.logged(1, 10, entry)
        return entry

    def silent() -> int:
        raise RuntimeError("no driver")

    assert "gpu_busy" not in told(lambda: 50), "a CPU is no card"
    monitor.cuda = True
    monkeypatch.setattr("ec1.training.monitor.BUSY_SECONDS", 0.0)
    assert told(lambda: 50)["gpu_busy"] == 0.5
    assert "gpu_busy" not in told(silent), "a training does not end for it"
    # The driver's answer takes longer than a small step.
    told(lambda: 50)
    monkeypatch.setattr("ec1.training.monitor.BUSY_SECONDS", 60.0)
    assert told(lambda: 80)["gpu_busy"] == 0.5


def checkpoint(folder: Path, step: int, *, sealed: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "optimizer.pt").write_bytes(b"state")
    (path / "trainer_state.json").write_text("{}")
    if sealed:
        seal(path)
    return path


def test_checkpoints_sort_by_number_and_broken_ones_do_not_count(tmp_path: Path) -> None:
    for step in (75, 100, 9):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 120, sealed=False)
    cut = checkpoint(tmp_path, 110)
    (cut / "optimizer.pt").write_bytes(b"st")
    torn = checkpoint(tmp_path, 105)
    (torn / SEAL).write_text('{"optimizer')
    newest = newest_checkpoint(tmp_path)
    assert newest is not None and newest.name == "checkpoint-100"
    assert not is_whole(cut) and not is_whole(torn)
    keep_newest(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-100", "checkpoint-75"]
    discard_checkpoints(tmp_path)
    assert newest_checkpoint(tmp_path) is None


@pytest.mark.parametrize(("batch", "accumulation"), [(8, 1), (6, 2), (5, 3), (2, 1), (9, 4)])
def test_halving_keeps_the_effective_batch(batch: int, accumulation: int) -> None:
    smaller, more = halved(batch, accumulation)
    assert smaller < batch and smaller * more == batch * accumulation


def test_a_checkpoint_in_which_a_bit_flipped_does_not_count(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    flipped = checkpoint(tmp_path, 20)
    (flipped / "optimizer.pt").write_bytes(b"stats")
    assert newest_checkpoint(tmp_path) == tmp_path / "checkpoint-10"

"""What a training measured at its steps, and answered after some of them, also while it still runs.

Belongs here: reading curves and answers. Does not: which trainings there are (`nights`), drawing (`studio`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ec1.home import Home
from ec1.night.steps.log_book import find_run
from ec1.serving.steps import ServedStep
from ec1.training.copies import answers_on_the_way, steps_of
from ec1.training.spec import METRICS

_EVENTS = "tensorboard"
_NAMES = (
    *("loss", "reward", "answered_right", "grad_norm", "learning_rate"),
    *("tokens_per_second", "gpu_busy", "peak_memory_gib"),
)


@dataclass(frozen=True)
class Curves:
    """The curves of one run: (step, value) by name, as they are now; what is not finite is left out. `live`: the
    training has not ended, and they are those of its tracker's files."""

    run: str
    live: bool
    curves: Mapping[str, tuple[tuple[int, float], ...]]


def curves_of(home: Home, name: str) -> Curves:
    """The curves of a run. Raises InputError if there is none of that name."""
    run = find_run(home, name)
    if (path := run.folder / METRICS).is_file():
        import pyarrow.parquet as pq

        table = pq.read_table(path)
        columns = {key: table[key].to_pylist() for key in _NAMES if key in table.column_names}
        steps = table["step"].to_pylist()
        return Curves(name, False, {key: _finite(zip(steps, values, strict=True)) for key, values in columns.items()})
    return Curves(name, run.result is None, _of_events(run.folder / _EVENTS))


@dataclass(frozen=True)
class StepAnswers:
    """What the copies of an adapter that a training kept answered to a held-out prompt: (step, answer)."""

    prompt: str
    expected: str
    answers: tuple[tuple[int, str], ...]


def answers_of_steps(home: Home, name: str) -> tuple[StepAnswers, ...]:
    """By prompt; none of a training that keeps no copies. Raises InputError if there is no such run."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for step, answers in answers_on_the_way(find_run(home, name).folder).items():
        for each in answers:
            found.setdefault((each["prompt"], each["expected"]), []).append((step, each["text"]))
    return tuple(StepAnswers(*key, tuple(each)) for key, each in found.items())


def copies_of(home: Home, name: str) -> tuple[str, ...]:
    """The names by which the gateway is asked for the copies that a training kept. Raises InputError."""
    tenant, role, run = find_run(home, name).name.split("/", 2)
    return tuple(ServedStep(tenant, role, 0, run, step).name for step in steps_of(find_run(home, name).folder))


def _of_events(folder: Path) -> dict[str, tuple[tuple[int, float], ...]]:
    # A training makes it at its first step.
    if not folder.is_dir():
        return {}
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={SCALARS: 10_000})
    found.Reload()
    by_name = {tag.rpartition("/")[2]: tag for tag in found.Tags()[SCALARS]}
    return {
        key: _finite((event.step, event.value) for event in found.Scalars(by_name[key]))
        for key in _NAMES
        if key in by_name
    }


def _finite(points: object) -> tuple[tuple[int, float], ...]:
    return tuple((int(step), float(value)) for step, value in points if value is not None and math.isfinite(value))  # type: ignore[attr-defined]

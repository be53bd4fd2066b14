"""What a training measured at each step, also while it still runs.

Belongs here: reading curves. Does not: which trainings there are (`nights`), drawing (`studio`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ec1.home import Home
from ec1.night.steps.log_book import find_run
from ec1.training.spec import METRICS

_EVENTS = "tensorboard"
_NAMES = ("loss", "reward", "answered_right", "grad_norm", "learning_rate", "tokens_per_second", "peak_memory_gib")


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


def _of_events(folder: object) -> dict[str, tuple[tuple[int, float], ...]]:
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

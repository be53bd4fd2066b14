"""What small trainings in tests share: their words, and starting one in this process."""

import sys
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from ec1.launch.reporting import JsonLinesReporter
from ec1.training.spec import METRICS, TrainingResult, TrainingSpec
from ec1.training.trainer import train

if TYPE_CHECKING:
    from transformers import TrainerCallback

ROWS = 12
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "ledge")
HELD_OUT = ("marsh", "notch", "oasis")


def messages(role: str, text: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def run(spec: TrainingSpec, *callbacks: "TrainerCallback") -> TrainingResult:
    return train(spec, JsonLinesReporter(sys.stderr), extra_callbacks=callbacks)


def run_until(spec: TrainingSpec, step: int) -> None:
    """Start one that is asked to end during a step, as a signal handler asks: `train` raises what says so."""
    from transformers import TrainerCallback

    class StopAfter(TrainerCallback):
        monitor: Any = None

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == step - 1:
                self.monitor.stop_requested = True

    stopper = StopAfter()
    train(
        spec,
        JsonLinesReporter(sys.stderr),
        on_monitor=lambda monitor: setattr(stopper, "monitor", monitor),
        extra_callbacks=[stopper],
    )


def losses(spec: TrainingSpec) -> list[float]:
    column: list[float] = pq.read_table(spec.output / METRICS)["loss"].to_pylist()
    return column

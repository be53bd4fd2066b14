"""What small trainings in tests share: their words, and starting one in this process."""

import sys
from typing import TYPE_CHECKING

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


def losses(spec: TrainingSpec) -> list[float]:
    column: list[float] = pq.read_table(spec.output / METRICS)["loss"].to_pylist()
    return column

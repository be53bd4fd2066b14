"""Experiment trackers: TensorBoard beside every run, and MLflow, Weights & Biases or trackio where a deployment asks.

Belongs here: which of them, where their files go, and that nothing leaves this machine unless it is configured. Does
not: what is logged (`monitor.py`), and what decides about an adapter: no tracker is ever read.

All of them write files below one folder by default. A server is named in the environment that EC1 is started with,
with the tracker's own variables (`MLFLOW_TRACKING_URI`, `WANDB_MODE`, ...), which win over these defaults.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ec1.errors import InputError

if TYPE_CHECKING:
    from transformers import TrainerCallback

Tracker = Literal["mlflow", "wandb", "trackio"]
TENSORBOARD = "tensorboard"
"""Folder of event files, in a training's output folder."""
PROJECT = "ec1"


def local_environment(folder: Path) -> dict[str, str]:
    """Variables that keep every tracker on this machine, with its files below `folder`."""
    return {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "MLFLOW_EXPERIMENT_NAME": PROJECT,
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_PROJECT": PROJECT,
        "WANDB_SILENT": "true",
        "TRACKIO_DIR": str(folder / "trackio"),
    }


def check_trackers(trackers: Sequence[Tracker]) -> None:
    """Raise InputError if a tracker that a deployment names is not installed."""
    for tracker in trackers:
        if find_spec(tracker) is None:
            raise InputError(
                f"tracking: {tracker} is not installed: `pip install {tracker}`, or take it out of the deployment's "
                "`tracking`"
            )


def tracking_callbacks(trackers: Sequence[Tracker], folder: Path, from_step: int) -> "list[TrainerCallback]":
    """What Trainer calls with each step's figures. `from_step`: later ones of an earlier process are removed."""
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import MLflowCallback, TensorBoardCallback, TrackioCallback, WandbCallback

    others = {"mlflow": MLflowCallback, "wandb": WandbCallback, "trackio": TrackioCallback}
    folder.mkdir(parents=True, exist_ok=True)
    # Its figures are written when the file is closed or the queue is full; a killed run should show how far it came.
    writer = SummaryWriter(log_dir=str(folder), purge_step=from_step + 1, flush_secs=10)
    return [TensorBoardCallback(writer), *(others[tracker]() for tracker in trackers)]

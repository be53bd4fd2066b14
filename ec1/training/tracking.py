"""Experiment trackers: TensorBoard beside every run, and MLflow, Weights & Biases or trackio where a deployment asks.

Belongs here: which of them, where their files go, and that nothing leaves this machine unless it is configured. Does
not: what is logged of a training (`monitor.py`) and of its verdict (`tracked_verdict.py`), and what decides about an
adapter: no tracker is ever asked.

All of them write files below one folder by default. A server is named in the environment that EC1 is started with,
with the tracker's own variables (`MLFLOW_TRACKING_URI`, `WANDB_MODE`, ...), which win over these defaults.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ec1.errors import InputError

if TYPE_CHECKING:
    from transformers import TrainerCallback

Tracker = Literal["mlflow", "wandb", "trackio"]
TENSORBOARD = "tensorboard"
"""Folder of event files, in a training's output folder."""
PROJECT = "ec1"


def local_environment(folder: Path, run: str) -> dict[str, str]:
    """Variables that keep every tracker on this machine, with its files below `folder`. `run` is the run's id where a
    tracker takes one: all that is said of one training is said of one run."""
    return {
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "MLFLOW_EXPERIMENT_NAME": PROJECT,
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_PROJECT": PROJECT,
        "WANDB_SILENT": "true",
        "WANDB_RUN_ID": run,
        "WANDB_RESUME": "allow",
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


def tracking_callbacks(
    trackers: Sequence[Tracker], folder: Path, from_step: int, settings: Mapping[str, Any]
) -> "list[TrainerCallback]":
    """What Trainer calls with each step's figures. `from_step`: later ones of an earlier process are removed.

    `settings`, nested, is what the training was asked for: it stands in every tracker beside what Trainer itself logs,
    which knows neither the recipe nor the data.
    """
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import MLflowCallback, TensorBoardCallback, TrackioCallback, WandbCallback

    others = {"mlflow": MLflowCallback, "wandb": WandbCallback, "trackio": TrackioCallback}
    folder.mkdir(parents=True, exist_ok=True)
    # Its figures are written when the file is closed or the queue is full; a killed run should show how far it came.
    writer = SummaryWriter(log_dir=str(folder), purge_step=from_step + 1, flush_secs=10)
    writer.add_text(PROJECT, "\n".join(f"    {name}: {value}" for name, value in _flat(settings).items()))
    # Each tracker begins its run before it is told.
    return [TensorBoardCallback(writer), *(others[tracker]() for tracker in trackers), _telling(trackers, settings)]


def _telling(trackers: Sequence[Tracker], settings: Mapping[str, Any]) -> "TrainerCallback":
    """Adds the settings to the run that each tracker has begun."""
    from transformers import TrainerCallback

    told = {f"{PROJECT}/{name}": value for name, value in _flat(settings).items()}

    class TellingCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            for tracker in trackers:
                library = import_module(tracker)
                if tracker == "mlflow":
                    library.log_params(told)
                else:
                    library.config.update(told, allow_val_change=True)

    return TellingCallback()


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`{"lora": {"r": 8}}` as `{"lora.r": 8}`; lists as text, for a tracker shows numbers and text."""
    from transformers.utils import flatten_dict

    found = flatten_dict(settings, delimiter=".")
    return {name: value if isinstance(value, int | float) else str(value) for name, value in found.items()}

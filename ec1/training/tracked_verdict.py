"""What the gate said of a training, in the run that each experiment tracker has of it.

Run as `python -m ec1.training.tracked_verdict SPEC.json`, in a process of its own: a tracker's library takes seconds to
load, starts threads, and reads its own variables. MLflow and trackio find the run by its name, Weights & Biases by the
id in `WANDB_RUN_ID`; offline it keeps a second folder of that id, and `wandb sync` makes one run of both.
"""

import sys

from pydantic import Field

from ec1.errors import InputError
from ec1.launch.by_spec import run_by_spec
from ec1.settings import Settings
from ec1.training.tracking import PROJECT, Tracker, check_trackers


class TrackedVerdict(Settings):
    """Which trackers are told what."""

    trackers: tuple[Tracker, ...]
    run: str = Field(description="the run's name")
    verdict: str
    figures: dict[str, float] = Field(description="such as gain, the mean score less the base's")


def tell(told: TrackedVerdict) -> None:
    """Tell each tracker. Raises InputError if one is not installed or has no such run."""
    check_trackers(told.trackers)
    figures = {f"gate/{name}": value for name, value in told.figures.items()}
    for tracker in told.trackers:
        {"mlflow": _mlflow, "wandb": _wandb, "trackio": _trackio}[tracker](told, figures)


def _mlflow(told: TrackedVerdict, figures: dict[str, float]) -> None:
    import mlflow

    client = mlflow.MlflowClient()
    experiments = [each.experiment_id for each in client.search_experiments()]
    runs = client.search_runs(
        experiments, f"attributes.run_name = '{told.run}'", order_by=["attributes.start_time DESC"], max_results=1
    )
    if not runs:
        raise InputError(f"mlflow has no run {told.run!r}")
    client.set_tag(runs[0].info.run_id, "gate/verdict", told.verdict)
    for name, value in figures.items():
        client.log_metric(runs[0].info.run_id, name, value)


def _wandb(told: TrackedVerdict, figures: dict[str, float]) -> None:
    import wandb

    with wandb.init(name=told.run) as run:
        run.summary.update({"gate/verdict": told.verdict, **figures})


def _trackio(told: TrackedVerdict, figures: dict[str, float]) -> None:
    import trackio

    # It takes a run's settings anew: those that it has, or none.
    had = next((each for each in trackio.Api().runs(PROJECT) if each.name == told.run), None)
    if had is None:
        raise InputError(f"trackio has no run {told.run!r}")
    settings = {name: value for name, value in (had.config or {}).items() if not name.startswith("_")}
    run = trackio.init(project=PROJECT, name=told.run, resume="must", config=settings)
    run.log({"gate/verdict": told.verdict, **figures})
    run.finish()  # type: ignore[no-untyped-call, unused-ignore]


if __name__ == "__main__":
    sys.exit(run_by_spec("ec1.training.tracked_verdict", TrackedVerdict, sys.argv[1:], tell))

"""Where trainings and evaluations run, as a deployment sets it. The settings of each kind stand beside its launcher."""

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from ec1.extensions import or_extension
from ec1.launch.kubernetes_launcher import KubernetesLauncherSettings
from ec1.launch.launcher import LocalLauncherSettings
from ec1.launch.ray_launcher import RayLauncherSettings
from ec1.launch.slurm_launcher import SlurmLauncherSettings
from ec1.launch.ssh_launcher import SshLauncherSettings
from ec1.launch.worker_launcher import WorkerLauncherSettings
from ec1.settings import Settings


def _by_kind(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


LauncherSettings = Annotated[
    Annotated[
        LocalLauncherSettings
        | WorkerLauncherSettings
        | SshLauncherSettings
        | RayLauncherSettings
        | KubernetesLauncherSettings
        | SlurmLauncherSettings,
        Field(discriminator="kind"),
    ],
    or_extension("ec1.launchers"),
    BeforeValidator(_by_kind),
]
"""Where trainings and evaluations run. A name alone, such as `worker`, is that kind with its defaults."""


class WorkerSettings(Settings):
    """`ec1 worker`, and what the night expects of it: the same on both sides."""

    poll_seconds: float = Field(30, gt=0, description="seconds between two looks for markers")
    beat_seconds: float = Field(15, gt=0, description="seconds between two heartbeats of a claim")
    expire_seconds: float = Field(
        180, gt=0, description="a claim that was silent for so long is taken up by another worker; several beats"
    )
    max_attempts: int = Field(3, gt=0, description="a marker whose workers died so often is given up")
    keep_days: float = Field(14, gt=0, description="days that files which travelled are kept, on both sides")

    @model_validator(mode="after")
    def _several_beats(self) -> "WorkerSettings":
        if self.expire_seconds < 3 * self.beat_seconds:
            raise ValueError("expire_seconds must be at least three times beat_seconds: one beat may be late")
        return self

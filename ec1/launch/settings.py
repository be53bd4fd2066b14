"""This machine's device, and where trainings and evaluations run."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from ec1.settings import Name, Settings


class GpuSettings(Settings):
    """This machine's device. `name`, `memory_gib`, `tokens_per_second` and `cost_per_hour` are for the plan only."""

    device: Literal["cuda", "cpu"] = Field("cuda", description="where models are served and trained")
    lock: Path | None = Field(
        None,
        description="one file for all that share a card; default: on `cuda` `ec1-gpu.lock` in lock_dir, on a CPU "
        "`<home>/gpu.lock`. With several cards, one for each",
    )
    lock_dir: Path | None = Field(
        None,
        description="folder of that lock, the same for all homes; default /run/lock, or /tmp where not all may write",
    )
    min_free_gib: float = Field(
        20.0, ge=0, description="measured free memory that a phase needs before it starts; 20–22 for a card of 24 GiB"
    )
    name: str = Field("NVIDIA L4", description="the card's name")
    memory_gib: float = Field(24.0, gt=0, description="the card's memory")
    tokens_per_second: float = Field(
        900.0, gt=0, description="training tokens per second, measured; 700–1200 for a 7B on an L4"
    )
    cost_per_hour: float = Field(0.0, ge=0, description="USD, of all cards that a training takes")
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="that share one training, each on a card of its own; the steps have the same rows as with one "
        "(docs/server.md). Without Ray they are the machine's first cards, and the lock stands for all of them",
    )
    fsdp: bool = Field(
        False, description="each of several processes holds a part of the model: for one that does not fit a card"
    )

    @model_validator(mode="after")
    def _parts_of_a_whole(self) -> "GpuSettings":
        if self.fsdp and self.processes == 1:
            raise ValueError("fsdp spreads a model over several cards: set processes to their number, or leave it out")
        return self

    @field_validator("lock_dir")
    @classmethod
    def _the_machine_s(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError(f"{value} is relative: all homes of the machine must mean the same folder")
        return value


class LocalLauncherSettings(Settings):
    """`kind: local`: a process on this machine."""

    kind: Literal["local"] = Field("local", description="chooses this section")


class WorkerLauncherSettings(Settings):
    """`kind: worker`: the night puts markers into the store, and `ec1 worker` on another machine does the work."""

    kind: Literal["worker"] = Field("worker", description="chooses this section")
    wait_seconds: float = Field(
        14400, gt=0, description="how long work may wait for a worker, and after one that died for the next"
    )
    follow_seconds: float = Field(5, gt=0, description="seconds between two looks at how far it is")


class SshLauncherSettings(Settings):
    """`kind: ssh`: a machine that ssh reaches, with EC1 of the same version and a deployment for its device."""

    kind: Literal["ssh"] = Field("ssh", description="chooses this section")
    host: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*$",
        description="as ssh knows it: `name`, `user@name`, a `Host`; default: the `machine` that is booted for nights, "
        "at the address that it has then",
    )
    options: tuple[str, ...] = Field(
        (), description="further options of ssh, such as `-p` and `2222`, or `-l` and the user's name"
    )
    python: str = Field(description="the Python of EC1 there, such as /opt/ec1/.venv/bin/python")
    folder: str = Field(pattern="^/", description="where the work is kept there, such as /var/lib/ec1-work")
    deployment: Name | None = Field(None, description="its deployment; default: of the same name as this one")
    project: str | None = Field(None, description="its EC1_PROJECT; default: the checkout there")
    wait_seconds: float = Field(14400, gt=0, description="how long work may wait for the machine's worker")
    follow_seconds: float = Field(5, gt=0, description="seconds between two looks at how far it is")


class RayLauncherSettings(Settings):
    """`kind: ray`: jobs of a Ray cluster, whose nodes see the home at the same place and have EC1 installed alike."""

    kind: Literal["ray"] = Field("ray", description="chooses this section")
    address: str = Field("http://127.0.0.1:8265", description="of the cluster's dashboard, which takes jobs")
    retries: int = Field(
        3, ge=0, le=100, description="how often work is started again whose node or process was lost; typically 1–5"
    )
    cpus: float = Field(1, ge=0, description="CPUs that Ray sets aside for one work, beside its card; typically 1–8")


def _by_kind(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


LauncherSettings = Annotated[
    Annotated[
        LocalLauncherSettings | WorkerLauncherSettings | SshLauncherSettings | RayLauncherSettings,
        Field(discriminator="kind"),
    ],
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

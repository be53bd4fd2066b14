"""A GPU machine that is booted for nights, as a deployment sets it."""

import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from ec1.extensions import or_extension
from ec1.machines.cloud import Cloud
from ec1.settings import Settings


class MachineSettings(Settings):
    """A machine of any cloud, which is started when a night needs it and stopped after use. `gpu` then describes its
    card and its price."""

    zones: tuple[str, ...] = Field(
        min_length=1, description="tried in this order until one has the machine, such as [us-central1-a, us-east4-c]"
    )
    instance: str = Field(
        "ec1-gpu", pattern="^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", description="its name, the same in each zone"
    )
    template: str | None = Field(
        None,
        description="instance template that it is created from where a zone has none, such as "
        "`projects/P/global/instanceTemplates/ec1-gpu-1`; without it such a zone is left out",
    )
    weights: PurePosixPath = Field(
        PurePosixPath("/data/weights"), description="folder on the machine with a folder for each model id"
    )
    engine_port: int = Field(8000, gt=0, lt=65536, description="where its inference server answers")
    ready_timeout_seconds: float = Field(5400, gt=0, description="how long it may take to boot and load the model")
    poll_seconds: float = Field(10, gt=0, description="seconds between two readiness checks")
    dead_man_seconds: int = Field(
        900, ge=60, description="it powers itself off when it has not heard of a phase for so long; typically 600–1800"
    )
    max_lifetime_seconds: int = Field(
        21600, ge=600, le=7 * 86400, description="so long after a start Google stops it, whatever happened to us"
    )
    daily_cost: float = Field(gt=0, description="USD that its running time may cost in one calendar day")
    daily_starts: int = Field(4, gt=0, description="how often it may be asked for in one calendar day")

    @field_validator("zones")
    @classmethod
    def _named_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("a zone is named twice")
        return value

    @model_validator(mode="after")
    def _dead_man_outlives_a_check(self) -> "MachineSettings":
        if self.poll_seconds * 3 > self.dead_man_seconds:
            raise ValueError("dead_man_seconds must be at least three times poll_seconds")
        return self

    def open(self, sleep: Callable[[float], None]) -> Cloud:
        """The client of the cloud. `sleep` waits so many seconds. Raises ServiceError without credentials."""
        raise NotImplementedError


class GceSettings(MachineSettings):
    """`kind: gce`: the GPU is in a virtual machine of Google Compute Engine, which is started when a night needs it and
    stopped after use (docs/gce.md). `gpu` then describes its card and its price."""

    kind: Literal["gce"] = Field(description="chooses this section")
    project: str = Field(pattern="^[a-z][a-z0-9-]{4,28}[a-z0-9]$", description="id of the Google Cloud project")
    endpoint: str | None = Field(None, description="address of an emulator on loopback; default: Google's")

    @field_validator("zones")
    @classmethod
    def _zones(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for zone in value:
            if not re.fullmatch("[a-z]+-[a-z]+[0-9]+-[a-z]", zone):
                raise ValueError(f"{zone!r} is not a zone, such as us-central1-a")
        return value

    def open(self, sleep: Callable[[float], None]) -> Cloud:
        from ec1.machines.compute import ComputeClient

        return ComputeClient(self.project, self.endpoint, sleep=sleep)


MachineChoice = Annotated[GceSettings, or_extension("ec1.machines")]
"""The machines that a deployment can choose from."""

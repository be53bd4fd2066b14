"""This machine's device, as a deployment sets it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from ec1.settings import Settings


class GpuSettings(Settings):
    """This machine's device. `name`, `memory_gib`, `tokens_per_second` and `cost_per_hour` are for the plan only."""

    device: Literal["cuda", "cpu"] = Field("cuda", description="where models are served and trained")
    lock: Path | None = Field(
        None,
        description="one file for all that share a card; default: on `cuda` `ec1-gpu.lock` in lock_dir, on a CPU "
        "`<home>/gpu.lock`; of a further card `ec1-gpu-<index>.lock`",
    )
    index: Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern="^GPU-")] = Field(
        0, description="the card, or the first of `processes`: its number in nvidia-smi, or its UUID (nvidia-smi -L)"
    )
    visible: str | None = Field(
        None,
        description="the cards that EC1 may use, among which a number of `index` then counts; "
        "default: `CUDA_VISIBLE_DEVICES`, if that is set",
    )
    lock_dir: Path | None = Field(
        None,
        description="folder of that lock, the same for all homes; default /run/lock, or /tmp where not all may write",
    )
    min_free_gib: float = Field(
        20.0, ge=0, description="measured free memory that a phase needs before it starts; 20–22 for a card of 24 GiB"
    )
    name: str = Field("NVIDIA L4", description="the card's name; default: what the card here says, and else this")
    memory_gib: float = Field(24.0, gt=0, description="the card's memory; default: likewise")
    tokens_per_second: float = Field(
        900.0, gt=0, description="training tokens per second, measured; 700–1200 for a 7B on an L4"
    )
    cost_per_hour: float = Field(0.0, ge=0, description="USD, of all cards that a training takes")
    processes: int = Field(
        1,
        ge=1,
        le=64,
        description="that share one training, each on a card of its own; the steps have the same rows as with one "
        "(docs/server.md). Without Ray they are `index` and the cards after it",
    )
    fsdp: bool = Field(
        False, description="each of several processes holds a part of the model: for one that does not fit a card"
    )

    @model_validator(mode="after")
    def _parts_of_a_whole(self) -> "GpuSettings":
        if self.fsdp and self.processes == 1:
            raise ValueError("fsdp spreads a model over several cards: set processes to their number, or leave it out")
        if self.processes > 1 and isinstance(self.index, str):
            raise ValueError("index is the UUID of one card: name the first of several by its number")
        return self

    @field_validator("lock_dir")
    @classmethod
    def _the_machine_s(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_absolute():
            raise ValueError(f"{value} is relative: all homes of the machine must mean the same folder")
        return value

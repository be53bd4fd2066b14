"""The handover: proof that phase 1 is over and its inference server gone, without which phase 2 does not start."""

import datetime as dt
from dataclasses import dataclass

from ec1.errors import InputError
from ec1.gpu.lease import Grant
from ec1.home import Home
from ec1.night.records import Records


@dataclass(frozen=True)
class Handover:
    """One proof. `swept` counts processes of a crashed server that had to be killed."""

    night: str
    device: str
    free_gib: float
    total_gib: float
    swept: int
    at: str


def hand_over(grant: Grant, home: Home, night: str, run: str) -> Handover:
    """Write the proof. Holding the lease is the proof: no process of an earlier holder lives, the card is free."""
    memory = grant.memory
    handover = Handover(
        night,
        memory.name,
        round(memory.free_gib, 3),
        round(memory.total_gib, 3),
        len(grant.swept),
        dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    Records(home.night(night)).write("gpu_handover", run, dict(vars(handover)))
    return handover


def require_handover(home: Home, night: str) -> None:
    """Raises InputError if phase 1 of this night has not handed the GPU over.

    Asset dependencies order steps inside one run only; a training asset that is started alone asks here.
    """
    if Records(home.night(night)).find("gpu_handover") is None:
        raise InputError(
            f"phase 1 of night {night} has not handed the GPU over: materialise `gpu_handover` of that night first"
        )

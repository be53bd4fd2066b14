"""The handover: proof that phase 1 is over and its inference server gone, without which phase 2 does not start."""

from ec1.errors import InputError
from ec1.gpu.cards import Card
from ec1.home import Home
from ec1.night.records import HandoverRecord, Records


def hand_over(memory: Card, swept: int, home: Home, night: str, run: str) -> HandoverRecord:
    """Write the proof, while the lease is held: no process of an earlier holder lives (`swept` had to be killed), and
    so much memory is free on the card."""
    handover = HandoverRecord(
        night=night,
        device=memory.name,
        free_gib=round(memory.free_gib, 3),
        total_gib=round(memory.total_gib, 3),
        swept=swept,
    )
    Records(home.night(night)).write(run, handover)
    return handover


def require_handover(home: Home, night: str) -> None:
    """Raises InputError if phase 1 of this night has not handed the GPU over.

    Asset dependencies order steps inside one run only; a training asset that is started alone asks here.
    """
    if Records(home.night(night)).find(HandoverRecord) is None:
        raise InputError(
            f"phase 1 of night {night} has not handed the GPU over: materialise `gpu_handover` of that night first"
        )

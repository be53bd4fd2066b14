"""The GPU machine that a deployment boots for its nights: made from its settings and its home, and what a night used.

Belongs here: how settings become a machine, and the record. Does not: the machine itself (`ec1.machines`).
"""

import socket
from pathlib import Path

from ec1.deployment import Deployment, SshLauncherSettings, VllmSettings
from ec1.errors import EC1Error
from ec1.gpu.engine import VllmEngine
from ec1.home import Home
from ec1.machines.machine import Machine, Place, Progress
from ec1.night.records import MachineRecord


def machine_of(deployment: Deployment, home: Home) -> Machine | None:
    """The machine, or None where the GPU is in this one. Asks nobody anything."""
    if deployment.machine is None:
        return None
    place = Place(home.machine, home.machine_off, deployment.zone, f"{deployment.name}@{socket.gethostname()}")
    gpu = deployment.gpu
    return Machine(deployment.machine, place, usd_per_hour=gpu.cost_per_hour, min_free_gib=gpu.min_free_gib)


def is_kept(deployment: Deployment) -> bool:
    """Whether phase 2 may use the machine too, so that it stays up after phase 1: a launcher that reaches it by ssh."""
    return isinstance(deployment.launcher, SshLauncherSettings)


def engine_arguments(deployment: Deployment) -> list[str]:
    """The inference server's arguments on the machine, where a folder is named after each model id."""
    model, machine = deployment.inference, deployment.machine
    assert isinstance(model, VllmSettings) and machine is not None
    weights = Path(machine.weights / model.model.replace("/", "--"))
    return VllmEngine(model, weights, model.model, "cuda").arguments()


def stop_after_run(machine: Machine, progress: Progress) -> str | None:
    """Stop the machine if nobody needs it any more. Returns why it could not be stopped, or None."""
    try:
        machine.stop_unused(progress)
    except EC1Error as error:
        return (
            f"the GPU machine may still run ({error}): `ec1 doctor --reconcile` tries again, and without hearing of us "
            f"it powers itself off after {machine.settings.dead_man_seconds} s"
        )
    return None


def used_by(machine: Machine, night: str, problem: str | None = None) -> MachineRecord | None:
    """What a night used of the machine so far; None if it never asked for it."""
    now = machine.clock()
    book = machine.ledger.read()
    asks = [each for each in book.asks if each.night == night]
    sessions = [each for each in book.sessions if each.night == night and each.running is not None]
    if not asks and not sessions and problem is None:
        return None
    phases: dict[str, float] = {}
    for each in sessions:
        for phase, seconds in each.phases.items():
            phases[phase] = phases.get(phase, 0.0) + seconds
    return MachineRecord(
        seconds=round(sum(each.seconds(now) for each in sessions), 1),
        usd_per_hour=machine.ledger.usd_per_hour,
        boots=len(sessions),
        lost=sum(each.end == "lost" for each in sessions),
        zones=sorted({each.zone for each in sessions}),
        phases=phases,
        refused=[each.outcome for each in asks if not each.outcome.startswith("started")],
        problem=problem,
    )

"""The GPU machine that a deployment boots for its nights: made from its settings and its home, what runs there, and
what a night used.

Belongs here: how settings become a machine and phase 2's way to it, when a night no longer needs it, and the record.
Does not: the machine itself (`ec1.machines`).
"""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from ec1.deployment import Deployment
from ec1.errors import DeferredError, EC1Error, InputError, PermanentError, ServiceError
from ec1.files import atomic_file
from ec1.gpu.engine import VllmEngine
from ec1.gpu.settings import VllmSettings
from ec1.home import Home
from ec1.launch.launcher import DeviceGrant, Launcher
from ec1.launch.ssh_launcher import SshLauncherSettings
from ec1.machines.installation import Installation
from ec1.machines.machine import Machine
from ec1.machines.running import Progress, Running
from ec1.night.launchers import place_of
from ec1.night.records import (
    DecisionRecord,
    EvaluationRecord,
    MachineRecord,
    OutcomeRecord,
    PostponedRecord,
    Records,
)
from ec1.storage.ssh import SshHost

TrainingPhase = Literal["training", "evaluation"]


def machine_of(deployment: Deployment, home: Home) -> Machine | None:
    """The machine, or None where the GPU is in this one. Asks nobody anything."""
    if deployment.machine is None:
        return None
    place = Installation(home.machine, home.machine_off, deployment.zone, f"{deployment.name}@{socket.gethostname()}")
    gpu = deployment.gpu
    return Machine(deployment.machine, place, usd_per_hour=gpu.cost_per_hour, min_free_gib=gpu.min_free_gib)


@contextlib.contextmanager
def machine_launcher(
    deployment: Deployment, home: Home, machine: Machine, phase: TrainingPhase, night: str, progress: Progress
) -> Iterator[Launcher]:
    """The launcher to the machine, which is booted if need be, and stays up when the block ends.

    Raises as `Machine.up`; DeferredError also when the machine goes in the middle.
    """
    settings, failed = deployment.launcher, None
    assert isinstance(settings, SshLauncherSettings)
    with machine.up(phase, night, keep=True, progress=progress) as running:
        running.end_engine(progress)

        def watch() -> None:
            if why := running.lost():
                raise DeferredError(why)

        host = SshHost(running.address, [*settings.options, *_known(running, home)], gone=running.lost)
        try:
            yield settings.launcher(place_of(deployment, home, _held_there), host, watch=watch, alone=True)
        except (InputError, PermanentError) as error:
            # A training that fails says nothing against the machine, and the next recipe may need it.
            failed = error
        except ServiceError:
            with contextlib.suppress(EC1Error):
                running.beat()
            watch()
            raise
    if failed is not None:
        raise failed


def _held_there() -> AbstractContextManager[DeviceGrant]:
    raise PermanentError("work for the machine takes the lease there, never here")


def _known(running: Running, home: Home) -> list[str]:
    """Options that let ssh know the machine by the keys that it reported: its address may have been another one's.

    What the operator's own options say of it goes before these.
    """
    report = running.report()
    keys = report.host_keys if report is not None else ()
    known = home.machine / "known_hosts"
    with atomic_file(known) as temporary:
        temporary.write_text("".join(f"{running.name} {key}\n" for key in keys), encoding="utf-8")
    return [f"-oHostKeyAlias={running.name}", f"-oUserKnownHostsFile={known}", "-oStrictHostKeyChecking=yes"]


def stop_if_done(
    machine: Machine, home: Home, night: str, run: str, recipes: Sequence[tuple[str, str]], progress: Progress
) -> None:
    """Stop the machine before the run ends, if each of these recipes (tenant, role) has decided and nothing is left to
    train or to evaluate. If it cannot be stopped now, the end of the run tries again."""
    for tenant, role in recipes:
        records = Records(home.run(tenant, role, night))
        decided = records.find(DecisionRecord, run)
        over = (PostponedRecord, EvaluationRecord, OutcomeRecord)
        if decided is None or (decided.decision.train and not any(records.find(kind, run) for kind in over)):
            return
    with contextlib.suppress(EC1Error):
        machine.stop_unused(progress, reserved=False)


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

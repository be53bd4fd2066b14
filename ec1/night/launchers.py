"""Opens the launcher that a deployment names, and what works for others on this machine."""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.gpu.lease import Phase
from ec1.home import Home
from ec1.launch.executor import MODULES, Executor
from ec1.launch.launcher import DeviceGrant, Launcher, Place
from ec1.launch.markers import PendingMarkers
from ec1.launch.orders import Order
from ec1.launch.worker import MarkerWorker
from ec1.night.stores import open_store
from ec1.storage.store import ObjectStore

Hold = Callable[[], AbstractContextManager[DeviceGrant]]


def open_launcher(deployment: Deployment, home: Home, hold: Hold) -> Launcher:
    """The launcher that a deployment names. `hold` takes the lease of this machine's GPU, for work that runs here."""
    return deployment.launcher.open(place_of(deployment, home, hold))


def place_of(deployment: Deployment, home: Home, hold: Hold) -> Place:
    """What a launcher of the deployment is opened with."""
    return Place(
        hold=hold,
        gpu=deployment.gpu,
        lease_wait_seconds=deployment.budgets.lease_wait_seconds,
        open_store=lambda: open_store(deployment.store, home),
        open_markers=lambda store: open_markers(deployment, store),
        keep_days=deployment.worker.keep_days,
        deployment=deployment.name,
        checkpoints=home.cache / "checkpoints",
    )


def open_markers(deployment: Deployment, store: ObjectStore) -> PendingMarkers:
    """The markers in a store, under the deployment's rules for claims."""
    rules = deployment.worker
    return PendingMarkers(store, expire_seconds=rules.expire_seconds, max_attempts=rules.max_attempts)


def open_worker(
    deployment: Deployment,
    home: Home,
    store: ObjectStore,
    env: Mapping[str, str],
    modules: frozenset[str] = MODULES,
    only: str | None = None,
) -> MarkerWorker:
    """A worker for this machine's device, whose work takes the lease as a night's does: trainings on as many cards as
    `gpu.processes`, all else on one. `only` as for `MarkerWorker`."""
    name = f"{socket.gethostname()[:64]}-{os.getpid()}"
    gpu = deployment.gpu
    all_cards, one_card = (deployment.gpu_lease(home, processes=count) for count in (gpu.processes, 1))

    def hold(order: Order) -> AbstractContextManager[DeviceGrant]:
        trains = order.module == "ec1.training"
        wanted = order.specification.get("processes", 1) if trains else 1
        if wanted > gpu.processes:
            raise InputError(
                f"{order.what} is for {wanted} processes, and this worker's deployment gives it {gpu.processes} "
                "(gpu.processes): set the same on both sides"
            )
        phase: Phase = "training" if trains else "evaluation"
        wait = deployment.budgets.lease_wait_seconds
        lease = all_cards if wanted > 1 else one_card
        return lease.hold(phase, night="", holder=f"ec1 worker {name}", wait_seconds=wait)

    executor = Executor(store, home.cache / "worker", hold, env, name=name, modules=modules)
    executor.prune(deployment.worker.keep_days)
    markers = open_markers(deployment, store)
    beat = deployment.worker.beat_seconds
    busy = all_cards.why_busy
    return MarkerWorker(markers, executor, name=name, device=gpu.device, beat_seconds=beat, busy=busy, only=only)

"""Opens the launcher that a deployment names, and what works for others on this machine.

A new kind: its settings in `ec1/launch/settings.py`, its launcher in `ec1/launch/`, and a line in `_FACTORIES`.
"""

import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ec1.deployment import Deployment
from ec1.gpu.lease import GpuLease, Phase
from ec1.home import Home
from ec1.launch.executor import MODULES, Executor
from ec1.launch.launcher import Grant, Launcher, LocalLauncher
from ec1.launch.markers import PendingMarkers
from ec1.launch.orders import Order
from ec1.launch.ray_launcher import RayLauncher
from ec1.launch.ssh_launcher import SshLauncher
from ec1.launch.worker import Worker
from ec1.launch.worker_launcher import WorkerLauncher
from ec1.night.stores import open_store
from ec1.storage.ssh import SshHost, SshStore
from ec1.storage.store import ObjectStore

Hold = Callable[[], AbstractContextManager[Grant]]


def open_launcher(deployment: Deployment, home: Home, hold: Hold) -> Launcher:
    """The launcher that a deployment names. `hold` takes the lease of this machine's GPU, for work that runs here."""
    return _FACTORIES[deployment.launcher.kind](deployment, home, hold)


def _local(deployment: Deployment, home: Home, hold: Hold) -> Launcher:
    return LocalLauncher(hold)


def _worker(deployment: Deployment, home: Home, hold: Hold) -> Launcher:
    settings: Any = deployment.launcher
    return WorkerLauncher(
        open_markers(deployment, open_store(deployment.store, home)),
        wait_seconds=settings.wait_seconds,
        follow_seconds=settings.follow_seconds,
        keep_days=deployment.worker.keep_days,
    )


def _ssh(deployment: Deployment, home: Home, hold: Hold) -> Launcher:
    settings: Any = deployment.launcher
    return ssh_launcher(deployment, SshHost(settings.host, settings.options))


def ssh_launcher(
    deployment: Deployment, host: SshHost, *, watch: Callable[[], None] = lambda: None, alone: bool = False
) -> Launcher:
    """The launcher to a host, by the deployment's `launcher` of kind ssh; the rest as for `SshLauncher`."""
    settings: Any = deployment.launcher
    store = f"{settings.folder}/store"
    choice = ["--deployment", settings.deployment or deployment.name, "--home", f"{settings.folder}/home"]
    if settings.project is not None:
        choice += ["--project", settings.project]
    return SshLauncher(
        host,
        settings.folder,
        open_markers(deployment, SshStore(host, store)),
        [settings.python, "-m", "ec1.cli", *choice, "worker", "--folder", store],
        wait_seconds=settings.wait_seconds,
        follow_seconds=settings.follow_seconds,
        keep_days=deployment.worker.keep_days,
        watch=watch,
        alone=alone,
    )


def _ray(deployment: Deployment, home: Home, hold: Hold) -> Launcher:
    settings: Any = deployment.launcher
    return RayLauncher(settings, deployment.gpu, deployment.budgets.lease_wait_seconds)


_FACTORIES: dict[str, Callable[[Deployment, Home, Hold], Launcher]] = {
    "local": _local,
    "worker": _worker,
    "ssh": _ssh,
    "ray": _ray,
}


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
) -> Worker:
    """A worker for this machine's device, whose work takes the lease as a night's does."""
    name = f"{socket.gethostname()[:64]}-{os.getpid()}"
    gpu = deployment.gpu
    lease = GpuLease(deployment.gpu_lock(home), device=gpu.device, min_free_gib=gpu.min_free_gib)

    def hold(order: Order) -> AbstractContextManager[Grant]:
        phase: Phase = "training" if order.module == "ec1.training" else "evaluation"
        wait = deployment.budgets.lease_wait_seconds
        return lease.hold(phase, night="", holder=f"ec1 worker {name}", wait_seconds=wait)

    executor = Executor(store, home.cache / "worker", hold, env, name=name, modules=modules)
    executor.prune(deployment.worker.keep_days)
    markers = open_markers(deployment, store)
    return Worker(markers, executor, name=name, device=gpu.device, beat_seconds=deployment.worker.beat_seconds)

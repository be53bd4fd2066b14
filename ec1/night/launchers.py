"""The launcher that a deployment names."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from ec1.deployment import Deployment, RayLauncherSettings
from ec1.launch.launcher import Grant, Launcher, LocalLauncher
from ec1.launch.ray_launcher import RayLauncher


def open_launcher(deployment: Deployment, hold: Callable[[], AbstractContextManager[Grant]]) -> Launcher:
    """Where trainings and evaluations run. `hold` takes the lease of this machine's GPU."""
    if isinstance(deployment.launcher, RayLauncherSettings):
        return RayLauncher(deployment.launcher, deployment.gpu, deployment.budgets.lease_wait_seconds)
    return LocalLauncher(hold)

"""The GPU lease as a Dagster resource."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from ec1.gpu.lease import GpuLease, Grant, Phase
from ec1.launch.launcher import Launcher
from ec1.night.launchers import open_launcher
from resources.project import ProjectResource

GPU_POOL = "gpu"
"""The Dagster pool of every asset that uses the GPU."""

LEASE_WAIT, LEASE_HELD = "lease_wait_seconds", "gpu_seconds"
"""What each step that used the GPU observes of itself, for the night's report and as curves in the UI."""


class GpuResource(dg.ConfigurableResource["GpuResource"]):
    """Holds the lease for an asset, with the run written into it, so that `ec1 doctor` can name who has the card."""

    project: dg.ResourceDependency[ProjectResource]

    def lease(self) -> GpuLease:
        deployment = self.project.deployment()
        if deployment.machine is not None:
            # Its card is elsewhere, and it says itself how much of it is free.
            return GpuLease(deployment.gpu_lock(self.project.home), device="cpu", min_free_gib=0)
        return GpuLease(
            deployment.gpu_lock(self.project.home),
            device=deployment.gpu.device,
            min_free_gib=deployment.gpu.min_free_gib,
            cards=deployment.gpu.processes,
        )

    @contextmanager
    def hold(self, context: dg.AssetExecutionContext, phase: Phase) -> Iterator[Grant]:
        """Hold the lease for this step. Raises BusyError after the deployment's `lease_wait_seconds`."""
        asked, granted = time.monotonic(), None
        try:
            with self.lease().hold(
                phase,
                night=context.partition_key,
                holder=f"run {context.run_id[:8]} step {context.op_execution_context.op.name}",
                wait_seconds=self.project.deployment().budgets.lease_wait_seconds,
                progress=context.log.info,
            ) as grant:
                granted = time.monotonic()
                yield grant
        finally:
            now = time.monotonic()
            seconds = {LEASE_WAIT: (granted or now) - asked, LEASE_HELD: now - granted if granted else 0.0}
            # One step may make several assets: the first speaks for it.
            key = min(context.selected_asset_keys)
            context.log_event(
                dg.AssetObservation(
                    key,
                    partition=context.partition_key,
                    metadata={name: round(value, 1) for name, value in seconds.items()},
                )
            )

    def launcher(self, context: dg.AssetExecutionContext, phase: Phase) -> Launcher:
        """Where this step's training or evaluation runs; on this machine it holds the lease while it does."""
        return open_launcher(self.project.deployment(), self.project.home, lambda: self.hold(context, phase))

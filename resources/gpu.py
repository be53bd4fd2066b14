"""The GPU lease as a Dagster resource."""

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import dagster as dg

from ec1.gpu.lease import GpuLease, Grant, Phase
from ec1.launch.launcher import Launcher
from ec1.night.card_book import Using, card_book, engine_book
from ec1.night.launchers import open_launcher
from resources.project import ProjectResource

if TYPE_CHECKING:
    from ec1.night.machines import TrainingPhase

GPU_POOL = "gpu"
"""The Dagster pool of every asset that uses the GPU."""

LEASE_WAIT, LEASE_HELD, CARDS_COST = "lease_wait_seconds", "gpu_seconds", "cards_usd"
"""What each step that used the GPU observes of itself, for the night's report and as curves in the UI."""


class GpuResource(dg.ConfigurableResource["GpuResource"]):
    """Holds the lease for an asset, with the run written into it, so that `ec1 doctor` can name who has the card."""

    project: dg.ResourceDependency[ProjectResource]

    def lease(self) -> GpuLease:
        deployment = self.project.deployment()
        # Where all is done elsewhere, nobody needs what is free here.
        bound = None if deployment.uses_own_card else 0.0
        return deployment.gpu_lease(self.project.home, processes=deployment.gpu.processes, min_free_gib=bound)

    @contextmanager
    def hold(self, context: dg.AssetExecutionContext, phase: Phase) -> Iterator[Grant]:
        """Hold the lease for this step. Raises BusyError after the deployment's `lease_wait_seconds`."""
        asked, granted, cards = time.monotonic(), None, 1
        try:
            with self.lease().hold(
                phase,
                night=context.partition_key,
                holder=f"run {context.run.run_id[:8]} step {context.op_execution_context.op.name}",
                wait_seconds=self.project.deployment().budgets.lease_wait_seconds,
                progress=context.log.info,
            ) as grant:
                granted, cards = time.monotonic(), len(grant.cards)
                yield grant
        finally:
            now = time.monotonic()
            _observe(context, waited=(granted or now) - asked, held=(now - granted) * cards if granted else 0.0)

    @contextmanager
    def launcher(
        self, context: dg.AssetExecutionContext, phase: "TrainingPhase", *, needs: float = 0.0, at_most: float = 0.0
    ) -> "Iterator[tuple[Launcher, float | None]]":
        """Where this step's training or evaluation runs, and how long it may take there (None: no bound of the place).
        On this machine it holds the lease while it does. `needs` and `at_most` are its seconds.

        A machine that is booted for nights is up and its card free while the block runs. Raises DeferredError if it
        cannot be had, or goes, or the cost of the day does not allow what it needs.
        """
        deployment, home, machine = self.project.deployment(), self.project.home, self.project.machine()
        if machine is None or not deployment.trains_on_machine:
            launcher = open_launcher(deployment, home, lambda: self.hold(context, phase))
            book = card_book(deployment, home)
            if book is None:
                yield launcher, None
                return
            cards = deployment.gpu.processes if phase == "training" else 1
            with book.use(f"the {phase}", context.partition_key, cards, needs=needs, at_most=at_most or needs) as using:
                try:
                    yield using.counted(launcher), using.seconds
                finally:
                    _observe(context, waited=using.waited, held=using.card_seconds)
            return
        from ec1.night.machines import machine_launcher

        with (
            self.hold(context, phase),
            machine_launcher(deployment, home, machine, phase, context.partition_key, context.log.info) as launcher,
        ):
            yield launcher, machine.seconds_left()

    @contextmanager
    def elsewhere(self, context: dg.AssetExecutionContext, what: str, *, cards: int, at_most: float) -> Iterator[Using]:
        """Book cards that are not this machine's while the block runs, for at most so many seconds; the block says how
        many card-seconds it used. Raises DeferredError if the day's bound allows no more."""
        deployment, home = self.project.deployment(), self.project.home
        priced = engine_book(deployment, home)
        book = priced or card_book(deployment, home)
        booked = book.use(what, context.partition_key, cards, needs=0.0, at_most=at_most) if book else None
        with booked or contextlib.nullcontext(Using(at_most)) as using:
            try:
                yield using
            finally:
                usd = using.card_seconds / 3600 * priced.usd_per_card_hour if priced else 0.0
                _observe(context, waited=0.0, held=using.card_seconds, usd=usd)

    def stop_if_done(self, context: dg.AssetExecutionContext) -> None:
        """Stop a machine that is booted for nights as soon as nothing of this run needs it any more."""
        machine = self.project.machine()
        if machine is None or not self.project.deployment().trains_on_machine:
            return
        from ec1.night.machines import stop_if_done

        recipes = self.project.recipe_names()
        stop_if_done(machine, self.project.home, context.partition_key, context.run.run_id, recipes, context.log.info)


def _observe(context: dg.AssetExecutionContext, *, waited: float, held: float, usd: float = 0.0) -> None:
    """What this step used of cards: seconds of waiting, and card-seconds; and their cost, if it is not the run's."""
    cost = {CARDS_COST: round(usd, 6)} if usd else {}
    context.log_event(
        dg.AssetObservation(
            # One step may make several assets: the first speaks for it.
            min(context.selected_asset_keys),
            partition=context.partition_key,
            metadata={LEASE_WAIT: round(waited, 1), LEASE_HELD: round(held, 1), **cost},
        )
    )

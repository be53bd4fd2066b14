"""Steps of a run that wait for a place in a pool.

Dagster asks for a place anew after a second, then ever more rarely, at last every 15 seconds: in a night whose steps
wait for each other's card, most of that time the card is idle. A step of the same run that ends says when to ask.
"""

from resources.dagster_private import InstanceConcurrencyContext, multiprocess


class PromptClaims(InstanceConcurrencyContext):
    """Asks for a place as soon as a step of this run has given one back; between runs, as Dagster does."""

    def free_step(self, step_key: str) -> None:
        super().free_step(step_key)
        for waiting in self._pending_timeouts:
            self._pending_timeouts[waiting] = 0.0


def claim_promptly() -> None:
    """Have runs that this process executes do so."""
    multiprocess.InstanceConcurrencyContext = PromptClaims  # type: ignore[misc]

"""What other cards would do with the trainings of a night: `ec1 plan --card`.

Belongs here: each recipe on each card, as records. Does not: how time and memory are computed (`ec1.training`). Trains
nothing; snapshots and datasets that it makes are those that the night would make.
"""

import datetime as dt
from collections.abc import Sequence

from pydantic import BaseModel

from ec1.deployment import Deployment
from ec1.errors import InputError, PermanentError, ServiceError
from ec1.home import Home
from ec1.night.steps.recipe_night import RecipeNight
from ec1.nights import Night
from ec1.recipes.resolution import ResolvedRecipe
from ec1.training.cards import CardSheet
from ec1.training.plan import TrainingPlan


class CardPlan(BaseModel):
    """One recipe on one card. `refused` says why nothing is known of it; memory in GiB."""

    recipe: str
    card: str
    room_gib: float
    """What the card leaves for a training."""
    plan: TrainingPlan | None = None
    refused: str | None = None

    @property
    def fits(self) -> bool:
        return self.plan is not None and self.plan.peak_memory_gib <= self.room_gib


def plan_on_cards(
    deployment: Deployment,
    home: Home,
    night: Night,
    recipes: Sequence[ResolvedRecipe],
    chosen: Sequence[CardSheet],
    now: dt.datetime,
) -> list[CardPlan]:
    """Each recipe's training on each of the cards, on what its bucket holds as of `now`, whether or not it is due."""
    found = []
    for resolved in recipes:
        step = RecipeNight(resolved, deployment, home, night)
        try:
            dataset = step.dataset(step.snapshot(now))
            plans = {card.name: step.plan_on(card, dataset) for card in chosen}
            why = None
        except (InputError, PermanentError, ServiceError) as error:
            plans, why = {}, str(error)
        found += [
            CardPlan(recipe=step.name, card=card.name, room_gib=card.usable_gib, plan=plans.get(card.name), refused=why)
            for card in chosen
        ]
    return found

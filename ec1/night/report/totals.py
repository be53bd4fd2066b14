"""What several nights came to, per tenant."""

from collections import defaultdict
from collections.abc import Iterable

from pydantic import BaseModel

from ec1.night.report.summary import NightReport


class Totals(BaseModel):
    """Sums over nights. Documents and calls are those of phase 1, which works for the deployment's tenant."""

    documents: int = 0
    llm_calls: int = 0
    trainings: int = 0
    accepted: int = 0
    quarantined: int = 0
    training_tokens: int = 0
    training_seconds: float = 0.0
    cost: float | None = None
    """USD; None where the deployment states no cost."""


def totals_of(reports: Iterable[NightReport], tenant: str) -> dict[str, Totals]:
    """The totals of each tenant; `tenant` is the deployment's own."""
    found: dict[str, Totals] = defaultdict(Totals)
    for report in reports:
        own = found[tenant]
        own.documents += report.done.documents_read or 0
        own.llm_calls += report.done.llm_calls or 0
        for name, cost in report.costs.items():
            mine = found[name.split("/")[0]] if "/" in name else own
            mine.cost = round((mine.cost or 0.0) + cost, 4)
        for each in report.recipes:
            if "/" not in each.recipe or each.outcome == "broken":
                continue
            mine = found[each.recipe.split("/")[0]]
            mine.accepted += each.outcome == "accepted"
            mine.quarantined += each.outcome in ("rejected", "review", "no_effect")
            if each.training is not None:
                mine.trainings += 1
                mine.training_tokens += each.training.tokens
                mine.training_seconds = round(mine.training_seconds + each.training.seconds, 1)
    return dict(found)

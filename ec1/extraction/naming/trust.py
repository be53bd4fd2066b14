"""How far a model's answers can be trusted: what share of what it named stands in the text at all.

Belongs here: the figures of finished results. Does not: dropping what does not stand there (`grounding`), or comparing
with a gold file (`scoring`).
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ec1.extraction.folding import normalised
from ec1.extraction.results import ExtractionResult

INVENTED = ("not in the text", "only in the prompt")
"""The reasons of grounding that mean that the model invented the name."""


@dataclass(frozen=True)
class Trust:
    """Names that a model gave, each once a document. `kept` became mentions; `invented` stand nowhere in the text;
    the filters refused the others."""

    named: int = 0
    kept: int = 0
    invented: int = 0

    @property
    def hallucination_rate(self) -> float | None:
        """Share of the named that was invented; None if nothing was named."""
        return self.invented / self.named if self.named else None

    @property
    def grounding_rate(self) -> float | None:
        """Share of the named that stands in the text; None if nothing was named."""
        return 1.0 - self.invented / self.named if self.named else None


def trust_of(results: Iterable[ExtractionResult]) -> Trust:
    """The figures of complete results; others say nothing."""
    by_class = trust_by_class(results).values()
    return Trust(
        sum(each.named for each in by_class),
        sum(each.kept for each in by_class),
        sum(each.invented for each in by_class),
    )


def trust_by_class(results: Iterable[ExtractionResult]) -> dict[str, Trust]:
    """The same by class: of what became a mention, the mention's; of what was refused, the one that the model gave."""
    kept: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    invented: Counter[str] = Counter()
    for result in results:
        if result.status != "complete":
            continue
        found = {normalised(mention.name): mention.entity_class for mention in result.mentions}
        kept.update(found.values())
        # What one chunk was refused for, another may have shown to be there.
        others = {normalised(each.name): each for each in result.dropped if normalised(each.name) not in found}
        refused.update(each.entity_class for each in others.values())
        invented.update(each.entity_class for each in others.values() if each.reason in INVENTED)
    return {name: Trust(kept[name] + refused[name], kept[name], invented[name]) for name in sorted(kept | refused)}

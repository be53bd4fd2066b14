"""How far a model's answers can be trusted: what share of what it named stands in the text at all.

Belongs here: the figures of finished results. Does not: dropping what does not stand there (`grounding`), or comparing
with a gold file (`scoring`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ec1.extraction.folding import normalised
from ec1.extraction.results import ExtractionResult

INVENTED = ("not in the text", "only in the prompt")
"""The reasons of grounding that mean that the model named what nobody had written."""


@dataclass(frozen=True)
class Trust:
    """Names that a model gave, each once a document. `kept` became mentions; `invented` stand nowhere in the text;
    the filters refused the others."""

    named: int = 0
    kept: int = 0
    invented: int = 0

    @property
    def hallucination_rate(self) -> float:
        """Share of the named that was invented; 0 if nothing was named."""
        return self.invented / self.named if self.named else 0.0

    @property
    def grounding_rate(self) -> float:
        """Share of the named that stands in the text."""
        return 1.0 - self.hallucination_rate


def trust_of(results: Iterable[ExtractionResult]) -> Trust:
    """The figures of complete results; others say nothing."""
    named = kept = invented = 0
    for result in results:
        if result.status != "complete":
            continue
        names = {normalised(mention.name) for mention in result.mentions}
        # What one chunk was refused for, another may have shown to be there.
        refused = {normalised(each.name): each.reason for each in result.dropped if normalised(each.name) not in names}
        kept += len(names)
        named += len(names) + len(refused)
        invented += sum(reason in INVENTED for reason in refused.values())
    return Trust(named, kept, invented)

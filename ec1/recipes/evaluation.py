"""How a candidate is judged: the `evaluation:` section of a recipe. Light: recipes import it at definition time."""

from pydantic import Field

from ec1.settings import Settings


class EvaluationOptions(Settings):
    """Figures in nats per token are differences of mean log-probability; more is better for the candidate."""

    margin_nats: float = Field(
        0.05, gt=0, le=1, description="how much worse than a reference still counts as equal; typically 0.02–0.1"
    )
    max_chosen_loss_nats: float = Field(
        0.5, gt=0, description="preference pairs: how much less likely the chosen answer may become on average"
    )
    confidence: float = Field(0.95, gt=0.5, lt=1, description="of the one-sided bounds; typically 0.9–0.99")
    min_examples: int = Field(8, ge=2, description="fewer held-out examples are inconclusive")
    min_groups: int = Field(4, ge=2, description="fewer sources among them are inconclusive")
    resamples: int = Field(4000, ge=1000, description="of the bootstrap; typically 2000–10000")
    max_examples: int = Field(200, ge=2, description="held-out examples that are scored at most; typically 100–500")
    sample_generations: int = Field(2, ge=0, description="answers written out per model, for people to read")
    sample_tokens: int = Field(24, gt=0, description="tokens of each of those answers")
    seed: int = Field(17, description="of the bootstrap")

"""How long a training must take at least on a card: its arithmetic and its memory traffic against the data sheet.

Belongs here: counting operations and bytes from a model's shape and a recipe. Does not: the card's figures
(`cards.py`), how much of them trainings really reach (`ec1.night.steps.learned`), and the plan (`plan.py`).

Sources
- 2 operations a weight and token forwards, 2 for the gradient of what comes in, 2 for that of the weight itself, which
  a frozen weight does without: together the 6·N·D of https://arxiv.org/abs/2001.08361 §2.1; recomputing costs 2 more
- attention: 4 operations a token, past token and unit of width forwards, twice that backwards; a causal mask halves it
  (https://arxiv.org/abs/2204.02311 appendix B)
- a kernel takes the longer of its arithmetic and its traffic (https://doi.org/10.1145/1498765.1498785)
"""

from dataclasses import dataclass

from ec1.recipes.objectives import OBJECTIVES
from ec1.recipes.schema import Recipe
from ec1.training.cards import CardSheet
from ec1.training.memory import activation_bytes, quantised_bits, trainable_parameters
from ec1.training.methods import fuses_kernels, upper_layers
from ec1.training.shape import ModelShape

DEFAULT_EFFICIENCY = 0.35
"""Share of what the sheet allows that trainings are planned with before one has been measured on a card. A 7B on an
H100 reached 0.31 to 0.39 of it with 4,096 tokens in a batch or more, by LoRA and QLoRA, with and without checkpointing
(`benchmarks.gpu`, docs/performance.md)."""
FUSED_KERNELS = 1.3
"""How much faster a step is with Liger's kernels: 1.30 by LoRA with 4 rows of 2,048 tokens on that card."""
_LAUNCH_MS = {"step": 5.3, "unpacked": 3.6, "again": 7.8}
"""What a layer takes of a batch that is too small for the card, on that card's host, while its kernels are launched one
by one: forwards and backwards, more where weights are unpacked, and where activations are computed again."""
# An update reads and writes weight and two moments, and reads the gradient.
_UPDATE_NUMBERS = 7


@dataclass(frozen=True)
class TrainingWork:
    """What one training has to do."""

    operations: float
    """Of 16-bit matrix arithmetic: multiplications and additions."""
    weight_bytes: float
    """Read by that arithmetic, and so while it runs."""
    other_bytes: float
    """Read and written between it: unpacked weights, activations, logits, the optimiser's state."""
    launch_seconds: float = 0.0
    """For launching its kernels, which no card makes shorter."""
    speedup: float = 1.0
    """By fused kernels."""

    def seconds_on(self, card: CardSheet) -> float:
        """At least, on a card that gives what its sheet says; with fused kernels as if they gave it."""
        bandwidth = card.bandwidth_gb_per_second * 1e9
        return (
            max(self.operations / (card.bf16_tflops * 1e12), self.weight_bytes / bandwidth)
            + self.other_bytes / bandwidth
        ) / self.speedup

    def expected_on(self, card: CardSheet, efficiency: float) -> float:
        """Seconds on a card of which trainings reach a share."""
        return max(self.seconds_on(card) / efficiency, self.launch_seconds if card.is_known else 0.0)


def multiplied_parameters(model: ModelShape) -> float:
    """Weights that a token is multiplied with: all linear layers and the head; of experts those that it is sent to."""
    head = model.vocabulary * model.hidden
    experts = max(0, model.other_parameters - 2 * head)
    return model.projection_parameters + head + min(experts, 3 * model.hidden * model.intermediate * model.layers)


def operations_per_token(recipe: Recipe, model: ModelShape, length: float) -> float:
    """Forwards and backwards, in rows of `length` tokens, with whatever the objective computes besides."""
    weights, adapter = multiplied_parameters(model), 0
    attention = 2 * model.layers * model.attention * length
    share = 1.0
    backward = 2
    if recipe.method == "full":
        backward = 4
    else:
        adapter = trainable_parameters(recipe, model)
        # Below the lowest layer with an adapter no gradient is wanted.
        share = upper_layers(recipe, model.layers) / model.layers
    forwards = _forwards(recipe)
    return (
        forwards * (2 * weights + attention + 2 * adapter) + share * (backward * weights + 2 * attention) + 4 * adapter
    )


def work_of(recipe: Recipe, model: ModelShape, *, tokens: float, batches: float, updates: float) -> TrainingWork:
    """All of a training: `tokens` in `batches` that pass the model at once, and `updates` of the optimiser."""
    rows = batches * recipe.optimisation.batch_size * max(1, len(OBJECTIVES[recipe.objective].rows.sides))
    length = min(float(recipe.data.max_length), tokens / max(1.0, rows * recipe.answers))
    passes = _forwards(recipe) + 1
    # What is trained whole is read in 32 bits, written in 16 and read again.
    weights = (8.0 if recipe.method == "full" else 2.0) * multiplied_parameters(model) * batches * passes
    other = 0.0
    if recipe.method == "qlora":
        # Each pass unpacks each projection: the packed one is read, the 16-bit one written.
        other += model.projection_parameters * (quantised_bits(recipe) / 8 + 2) * batches * passes
    # Written and read; once more where they are computed again.
    moves = 3 if recipe.optimisation.gradient_checkpointing else 2
    other += tokens * (moves * model.layers * activation_bytes(recipe, model) + 2 * 4 * model.vocabulary)
    other += updates * trainable_parameters(recipe, model) * 4 * _UPDATE_NUMBERS
    if recipe.own_answers is not None and OBJECTIVES[recipe.objective].writes_in_steps:
        # Each token of the answers, which are written side by side, reads all weights.
        other += updates * recipe.own_answers.max_tokens * 2.0 * multiplied_parameters(model)
    launches = _LAUNCH_MS["step"]
    launches += _LAUNCH_MS["unpacked"] if recipe.method == "qlora" else 0.0
    launches += _LAUNCH_MS["again"] if recipe.optimisation.gradient_checkpointing else 0.0
    return TrainingWork(
        tokens * operations_per_token(recipe, model, length),
        weights,
        other,
        launch_seconds=batches * model.layers * launches / 1000,
        speedup=FUSED_KERNELS if fuses_kernels(recipe, recipe.hardware.device) else 1.0,
    )


def _forwards(recipe: Recipe) -> int:
    objective = OBJECTIVES[recipe.objective]
    return 1 + recipe.optimisation.gradient_checkpointing + (objective.reference or objective.writes_in_steps)

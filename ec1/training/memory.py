"""The memory of one training, computed before anything is loaded.

Belongs here: the arithmetic and its sources. Does not: how long it takes (`physics.py`), and what follows (`plan.py`).

Sources
- NF4: 4 bits + 8 bits / 64 + 32 bits / (64 · 256) a weight with double quantisation, 4 bits + 32 bits / 64 without
  (https://arxiv.org/abs/2305.14314 §3)
- activations: what a layer keeps for its backward pass, counted as in https://arxiv.org/abs/2205.05198 §4, for a gated
  MLP; the scores of an attention that is not fused on top
"""

from typing import Any

from ec1.memory import GIB
from ec1.models import precision_on
from ec1.recipes.objectives import OBJECTIVES
from ec1.recipes.schema import Recipe
from ec1.recipes.sharing import shared
from ec1.training.methods import upper_layers
from ec1.training.objectives import TRAINERS
from ec1.training.shape import ModelShape

# Rows that one call of TRL's fused head turns into logits at a time, and the copies that it holds of them in float32.
_HEAD_CHUNK_TOKENS = 256
_HEAD_COPIES = 3
# The CUDA context with its libraries' workspaces; on a CPU, the interpreter with torch loaded, and the heap's reserve.
_RUNTIME_GIB = {"cuda": 0.6, "cpu": 1.15}
# On a CPU the heap is kept for reuse (`launcher.py`), so what lies unused between blocks of different sizes counts too:
# measured with 8 rows of 256 tokens of the small model, 4.34 GiB.
_HEAP = {"cuda": 1.0, "cpu": 1.1}


def trainable_parameters(recipe: Recipe, model: ModelShape) -> int:
    """Weights that training changes: of an adapter r · (inputs + outputs) for each module that carries it, and all of
    a module that is trained whole."""
    if recipe.lora is None or recipe.method == "full":
        return model.parameters
    targets = model.targets(recipe.lora.target_modules)
    whole = sum(model.modules.get(name, 0) for name in recipe.lora.modules_to_save)
    adapted = recipe.lora.r * sum(each.count * (each.inputs + each.outputs) for each in targets)
    return adapted * upper_layers(recipe, model.layers) // model.layers + whole


def peak_memory_gib(
    recipe: Recipe, model: ModelShape, device: str, length: int, *, processes: int = 1, fsdp: bool = False
) -> float:
    """The most memory that training holds at one moment, in GiB, with rows of `length` tokens: each of `processes`, and
    with `fsdp` a part of the model each."""
    wish = recipe.optimisation
    trained = trainable_parameters(recipe, model)
    batch, _ = shared(wish.batch_size, wish.gradient_accumulation, processes)
    # A pair is two rows for the model, and a group as many as it has answers.
    tokens = batch * length * max(1, len(OBJECTIVES[recipe.objective].rows.sides)) * recipe.answers
    if recipe.own_answers is not None:
        tokens += batch * recipe.answers * recipe.own_answers.max_tokens
    # Bytes of a number that a frozen base computes with.
    stays = fsdp or precision_on(device, 2 * model.parameters) == "bfloat16"
    width = 2.0 if stays else 4.0
    if recipe.method == "qlora":
        weights = model.projection_parameters * quantised_bits(recipe) / 8 + model.other_parameters * width
        # One projection at a time is unpacked.
        weights += width * max((each.inputs * each.outputs for each in model.linears), default=0)
    elif recipe.method == "full":
        # In the sum below; besides the reference and, for what is not computed again, the 16-bit copies.
        weights = model.parameters * 4.0 * OBJECTIVES[recipe.objective].reference
        weights += model.parameters * 2.0 * (stays and not wish.gradient_checkpointing)
    else:
        weights = model.parameters * width
    # What is trained, its gradient and the optimiser's state are held in 32 bits.
    moments = 2 * (1 if wish.optimizer == "paged_adamw_8bit" else 4)
    trained_bytes: float = trained * (2 * 4 + moments)
    if fsdp:
        # The layer that computes and the one that comes next are whole.
        weights = weights / processes + 2.0 * model.projection_parameters * 2 / model.layers
        # TRL's head is put together in every process.
        weights += model.vocabulary * model.hidden * 2
        trained_bytes /= processes
    scores = 0.0
    if not model.fused_attention or recipe.hardware.attention == "eager":
        # Of each head a score for each other token, in 32 bits and, where the model computes in 16, in those.
        scores = model.heads * length * (4.0 if width == 4 else 6.0)
    layer = activation_bytes(recipe, model) * width / 2 + scores
    if wish.gradient_checkpointing:
        activations = tokens * (model.layers * model.hidden * width + layer)
    else:
        activations = tokens * model.layers * layer
    # Those of the layer that computes have gradients, too, with a copy.
    activations += 2 * tokens * scores
    if device == "cuda":
        activations += tokens * _backward_bytes(model) * width / 2
    head = min(tokens, _HEAD_CHUNK_TOKENS) * model.vocabulary * 4 * _HEAD_COPIES
    if not TRAINERS[recipe.objective].fused_head:
        # The logits of all positions, with their gradient.
        head = tokens * model.vocabulary * 4 * _HEAD_COPIES
    return float((weights + trained_bytes + activations * _HEAP[device] + head) / GIB + _RUNTIME_GIB[device])


def _backward_bytes(model: ModelShape) -> float:
    """What one layer's backward pass holds for one token besides what was kept, in bytes, in 16 bits: the gradients of
    the MLP's gate, activation, up and product, and of the residual sum in 32 bits with its copy. On an H100 a 7B held
    123 to 138 kB a token more than was kept; this says 121 kB."""
    return 2.0 * 4 * (model.intermediate + model.hidden)


def quantised_bits(recipe: Recipe) -> float:
    """Bits that a quantised weight takes, with its share of the constants."""
    assert recipe.quantization is not None
    return 4 + (8 / 64 + 32 / (64 * 256) if recipe.quantization.double else 32 / 64)


def activation_bytes(recipe: Recipe, model: ModelShape) -> float:
    """What one layer keeps for one token's backward pass, in bytes, where it computes in 16 bits."""
    q, kv = model.attention, model.keys
    # Two norms in 32 bits with their 16-bit results, q, k, v with and without rotation, the attention's result, the
    # MLP's gate, activation, up and product, and two residual sums.
    base = 2 * model.hidden * (4 + 2) + 2 * 2 * (q + kv) + 2 * kv + 2 * q + 2 * 4 * model.intermediate
    base += 2 * 2 * model.hidden
    lora: Any = recipe.lora if recipe.method != "full" else None
    if lora is None:
        return float(base)
    # Each adapter keeps its input after dropout with the mask, and r numbers in between.
    dropped = 2 * 2 if lora.dropout else 0
    kept = sum(each.count * (dropped * each.inputs + 2 * lora.r) for each in model.targets(lora.target_modules))
    return float(base + kept / model.layers)

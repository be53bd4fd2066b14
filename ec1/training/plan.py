"""The plan of one training: steps, memory, time and cost, computed before anything is loaded.

Belongs here: the arithmetic and its sources, and the refusals. Does not: loading a model or reading a dataset; figures
come in as numbers. The trainer asks `schedule_of` for the same steps that the plan promised.

Sources
- passes: a forward pass costs 2 FLOP a parameter and token, the backward pass through frozen weights another 2, the
  recomputation of gradient checkpointing another 2 (https://arxiv.org/abs/2001.08361 §2.1, https://arxiv.org/abs/1604.06174)
- NF4: 4 bits + 8 bits / 64 + 32 bits / (64 · 256) a weight with double quantisation, 4 bits + 32 bits / 64 without
  (https://arxiv.org/abs/2305.14314 §3)
- activations: what a layer keeps for its backward pass, counted as in https://arxiv.org/abs/2205.05198 §4, for a gated
  MLP and an attention kernel that keeps no score matrix
"""

import math
from typing import Any

from ec1.errors import InputError, PermanentError
from ec1.recipes.objectives import OBJECTIVES
from ec1.recipes.schema import Recipe
from ec1.recipes.sharing import refusal, shared
from ec1.settings import Settings
from ec1.training.methods import upper_layers
from ec1.training.objectives import TRAINERS
from ec1.training.shape import ModelShape, require_modules

GIB = 2.0**30
STARTUP_SECONDS = 30.0
"""Imports, loading and quantising a model, saving: what a training costs before and after its steps."""
MAX_WARMUP_SHARE = 0.2
"""A warm-up that takes more of the run than this never lets it train at the rate that the recipe names."""
MIN_TRAVEL = 5e-4
"""Rate times steps: about how far Adam can move a weight of an adapter, which starts at nothing. Less was never seen to
move a held-out answer; a DPO at 5e-6 with 8 steps (4e-5) gained -0.001 nats/token."""
VALIDATION_SHARE = 0.1
"""Of training's sources, what early stopping measures on: what the gate scores must not choose the weights."""
# Rows that one call of TRL's fused head turns into logits at a time, and the copies that it holds of them in float32.
_HEAD_CHUNK_TOKENS = 256
_HEAD_COPIES = 3
# The CUDA context with its libraries' workspaces; on a CPU, the interpreter with torch loaded, and the heap's reserve.
_RUNTIME_GIB = {"cuda": 0.6, "cpu": 1.15}
# On a CPU the heap is kept for reuse (`launcher.py`), so what lies unused between blocks of different sizes counts too:
# measured with 8 rows of 256 tokens of the small model, 4.34 GiB.
_HEAP = {"cuda": 1.0, "cpu": 1.1}


class HardwareFigures(Settings):
    """The machine, as the deployment describes it. `tokens_per_second` is that of SFT with this kind of recipe."""

    name: str
    device: str
    memory_gib: float
    tokens_per_second: float
    cost_per_hour: float = 0.0
    """USD."""
    processes: int = 1
    """That share a training, each on a card of its own."""
    fsdp: bool = False


class Learned(Settings):
    """What earlier trainings of the same kind measured on this machine."""

    tokens_per_second: float
    startup_seconds: float
    """Of what comes before and after the steps, and evaluations between them."""
    memory_gib: float
    trainings: int


class Schedule(Settings):
    """Steps of the optimiser, of the recipe, for the real number of rows."""

    steps: int
    limited: bool
    """Whether `max_steps` ends it before its epochs do."""
    warmup_steps: int
    evaluation_steps: int | None
    """Steps between two measurements of the held-out loss; None: not during training."""
    evaluations: int
    notes: tuple[str, ...] = ()


class TrainingPlan(Settings):
    tokens: int
    """All tokens that training reads, over all epochs; of a preference pair both answers, each with its prompt."""
    rows: int
    steps: int
    warmup_steps: int
    evaluations: int
    effective_batch: int
    trainable_parameters: int
    peak_memory_gib: float
    seconds: float
    cost: float
    """USD."""
    hardware: str
    notes: tuple[str, ...] = ()


def schedule_of(recipe: Recipe, rows: int, heldout_rows: int) -> Schedule:
    """Steps, warm-up and evaluations for the real number of rows. Raises PermanentError if there is none."""
    if rows < 1:
        raise PermanentError(f"recipe {recipe.name}: no row is left to train on")
    wish = recipe.optimisation
    batches = math.ceil(rows / wish.batch_size)
    steps = math.ceil(wish.epochs * math.ceil(batches / wish.gradient_accumulation))
    if OBJECTIVES[recipe.objective].rolls_out:
        # A step has whole groups only.
        if rows < wish.effective_batch:
            raise PermanentError(f"recipe {recipe.name}: {rows} tasks do not fill a step of {wish.effective_batch}")
        steps = math.ceil(wish.epochs * (rows // wish.effective_batch))
    limited = wish.max_steps is not None and wish.max_steps < steps
    if limited:
        assert wish.max_steps is not None
        steps = wish.max_steps
    notes = []
    share = wish.warmup_share or 0.0
    warmup = round(share * steps) if wish.warmup_steps is None else wish.warmup_steps
    if warmup > MAX_WARMUP_SHARE * steps:
        shorter = int(MAX_WARMUP_SHARE * steps)
        notes.append(f"warm-up cut from {warmup} to {shorter} steps: there are only {steps}")
        warmup = shorter
    every = wish.evaluation_steps
    if every is not None and heldout_rows == 0:
        notes.append("no evaluation during training: there is no held-out row")
        every = None
    elif every is not None and every > steps:
        notes.append(f"evaluation every {every} steps becomes one after the last of {steps}")
        every = steps
    if rows < wish.effective_batch:
        notes.append(f"{rows} rows do not fill the effective batch of {wish.effective_batch}")
    return Schedule(
        steps=steps,
        limited=limited,
        warmup_steps=warmup,
        evaluation_steps=every,
        evaluations=0 if every is None else steps // every,
        notes=tuple(notes),
    )


def plan_training(
    recipe: Recipe,
    model: ModelShape,
    hardware: HardwareFigures,
    *,
    rows: int,
    tokens: int,
    longest: int,
    heldout_rows: int,
    budget_seconds: float,
    learned: Learned | None = None,
) -> TrainingPlan:
    """Plan one training.

    `tokens` counts one epoch (of a pair both answers with their prompts), `longest` is the longest row in tokens,
    before it is cut. What was `learned` takes the place of the machine's figures and of the arithmetic. Raises
    PermanentError for what cannot fit the card or the budget, InputError for a recipe that is meant for another kind of
    device.
    """
    wanted = recipe.hardware.device
    if wanted not in ("any", hardware.device):
        raise InputError(f"recipe {recipe.name} asks for device {wanted}, the deployment has {hardware.device}")
    if (why := refusal(recipe, hardware.processes, hardware.fsdp)) is not None:
        raise InputError(f"recipe {recipe.name}: {why}")
    require_modules(recipe, model)
    wish, epoch = recipe.optimisation, rows
    if wish.early_stopping_patience is not None:
        heldout_rows = max(1, round(VALIDATION_SHARE * rows))
        tokens, epoch = round(tokens * (rows - heldout_rows) / rows), rows - heldout_rows
    # Packed rows are nearly full: best fit leaves about nothing.
    sequences = math.ceil(tokens / recipe.data.max_length) if wish.packing else epoch
    schedule = schedule_of(recipe, sequences, heldout_rows)
    notes = list(schedule.notes)
    if wish.packing:
        notes.append(f"{epoch} rows are packed into about {sequences} sequences of {recipe.data.max_length} tokens")
        longest = max(longest, recipe.data.max_length)
    travel = wish.learning_rate * schedule.steps
    if recipe.method != "full" and travel < MIN_TRAVEL:
        notes.append(
            f"learning rate {recipe.optimisation.learning_rate:g} times {schedule.steps} steps moves a weight by "
            f"{travel:.0e} at most: too little to change an answer; raise the rate or the epochs"
        )
    if longest > recipe.data.max_length:
        notes.append(f"rows are cut at {recipe.data.max_length} tokens; the longest has {longest}")
    # Of the last epoch perhaps only a part, if `max_steps` ends it.
    passes = min(wish.epochs, schedule.steps * wish.effective_batch / sequences)
    read = round(tokens * passes)
    if recipe.grpo is not None and OBJECTIVES[recipe.objective].rolls_out:
        group, most = recipe.grpo.group, recipe.grpo.max_tokens
        read = round(group * passes * (tokens + epoch * most))
        notes.append(
            f"{schedule.steps} steps × {wish.effective_batch} prompts × {group} answers of at most {most} tokens"
        )
    if hardware.processes > 1:
        batch, accumulation = shared(wish.batch_size, wish.gradient_accumulation, hardware.processes)
        notes.append(f"{hardware.processes} processes share a step: {accumulation} × {batch} rows each")
    # On a CPU they share its cores and its memory.
    cards, sharers = (hardware.processes, 1) if hardware.device == "cuda" else (1, hardware.processes)
    if learned is None:
        seconds = STARTUP_SECONDS + read * _slowdown(recipe) / (hardware.tokens_per_second * cards)
        memory = sharers * peak_memory_gib(
            recipe,
            model,
            hardware.device,
            min(longest, recipe.data.max_length),
            processes=hardware.processes,
            fsdp=hardware.fsdp,
        )
        notes.append("time and memory are computed, not measured: no training of this kind has run here yet")
    else:
        seconds = learned.startup_seconds + read / learned.tokens_per_second
        memory = sharers * learned.memory_gib
        many = "trainings" if learned.trainings > 1 else "training"
        notes.append(f"time and memory as {learned.trainings} earlier {many} of this kind took them")
    room = min(hardware.memory_gib, recipe.hardware.memory_gib or math.inf)
    if memory > room:
        raise PermanentError(
            f"recipe {recipe.name} needs about {memory:.1f} GiB, {hardware.name} leaves {room:.1f}: lower "
            "optimisation.batch_size (and raise gradient_accumulation), lower data.max_length, or switch "
            "optimisation.gradient_checkpointing on"
        )
    if seconds > budget_seconds:
        raise PermanentError(
            f"recipe {recipe.name} needs about {seconds:.0f} s for {read} tokens on {hardware.name}, the budget is "
            f"{budget_seconds:.0f} s: lower optimisation.epochs or data.max_length, or raise budgets.training_seconds"
        )
    return TrainingPlan(
        tokens=read,
        rows=epoch,
        steps=schedule.steps,
        warmup_steps=schedule.warmup_steps,
        evaluations=schedule.evaluations,
        effective_batch=recipe.optimisation.effective_batch,
        trainable_parameters=trainable_parameters(recipe, model),
        peak_memory_gib=round(memory, 2),
        seconds=round(seconds, 1),
        cost=round(seconds / 3600 * hardware.cost_per_hour, 4),
        hardware=hardware.name,
        notes=tuple(notes),
    )


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
    if recipe.grpo is not None:
        tokens += batch * recipe.answers * recipe.grpo.max_tokens
    if recipe.method == "qlora":
        assert recipe.quantization is not None
        bits = 4 + (8 / 64 + 32 / (64 * 256) if recipe.quantization.double else 32 / 64)
        weights = model.projection_parameters * bits / 8 + model.other_parameters * 2
        # One projection at a time is unpacked to 16 bits.
        weights += 2 * max((each.inputs * each.outputs for each in model.linears), default=0)
    else:
        weights = model.parameters * 2.0
    # An adapter and its optimiser's state are held in 32 bits, the weights of full training in 16.
    weight_bytes, moment_bytes = (2, 2) if recipe.method == "full" else (4, 4)
    moments = 2 * (1 if wish.optimizer == "paged_adamw_8bit" else moment_bytes)
    trained_bytes: float = trained * (2 * weight_bytes + moments)
    if recipe.method == "full":
        trained_bytes -= trained * weight_bytes
        if OBJECTIVES[recipe.objective].reference:
            weights *= 2
    if fsdp:
        # The layer that computes and the one that comes next are whole.
        weights = weights / processes + 2.0 * model.projection_parameters * 2 / model.layers
        # TRL's head is put together in every process.
        weights += model.vocabulary * model.hidden * 2
        trained_bytes /= processes
    layer = _activation_bytes(recipe, model)
    if wish.gradient_checkpointing:
        activations = tokens * (model.layers * model.hidden * 2 + layer)
    else:
        activations = tokens * model.layers * layer
    head = min(tokens, _HEAD_CHUNK_TOKENS) * model.vocabulary * 4 * _HEAD_COPIES
    if not TRAINERS[recipe.objective].fused_head:
        # The logits of all positions, with their gradient.
        head = tokens * model.vocabulary * 4 * _HEAD_COPIES
    return float((weights + trained_bytes + activations * _HEAP[device] + head) / GIB + _RUNTIME_GIB[device])


def _activation_bytes(recipe: Recipe, model: ModelShape) -> float:
    """What one layer keeps for one token's backward pass, in bytes."""
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


def _slowdown(recipe: Recipe) -> float:
    """Seconds per token relative to SFT: preference training also runs the reference forward, without gradients, and
    what the model writes itself has passed through it before."""
    passes = 3 if recipe.optimisation.gradient_checkpointing else 2
    objective = OBJECTIVES[recipe.objective]
    return (passes + 1) / passes if objective.reference or objective.rolls_out else 1.0

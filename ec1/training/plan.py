"""The plan of one training: steps, memory, time and cost, computed before anything is loaded.

Belongs here: the schedule, what is put together of memory (`memory.py`) and time (`physics.py`), and the refusals. Does
not: loading a model or reading a dataset; figures come in as numbers. The trainer asks `schedule_of` for the same steps
that the plan promised.
"""

import math
from dataclasses import dataclass

from ec1.errors import InputError, PermanentError
from ec1.recipes.objectives import OBJECTIVES
from ec1.recipes.schema import Recipe
from ec1.recipes.sharing import refusal, shared
from ec1.settings import Settings
from ec1.training.cards import CardSheet
from ec1.training.memory import peak_memory_gib, trainable_parameters
from ec1.training.physics import DEFAULT_EFFICIENCY, work_of
from ec1.training.shape import ModelShape, require_modules

STARTUP_SECONDS = 30.0
"""Imports, loading and quantising a model, saving: what a training costs before and after its steps."""
MAX_WARMUP_SHARE = 0.2
"""A warm-up that takes more of the run than this never lets it train at the rate that the recipe names."""
MIN_TRAVEL = 5e-4
"""Rate times steps: about how far Adam can move a weight of an adapter, which starts at nothing. Less was never seen to
move a held-out answer; a DPO at 5e-6 with 8 steps (4e-5) gained -0.001 nats/token."""
VALIDATION_SHARE = 0.1
"""Of training's sources, what early stopping measures on: what the gate scores must not choose the weights."""


class HardwareFigures(Settings):
    """The machine, as the deployment describes it. `tokens_per_second` is that of SFT with this kind of recipe; `card`
    takes its place where it is given."""

    name: str
    device: str
    memory_gib: float
    tokens_per_second: float
    card: CardSheet | None = None
    efficiency: float = DEFAULT_EFFICIENCY
    """Share of what the card's sheet allows that trainings reach."""
    efficiency_from: int = 0
    """Trainings that it was measured in here; 0: in none."""
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


@dataclass(frozen=True)
class DatasetSize:
    """What a plan wants to know of a dataset: `tokens` of one epoch (of a pair both answers with their prompts), and
    the `longest` row in tokens, before it is cut."""

    rows: int
    tokens: int
    longest: int
    heldout_rows: int


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
    if OBJECTIVES[recipe.objective].writes_in_steps:
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
    size: DatasetSize,
    *,
    budget_seconds: float,
    learned: Learned | None = None,
) -> TrainingPlan:
    """Plan one training on the machine that it is for: as `figures_of`.

    Raises PermanentError for what cannot fit the card or the budget, InputError for a recipe that is meant for another
    kind of device.
    """
    wanted = recipe.hardware.device
    if wanted not in ("any", hardware.device):
        raise InputError(f"recipe {recipe.name} asks for device {wanted}, the deployment has {hardware.device}")
    if (why := refusal(recipe, hardware.processes, hardware.fsdp)) is not None:
        raise InputError(f"recipe {recipe.name}: {why}")
    planned = figures_of(recipe, model, hardware, size, learned=learned)
    memory, seconds = planned.peak_memory_gib, planned.seconds
    room = min(hardware.memory_gib, recipe.hardware.memory_gib or math.inf)
    if memory > room:
        raise PermanentError(
            f"recipe {recipe.name} needs about {memory:.1f} GiB, {hardware.name} leaves {room:.1f}: lower "
            "optimisation.batch_size (and raise gradient_accumulation), lower data.max_length, or switch "
            "optimisation.gradient_checkpointing on"
        )
    if seconds > budget_seconds:
        raise PermanentError(
            f"recipe {recipe.name} needs about {seconds:.0f} s for {planned.tokens} tokens on {hardware.name}, the "
            f"budget is {budget_seconds:.0f} s: lower optimisation.epochs or data.max_length, or raise "
            "budgets.training_seconds"
        )
    return planned


def figures_of(
    recipe: Recipe,
    model: ModelShape,
    hardware: HardwareFigures,
    size: DatasetSize,
    *,
    learned: Learned | None = None,
) -> TrainingPlan:
    """What a training takes on a machine, whether it fits there or not.

    What was `learned` takes the place of the machine's figures and of the arithmetic. Raises PermanentError for a
    recipe whose modules the model lacks, or without rows.
    """
    require_modules(recipe, model)
    wish, epoch = recipe.optimisation, size.rows
    tokens, longest, heldout_rows = size.tokens, size.longest, size.heldout_rows
    if recipe.sets_aside:
        aside = max(1, round(VALIDATION_SHARE * epoch))
        tokens, epoch = round(tokens * (epoch - aside) / epoch), epoch - aside
        heldout_rows = heldout_rows if wish.early_stopping_patience is None else aside
    notes, written = [], 0
    if recipe.rft is not None and OBJECTIVES[recipe.objective].writes_first:
        own, answered = recipe.rft, tokens + epoch * recipe.rft.max_tokens
        notes.append(
            f"{epoch} tasks × {own.answers} answers of at most {own.max_tokens} tokens are written first; of the right "
            f"ones at most {own.kept} to a task are learnt, so {own.kept * epoch} rows are the most"
        )
        written, tokens, epoch = own.answers * answered, own.kept * answered, own.kept * epoch
    # Packed rows are nearly full: best fit leaves about nothing.
    sequences = math.ceil(tokens / recipe.data.max_length) if wish.packing else epoch
    schedule = schedule_of(recipe, sequences, heldout_rows)
    notes += schedule.notes
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
    if recipe.grpo is not None and OBJECTIVES[recipe.objective].writes_in_steps:
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
        # What is only written passes the model once, not forth and back.
        passed = read + round(written / _passes(recipe))
        seconds = STARTUP_SECONDS + _step_seconds(recipe, model, hardware, passed, schedule.steps) / cards
        memory = sharers * peak_memory_gib(
            recipe,
            model,
            hardware.device,
            min(longest, recipe.data.max_length),
            processes=hardware.processes,
            fsdp=hardware.fsdp,
        )
        notes.append("time and memory are computed, not measured: no training of this kind has run here yet")
        if (card := hardware.card) is not None:
            notes.append(_rests_on(card, hardware))
    else:
        seconds = learned.startup_seconds + read / learned.tokens_per_second
        memory = sharers * learned.memory_gib
        many = "trainings" if learned.trainings > 1 else "training"
        notes.append(f"time and memory as {learned.trainings} earlier {many} of this kind took them")
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


def _slowdown(recipe: Recipe) -> float:
    """Seconds per token relative to SFT: preference training also runs the reference forward, without gradients, and
    what the model writes itself has passed through it before."""
    passes = _passes(recipe)
    objective = OBJECTIVES[recipe.objective]
    return (passes + 1) / passes if objective.reference or objective.writes_in_steps else 1.0


def _passes(recipe: Recipe) -> int:
    """Through the model, of a token that is learnt."""
    return 3 if recipe.optimisation.gradient_checkpointing else 2


def _step_seconds(recipe: Recipe, model: ModelShape, hardware: HardwareFigures, tokens: int, steps: int) -> float:
    """Of all steps, on one card."""
    if hardware.card is None:
        return tokens * _slowdown(recipe) / hardware.tokens_per_second
    batches = steps * recipe.optimisation.gradient_accumulation
    work = work_of(recipe, model, tokens=tokens, batches=batches, updates=steps)
    return work.expected_on(hardware.card, hardware.efficiency)


def _rests_on(card: CardSheet, hardware: HardwareFigures) -> str:
    """What the time on a card rests on, in words."""
    many = "trainings" if hardware.efficiency_from > 1 else "training"
    measured = f"as {hardware.efficiency_from} earlier {many} reached" if hardware.efficiency_from else "as on an H100"
    if not card.is_known:
        return f"time at {hardware.efficiency:.2g} TFLOP/s, {measured}"
    return (
        f"time at {hardware.efficiency:.0%} ({measured}) of what the data sheet of {card.name} allows: "
        f"{card.bf16_tflops:g} TFLOP/s, {card.bandwidth_gb_per_second:g} GB/s"
    )

"""What earlier trainings say about the next one: tokens per second, the time around the steps, and memory.

The plan's own figures are computed, and a deployment's `tokens_per_second` is somebody's guess: on the sample they were
off by 1.3 to 3.7 times. After a first training of a kind its own figures count; before that, how much of the machine
trainings of other kinds reached. Belongs here: which earlier trainings count for what. Does not: the plan
(`ec1.training.plan`).
"""

import functools
import statistics
from dataclasses import dataclass
from pathlib import Path

from ec1.errors import EC1Error
from ec1.files import read_json
from ec1.home import Home
from ec1.launch.device import GpuSettings
from ec1.night.steps.candidate import BY_HAND
from ec1.recipes.schema import Recipe
from ec1.training.cards import CardSheet
from ec1.training.memory import peak_memory_gib
from ec1.training.physics import work_of
from ec1.training.plan import Learned
from ec1.training.shape import ModelShape
from ec1.training.spec import RUN, SUMMARY, TrainingResult, TrainingSpec, read_result, spec_in

_LOOKED_AT = 60
_USED = 3
_MIN_SECONDS = 2.0
"""Of steps: below that, what was measured is mostly the first step's warming up."""


def learned(home: Home, recipe: Recipe, model: ModelShape, gpu: GpuSettings) -> Learned | None:
    """Medians of the last three trainings of this kind on this machine; None if there was none.

    Of a kind are trainings of one base model by one method and objective, with the same rows in a batch, length and
    checkpointing if there are such. Memory is scaled by what the plan computes for the two recipes.
    """
    alike = [
        (spec, result)
        for spec, result in _newest(home)
        if _kind(spec.recipe) == _kind(recipe)
        and (spec.processes, spec.fsdp) == (gpu.processes, gpu.fsdp)
        and _here(spec, result, gpu)
    ]
    same = [(spec, result) for spec, result in alike if _form(spec.recipe) == _form(recipe)]
    used = (same or alike)[:_USED]
    if not used:
        return None
    return Learned(
        tokens_per_second=statistics.median(result.tokens_per_second for _, result in used),
        startup_seconds=statistics.median(result.seconds - result.training_seconds for _, result in used),
        memory_gib=statistics.median(
            result.peak_memory_gib * _computed(recipe, model, gpu) / _computed(spec.recipe, model, gpu)
            for spec, result in used
        ),
        trainings=len(used),
    )


@dataclass(frozen=True)
class Efficiency:
    """What share of a card trainings reached; of a machine without a data sheet, how many TFLOP/s."""

    share: float
    trainings: int


def efficiency(home: Home, gpu: GpuSettings, card: CardSheet) -> Efficiency | None:
    """The median over the last trainings on this machine, of whatever kind; None if none can be counted."""
    shares = []
    for spec, result in _newest(home):
        if not _here(spec, result, gpu) or not (spec.base_model / "config.json").is_file():
            continue
        try:
            work = work_of(
                spec.recipe,
                _shape(spec.base_model),
                tokens=result.tokens,
                batches=result.steps * result.gradient_accumulation * result.processes,
                updates=result.steps,
            )
        except EC1Error:
            continue
        shares.append(work.seconds_on(card) / (result.training_seconds * max(1, result.processes)))
        if len(shares) == _USED:
            break
    return Efficiency(statistics.median(shares), len(shares)) if shares else None


@functools.lru_cache(maxsize=8)
def _shape(folder: Path) -> ModelShape:
    return ModelShape.read(folder)


def _here(spec: TrainingSpec, result: TrainingResult, gpu: GpuSettings) -> bool:
    """Whether a training measured this machine."""
    return (
        spec.device == gpu.device
        and spec.machine in ("", gpu.name)
        and result.status != "diverged"
        and result.resumed_from is None
        and result.training_seconds >= _MIN_SECONDS
    )


def _newest(home: Home) -> list[tuple[TrainingSpec, TrainingResult]]:
    """Finished trainings, the newest first; what cannot be read says nothing."""
    paths = [*home.runs.glob(f"*/*/*/training/{SUMMARY}"), *home.runs.glob(f"*/*/*/{BY_HAND}/*/{SUMMARY}")]
    found = []
    for path in sorted(paths, key=_time, reverse=True)[:_LOOKED_AT]:
        try:
            result = read_result(path.parent)
            spec = spec_in(read_json(path.parent / RUN))
        except (EC1Error, OSError, ValueError, KeyError):
            continue
        if result is not None:
            found.append((spec, result))
    return found


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _kind(recipe: Recipe) -> tuple[object, ...]:
    return (recipe.base_model.id, recipe.method, recipe.objective, recipe.kind == "pretraining")


def _form(recipe: Recipe) -> tuple[object, ...]:
    wish = recipe.optimisation
    return (
        wish.batch_size,
        wish.gradient_checkpointing,
        wish.packing,
        recipe.data.max_length,
        recipe.hardware.attention,
    )


def _computed(recipe: Recipe, model: ModelShape, gpu: GpuSettings) -> float:
    length = recipe.data.max_length
    return peak_memory_gib(recipe, model, gpu.device, length, processes=gpu.processes, fsdp=gpu.fsdp)

"""Train one adapter from a specification, with TRL's trainers, PEFT and bitsandbytes.

Belongs here: training, going on after an interruption, and what is left behind. Does not: putting method and objective
together (`building.py`), what to train on (`ec1.corpus`), whether the result is any good (`ec1.adapters`), and where
the process runs (`launcher.py`).
"""

import contextlib
import datetime as dt
import gc
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.errors import InputError, PermanentError
from ec1.files import atomic_file, read_json, sha256_file, staged_directory, write_atomic, write_json
from ec1.launch.reporting import Reporter
from ec1.models import loader_of
from ec1.recipes.objectives import NO_START, OBJECTIVES
from ec1.recipes.sharing import refusal, shared
from ec1.training.building import build_trainer, load_rows, load_tokenizer
from ec1.training.checkpoints import discard_checkpoints, newest_checkpoint, step_of
from ec1.training.copies import callback_of_copies, save_config
from ec1.training.methods import METHODS
from ec1.training.monitor import ROLLOUT_COLUMNS, Monitor, callback_of, peak_memory_gib
from ec1.training.objectives import TRAINERS
from ec1.training.on_the_way import RIGHT, Questions, asking
from ec1.training.own_answers import right_answers
from ec1.training.plan import Schedule, schedule_of
from ec1.training.processes import Team, whole
from ec1.training.provenance import LOCK, package_lock, provenance
from ec1.training.shape import ModelShape, require_modules
from ec1.training.spec import (
    METRICS,
    MODEL,
    RUN,
    SUMMARY,
    TOKENIZER_FILES,
    TrainingResult,
    TrainingSpec,
    finished,
)
from ec1.training.tracking import TENSORBOARD, check_trackers, tracking_callbacks

if TYPE_CHECKING:
    from transformers import TrainerCallback

PACKAGES = ("torch", "transformers", "trl", "peft", "bitsandbytes", "accelerate", "datasets", "safetensors")
_METRIC_COLUMNS = (
    *("step", "epoch", "loss", "grad_norm", "learning_rate"),
    *("tokens", "tokens_per_second", "seconds", "peak_memory_gib"),
)


class Interrupted(Exception):
    """The process was asked to end; a checkpoint of the last whole step is saved."""


def train(
    spec: TrainingSpec,
    report: Reporter,
    *,
    on_monitor: Callable[[Monitor], None] = lambda monitor: None,
    extra_callbacks: Sequence["TrainerCallback"] = (),
) -> TrainingResult:
    """Train as specified and leave weights, metrics and summary in `spec.output`.

    A result that is there already is returned as it is. On out-of-memory the batch is halved and the accumulation
    doubled, so that the effective batch stays the same. `on_monitor` is given the run's monitor, through which a signal
    handler asks for the end. Raises PermanentError for what no second try can mend, Interrupted when asked to end.
    """
    began = time.monotonic()
    team = Team.join(spec.processes, spec.device)
    if (ready := finished(spec)) is not None:
        report.progress("this training ended before: nothing to do")
        return ready
    _check(spec)
    monitor = Monitor(
        spec.recipe,
        report,
        spec.checkpoints,
        deadline=began + spec.budget_seconds,
        cuda=spec.device == "cuda",
        team=team,
    )
    on_monitor(monitor)
    # Nobody looks for what is there before all have looked whether the training has ended before.
    team.wait()
    if team.leads:
        _start_or_go_on(spec, monitor)
    team.wait()
    wish = spec.recipe.optimisation
    batch, accumulation = shared(wish.batch_size, wish.gradient_accumulation, spec.processes)
    while True:
        try:
            result = _attempt(spec, monitor, batch, accumulation, extra_callbacks)
            break
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
            if team.size > 1:
                raise PermanentError(
                    f"out of memory with {batch} rows in each of {team.size} processes: lower optimisation.batch_size "
                    "and raise gradient_accumulation as much, or set gpu.fsdp"
                ) from None
            if batch == 1:
                raise PermanentError(
                    "out of memory with a batch of one row: lower data.max_length, switch "
                    "optimisation.gradient_checkpointing on, or use a larger card"
                ) from None
        # Not inside the except block: until it is left, the traceback holds the failed attempt's tensors.
        _free_memory()
        batch, accumulation = halved(batch, accumulation)
        monitor.note(f"out of memory: went on with {accumulation} batches of {batch} rows in a step")
        report.progress(monitor.notes[-1])
    result = result.model_copy(update={"seconds": round(result.seconds + time.monotonic() - began, 1)})
    if team.leads:
        write_atomic(spec.output / SUMMARY, result.model_dump_json(indent=2) + "\n")
        if result.status != "partial":
            discard_checkpoints(spec.checkpoints)
    return result


def halved(batch: int, accumulation: int) -> tuple[int, int]:
    """A smaller batch and more accumulation, with their product unchanged."""
    smaller = next(size for size in range(batch // 2, 0, -1) if batch % size == 0)
    return smaller, accumulation * (batch // smaller)


def _check(spec: TrainingSpec) -> None:
    """Every check that needs no model."""
    import torch

    if spec.recipe.digest() != spec.recipe_digest:
        raise InputError("the specification's recipe_digest is not that of its recipe")
    if (why := refusal(spec.recipe, spec.processes, spec.fsdp)) is not None:
        raise InputError(f"recipe {spec.recipe.name}: {why}")
    # Evaluations run where trainings do: what the gate will need is asked for before anything is paid.
    if (why := spec.recipe.why_unchecked()) is not None:
        raise InputError(f"recipe {spec.recipe.name}: {why}")
    if OBJECTIVES[spec.recipe.objective].rolls_out and spec.start_adapter is None:
        raise InputError(f"recipe {spec.recipe.name}: {NO_START}")
    if spec.recipe.method == "full" and spec.start_adapter is not None:
        raise InputError(f"recipe {spec.recipe.name} trains all weights: it cannot start from an adapter")
    if not (spec.base_model / "config.json").is_file():
        raise InputError(f"{spec.base_model} holds no model")
    require_modules(spec.recipe, ModelShape.read(spec.base_model))
    check_trackers(spec.tracking)
    if spec.recipe.optimisation.liger_kernels and find_spec("liger_kernel") is None:
        raise InputError(
            "optimisation.liger_kernels: liger-kernel is not installed: install `ec1[gpu]`, or switch it off"
        )
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise InputError("the specification asks for device cuda, and torch sees none on this machine")


def _start_or_go_on(spec: TrainingSpec, monitor: Monitor) -> None:
    """Keep the checkpoints of the same training; those of another one, or unwanted ones, are deleted."""
    run = spec.output / RUN
    same = run.is_file() and read_json(run).get("identity") == spec.identity
    if not (same and spec.resume):
        if newest_checkpoint(spec.checkpoints) is not None:
            why = "resume is off" if same else "they belong to another recipe, dataset, adapter or seed"
            monitor.note(f"earlier checkpoints were thrown away: {why}")
        discard_checkpoints(spec.checkpoints)
    (spec.output / SUMMARY).unlink(missing_ok=True)
    write_atomic(spec.output / LOCK, package_lock())
    write_json(
        run,
        {
            "identity": spec.identity,
            "started": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "spec": spec.model_dump(mode="json"),
            "provenance": provenance(spec.device),
        },
    )


def _attempt(
    spec: TrainingSpec, monitor: Monitor, batch: int, accumulation: int, extra_callbacks: Sequence["TrainerCallback"]
) -> TrainingResult:
    recipe = spec.recipe
    began = time.monotonic()
    with _quiet_libraries(), tempfile.TemporaryDirectory(prefix="ec1-training-") as scratch:
        monitor.report.progress(f"loading {recipe.base_model.id}")
        tokenizer = load_tokenizer(spec.base_model)
        rows, heldout, aside = load_rows(spec, Path(scratch))
        if OBJECTIVES[recipe.objective].writes_first:
            rows = right_answers(spec, rows, tokenizer, monitor)
        trainer = build_trainer(spec, tokenizer, rows, heldout, batch, accumulation, monitor.team.card)
        packing, patience = recipe.optimisation.packing, recipe.optimisation.early_stopping_patience
        usable = len(rows) if packing else len(trainer.train_dataset)
        if packing:
            monitor.note(f"{len(rows)} rows are packed into {len(trainer.train_dataset)} sequences")
        if patience is not None:
            monitor.note(f"the loss that decides when to stop is that of {len(heldout)} rows that are not trained on")
        if usable < len(rows):
            monitor.note(f"{len(rows) - usable} rows hold no answer within {recipe.data.max_length} tokens: left out")
        schedule = schedule_of(recipe, len(trainer.train_dataset), len(heldout))
        for text in schedule.notes:
            monitor.note(text)
        _apply(schedule, trainer)
        checkpoint = newest_checkpoint(spec.checkpoints)
        trackers = []
        if monitor.team.leads:
            went_on_after = step_of(checkpoint) if checkpoint else 0
            trackers = tracking_callbacks(spec.tracking, spec.output / TENSORBOARD, went_on_after, _settings_of(spec))
        early = [] if patience is None else [_early_stopping(patience, checkpoint)]
        questions, kept = [], []
        if (every := recipe.evaluation.task_steps) is not None:
            asked = Questions(recipe, aside.to_list(), tokenizer, spec.device)
            monitor.note(f"{len(asked)} rows of sources that are not trained on are questions on the way")
            questions = [asking(asked, every, monitor.report)]
        if recipe.optimisation.keep_steps is not None:
            kept = [callback_of_copies(spec, trainer, tokenizer, monitor)]
        for callback in (callback_of(monitor), *early, *questions, *kept, *extra_callbacks, *trackers):
            trainer.add_callback(callback)
        loaded = time.monotonic()
        monitor.report.progress(
            f"loaded in {loaded - began:.0f} s; {schedule.steps} steps"
            + (f", going on after step {step_of(checkpoint)}" if checkpoint else "")
        )
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        state = trainer.state
        if monitor.interrupted:
            raise Interrupted(f"stopped after step {state.global_step} of {schedule.steps}; it can go on from there")
        weights = None
        if monitor.verdict is None:
            weights = METHODS[recipe.method].weights
            _save_weights(trainer, tokenizer, spec, weights)
        history = [entry for entry in state.log_history if "tokens_per_second" in entry]
        if monitor.team.leads:
            _write_metrics(history, spec.output / METRICS)
        status = "diverged" if monitor.verdict else "partial" if monitor.out_of_time else "finished"
        if state.best_model_checkpoint is not None:
            ended = "ended early: " if status == "finished" and state.global_step < schedule.steps else ""
            monitor.note(
                f"{ended}the weights are those of step {state.best_global_step} of {state.global_step}, "
                f"with the lowest loss {state.best_metric:.3f}"
            )
        trained_seconds = sum(entry["seconds"] for entry in history)
        resumed_from = step_of(checkpoint) if checkpoint else None
        if status == "partial" and state.global_step <= schedule.warmup_steps:
            monitor.note(f"the budget ended at step {state.global_step}, in the warm-up of {schedule.warmup_steps}")
        evaluations = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
        margin = TRAINERS[recipe.objective].margin
        margins = [entry[margin] for entry in state.log_history if margin in entry]
        tokens = round(sum(entry["tokens"] for entry in history))
        return TrainingResult(
            status=status,
            verdict=monitor.verdict,
            identity=spec.identity,
            recipe=recipe.name,
            recipe_digest=spec.recipe_digest,
            dataset_digest=spec.dataset_digest,
            base_model=recipe.base_model.id,
            base_revision=recipe.base_model.revision,
            loader=loader_of(trainer.model.config).__name__,
            method=recipe.method,
            objective=recipe.objective,
            start_adapter=None if spec.start_adapter is None else spec.start_adapter.name,
            reference=_reference(spec),
            weights=weights,
            steps=state.global_step,
            planned_steps=schedule.steps,
            epochs=round(state.epoch or 0.0, 4),
            rows=usable,
            left_out_rows=len(rows) - usable,
            # Packed sequences are full by intention.
            full_rows=0 if packing else sum(length >= recipe.data.max_length for length in trainer.row_lengths),
            tokens=tokens,
            loss_first=history[0]["loss"] if history else None,
            loss_last=history[-1]["loss"] if history else None,
            heldout_loss_first=evaluations[0] if evaluations else None,
            heldout_loss_last=evaluations[-1] if evaluations else None,
            answered_right=tuple((each["step"], each[RIGHT]) for each in state.log_history if RIGHT in each),
            heldout_margin_first=margins[0] if margins else None,
            heldout_margin_last=margins[-1] if margins else None,
            trainable_parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
            changed_modules=0 if recipe.method == "full" else len(_changed_modules(trainer.model)),
            batch_size=batch,
            gradient_accumulation=accumulation,
            processes=spec.processes,
            fsdp=spec.fsdp,
            effective_batch=batch * accumulation * spec.processes,
            warmup_steps=schedule.warmup_steps,
            # Of the processes before this one only their steps are known; `train` adds this one's own time.
            seconds=sum(entry["seconds"] for entry in history if entry["step"] <= (resumed_from or 0)),
            training_seconds=round(trained_seconds, 1),
            tokens_per_second=round(tokens / max(trained_seconds, 1e-9), 1),
            peak_memory_gib=round(peak_memory_gib(monitor.cuda), 3),
            resumed_from=resumed_from,
            seed=spec.effective_seed,
            device=spec.device,
            hardware=_hardware(spec.device),
            tokenizer={
                name: sha256_file(spec.base_model / name)
                for name in TOKENIZER_FILES
                if (spec.base_model / name).is_file()
            },
            chat_template_sha256=hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest(),
            versions={name: version(name) for name in PACKAGES},
            notes=tuple(monitor.notes),
        )


def _early_stopping(patience: int, checkpoint: Path | None) -> "TrainerCallback":
    """Ends a training that gets no better; a resumed one goes on counting where it was."""
    from transformers import EarlyStoppingCallback

    callback = EarlyStoppingCallback(early_stopping_patience=patience)
    if checkpoint is not None:
        states = read_json(checkpoint / "trainer_state.json")["stateful_callbacks"]
        callback.early_stopping_patience_counter = states["EarlyStoppingCallback"]["attributes"][
            "early_stopping_patience_counter"
        ]
    return callback  # type: ignore[no-any-return, unused-ignore]


def _settings_of(spec: TrainingSpec) -> dict[str, Any]:
    """What trackers show of a training: the whole resolved recipe, and which data and start it had."""
    return {
        "recipe": spec.recipe.model_dump(mode="json", exclude_none=True),
        "recipe_digest": spec.recipe_digest,
        "dataset_digest": spec.dataset_digest,
        "start_adapter": "none" if spec.start_adapter is None else spec.start_adapter.name,
        "seed": spec.effective_seed,
    }


def _apply(schedule: Schedule, trainer: Any) -> None:
    """The schedule depends on how many rows are left, which only the trainer that was built with them knows."""
    trainer.args.warmup_steps = schedule.warmup_steps
    if schedule.limited:
        trainer.args.max_steps = schedule.steps
    if schedule.evaluation_steps is not None:
        trainer.args.eval_steps = schedule.evaluation_steps


def _changed_modules(model: Any) -> list[str]:
    """The adapter's modules whose B matrix is no longer the zeros that it starts with."""
    return [
        name
        for name, weight in model.named_parameters()
        if ".lora_B.default." in name and bool(whole(weight.detach()).count_nonzero())
    ]


def _save_weights(trainer: Any, tokenizer: Any, spec: TrainingSpec, name: str) -> None:
    """Write the adapter (or the whole model) as safetensors, with nothing in it that names this machine."""
    import torch

    if name != MODEL and not _changed_modules(trainer.model):
        raise PermanentError(
            "training changed nothing: every B matrix of the adapter is still zero; look at the learning rate, and "
            "at whether the rows hold an answer within data.max_length"
        )
    weights = trainer.whole_adapter()
    if not trainer.args.should_save:
        return
    folder = spec.output / name
    shutil.rmtree(folder, ignore_errors=True)
    with staged_directory(folder) as staging:
        if name == MODEL:
            # As it is served; held in 32 bits while it was trained.
            trainer.model.to(torch.bfloat16)
        trainer.write(staging, weights)
        if name == MODEL:
            tokenizer.save_pretrained(staging)
            return
        save_config(trainer.model.peft_config["default"], spec.recipe.base_model, staging)
        (staging / "chat_template.jinja").write_text(tokenizer.chat_template, encoding="utf-8")


def _write_metrics(history: Sequence[dict[str, Any]], path: Path) -> None:
    """One row per step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    measured = ("gpu_busy", *ROLLOUT_COLUMNS, RIGHT)
    columns = [*_METRIC_COLUMNS, *(name for name in measured if any(name in entry for entry in history))]
    table = pa.table({column: [entry.get(column) for entry in history] for column in columns})
    with atomic_file(path) as temporary:
        pq.write_table(table, temporary)


def _reference(spec: TrainingSpec) -> str | None:
    if not OBJECTIVES[spec.recipe.objective].reference:
        return None
    if spec.start_adapter is not None:
        return spec.start_adapter.name
    return f"{spec.recipe.base_model.id}@{spec.recipe.base_model.revision}"


def _hardware(device: str) -> str:
    import torch

    if device == "cuda":
        return str(torch.cuda.get_device_name(0))
    return f"CPU, {torch.get_num_threads()} threads"


def _is_out_of_memory(error: Exception) -> bool:
    import torch
    from accelerate.utils.memory import should_reduce_batch_size

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or should_reduce_batch_size(error)


def _free_memory() -> None:
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """No progress bars in a log file; progress is told through the reporter."""
    import datasets
    from transformers.utils import logging as transformers_logging

    shown = datasets.is_progress_bar_enabled(), transformers_logging.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown[0]:
            datasets.enable_progress_bars()
        if shown[1]:
            transformers_logging.enable_progress_bar()

"""Train one adapter from a specification, with TRL's trainers, PEFT and bitsandbytes.

Belongs here: loading, training, going on after an interruption, and what is left behind. Does not: what to train on
(`ec1.corpus`), whether the result is any good (`ec1.adapters`), and where the process runs (`launcher.py`).

https://huggingface.co/docs/trl/sft_trainer, https://huggingface.co/docs/trl/dpo_trainer
"""

import contextlib
import gc
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.errors import InputError, PermanentError
from ec1.files import read_json, staged_directory, write_atomic, write_json
from ec1.training.checkpoints import discard_checkpoints, newest_checkpoint, step_of
from ec1.training.cpu import keep_gradients, score_answers_only
from ec1.training.monitor import Monitor, callback_of, peak_memory_gib
from ec1.training.plan import Schedule, schedule_of
from ec1.training.recipes import Recipe
from ec1.training.reporting import Reporter
from ec1.training.spec import ADAPTER, METRICS, MODEL, SUMMARY, TrainingResult, TrainingSpec, finished

if TYPE_CHECKING:
    from transformers import TrainerCallback

RUN = "run.json"
PACKAGES = ("torch", "transformers", "trl", "peft", "bitsandbytes", "accelerate", "datasets", "safetensors")
_METRIC_COLUMNS = (
    *("step", "epoch", "loss", "grad_norm", "learning_rate"),
    *("tokens", "tokens_per_second", "seconds", "peak_memory_gib"),
)
_WEIGHTS = "adapter_model.safetensors"


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
    if (ready := finished(spec)) is not None:
        report.progress("this training ended before: nothing to do")
        return ready
    began = time.monotonic()
    _check(spec)
    monitor = Monitor(
        spec.recipe, report, spec.checkpoints, deadline=began + spec.budget_seconds, cuda=spec.device == "cuda"
    )
    on_monitor(monitor)
    _start_or_go_on(spec, monitor)
    batch, accumulation = spec.recipe.optimisation.batch_size, spec.recipe.optimisation.gradient_accumulation
    while True:
        try:
            result = _attempt(spec, monitor, batch, accumulation, extra_callbacks)
            break
        except (RuntimeError, MemoryError) as error:
            if not _is_out_of_memory(error):
                raise
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
    write_atomic(spec.output / SUMMARY, result.model_dump_json(indent=2) + "\n")
    if result.status != "partial":
        discard_checkpoints(spec.checkpoints)
    return result


def halved(batch: int, accumulation: int) -> tuple[int, int]:
    """A smaller batch and more accumulation, with their product unchanged."""
    smaller = next(size for size in range(batch // 2, 0, -1) if batch % size == 0)
    return smaller, accumulation * (batch // smaller)


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a base model, with the chat template that serving uses. Raises InputError if it has none."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer.chat_template:
        raise InputError(f"{folder} has no chat template: training and serving need the same one")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_base(recipe: Recipe, folder: Path, device: str) -> Any:
    """The base model in bfloat16, quantised if the recipe says so, on its device."""
    import torch
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    quantization = None
    if recipe.method == "qlora":
        assert recipe.quantization is not None
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=recipe.quantization.type,
            bnb_4bit_use_double_quant=recipe.quantization.double,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        # A model's own default may be float32, which takes twice the memory.
        dtype=torch.bfloat16,
        quantization_config=quantization,
        attn_implementation=recipe.hardware.attention,
        device_map={"": 0} if device == "cuda" else None,
    )
    if device == "cpu":
        keep_gradients(model)
    return model


def _check(spec: TrainingSpec) -> None:
    """Everything that can be wrong and costs nothing to look at."""
    import torch

    if spec.recipe.digest() != spec.recipe_digest:
        raise InputError("the specification's recipe_digest is not that of its recipe")
    if spec.recipe.method == "full" and spec.start_adapter is not None:
        raise InputError(f"recipe {spec.recipe.name} trains all weights: it cannot start from an adapter")
    if not (spec.base_model / "config.json").is_file():
        raise InputError(f"{spec.base_model} holds no model")
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise InputError("the specification asks for device cuda, and torch sees none on this machine")


def _start_or_go_on(spec: TrainingSpec, monitor: Monitor) -> None:
    """Keep the checkpoints of this very training; those of another one, or unwanted ones, are thrown away."""
    run = spec.output / RUN
    same = run.is_file() and read_json(run).get("identity") == spec.identity
    if not (same and spec.resume):
        if newest_checkpoint(spec.checkpoints) is not None:
            why = "resume is off" if same else "they belong to another recipe, dataset, adapter or seed"
            monitor.note(f"earlier checkpoints were thrown away: {why}")
        discard_checkpoints(spec.checkpoints)
    (spec.output / SUMMARY).unlink(missing_ok=True)
    write_json(run, {"identity": spec.identity, "spec": spec.model_dump(mode="json")})


def _attempt(
    spec: TrainingSpec, monitor: Monitor, batch: int, accumulation: int, extra_callbacks: Sequence["TrainerCallback"]
) -> TrainingResult:
    recipe = spec.recipe
    began = time.monotonic()
    with _quiet_libraries(), tempfile.TemporaryDirectory(prefix="ec1-training-") as scratch:
        monitor.report.progress(f"loading {recipe.base_model.id}")
        tokenizer = load_tokenizer(spec.base_model)
        rows, heldout = _load_rows(spec, Path(scratch))
        trainer = build_trainer(spec, tokenizer, rows, heldout, batch, accumulation)
        usable = len(trainer.train_dataset)
        if usable < len(rows):
            monitor.note(f"{len(rows) - usable} rows hold no answer within {recipe.data.max_length} tokens: left out")
        schedule = schedule_of(recipe, usable, len(heldout))
        for text in schedule.notes:
            monitor.note(text)
        _apply(schedule, trainer)
        for callback in (callback_of(monitor), *extra_callbacks):
            trainer.add_callback(callback)
        checkpoint = newest_checkpoint(spec.checkpoints)
        loaded = time.monotonic()
        monitor.report.progress(
            f"loaded in {loaded - began:.0f} s; {schedule.steps} steps"
            + (f", going on after step {step_of(checkpoint)}" if checkpoint else "")
        )
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        state = trainer.state
        if monitor.stop_requested and state.global_step < schedule.steps:
            raise Interrupted(f"stopped after step {state.global_step} of {schedule.steps}; it can go on from there")
        weights = None
        if monitor.verdict is None:
            weights = MODEL if recipe.method == "full" else ADAPTER
            _save_weights(trainer, tokenizer, spec, weights)
        history = [entry for entry in state.log_history if "tokens_per_second" in entry]
        _write_metrics(history, spec.output / METRICS)
        status = "diverged" if monitor.verdict else "partial" if state.global_step < schedule.steps else "finished"
        trained_seconds = sum(entry["seconds"] for entry in history)
        resumed_from = step_of(checkpoint) if checkpoint else None
        evaluations = [entry["eval_loss"] for entry in state.log_history if "eval_loss" in entry]
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
            full_rows=sum(length >= recipe.data.max_length for length in trainer.row_lengths),
            tokens=tokens,
            loss_first=history[0]["loss"] if history else None,
            loss_last=history[-1]["loss"] if history else None,
            heldout_loss_first=evaluations[0] if evaluations else None,
            heldout_loss_last=evaluations[-1] if evaluations else None,
            trainable_parameters=sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
            changed_modules=0 if recipe.method == "full" else len(_changed_modules(trainer.model)),
            batch_size=batch,
            gradient_accumulation=accumulation,
            effective_batch=batch * accumulation,
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
            chat_template_sha256=hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest(),
            versions={name: version(name) for name in PACKAGES},
            notes=tuple(monitor.notes),
        )


def _load_rows(spec: TrainingSpec, scratch: Path) -> tuple[Any, Any]:
    """The dataset's rows with the columns of the objective only. Raises InputError if they are not there."""
    from datasets import Dataset

    wanted = ["prompt", "chosen", "rejected"] if spec.recipe.objective == "dpo" else ["prompt", "completion"]
    parts = []
    for side in ("train", "heldout"):
        files = sorted(str(path) for path in (spec.dataset / side).glob("*.parquet"))
        if not files:
            raise InputError(f"{spec.dataset / side} holds no rows")
        # What the library derives from a data set it caches beside it, and this one is immutable.
        rows = Dataset.from_parquet(files, cache_dir=str(scratch / side))
        if missing := [column for column in wanted if column not in rows.column_names]:
            raise InputError(f"{spec.dataset / side} lacks {', '.join(missing)}: objective {spec.recipe.objective}")
        parts.append(rows.select_columns(wanted))
    if len(parts[0]) == 0:
        raise PermanentError(f"{spec.dataset} holds no row to train on")
    return parts[0], parts[1]


def build_trainer(spec: TrainingSpec, tokenizer: Any, rows: Any, heldout: Any, batch: int, accumulation: int) -> Any:
    """TRL's trainer for the recipe's objective and method, ready to train. Raises PermanentError for a bad target."""
    from peft import PeftModel
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    recipe, wish = spec.recipe, spec.recipe.optimisation
    model = load_base(recipe, spec.base_model, spec.device)
    peft_config = None
    if recipe.method != "full":
        _check_targets(recipe, model)
        if spec.start_adapter is None:
            peft_config = _lora_config(recipe)
        else:
            # For DPO, TRL keeps a frozen copy of an adapter that comes with the model, as the reference.
            model = PeftModel.from_pretrained(model, str(spec.start_adapter.folder), is_trainable=True)
    evaluates = wish.evaluation_steps is not None and len(heldout) > 0
    common = dict(
        output_dir=str(spec.checkpoints),
        num_train_epochs=wish.epochs,
        learning_rate=wish.learning_rate,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        lr_scheduler_type=wish.scheduler,
        optim=wish.optimizer,
        weight_decay=wish.weight_decay,
        max_grad_norm=wish.max_grad_norm,
        gradient_checkpointing=wish.gradient_checkpointing,
        max_length=recipe.data.max_length,
        # All is in 16 bits anyway, but for the adapter of a base that is not quantised; on a CPU autocast's look at
        # every operation is not free.
        bf16=spec.device == "cuda" or recipe.method == "lora",
        use_cpu=spec.device == "cpu",
        seed=spec.effective_seed,
        data_seed=spec.effective_seed,
        logging_steps=1,
        # On by default, it replaces a NaN loss by the average of the ones before.
        logging_nan_inf_filter=False,
        eval_strategy="steps" if evaluates else "no",
        eval_on_start=evaluates and newest_checkpoint(spec.checkpoints) is None,
        # The monitor decides when to save, and which checkpoints to keep.
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=spec.device == "cuda",
        dataset_num_proc=None,
    )
    data = dict(train_dataset=rows, eval_dataset=heldout if evaluates else None, processing_class=tokenizer)
    if recipe.objective == "dpo":
        assert recipe.dpo is not None
        arguments: Any = DPOConfig(**common, beta=recipe.dpo.beta)
        kind = _repeatable(DPOTrainer)
    else:
        arguments = SFTConfig(
            **common, completion_only_loss=True, packing=False, neftune_noise_alpha=wish.neftune_alpha
        )
        kind = _repeatable(SFTTrainer)
    trainer = kind(model=model, args=arguments, peft_config=peft_config, **data)
    trainer.group_rows = wish.group_by_length
    if spec.device == "cpu":
        score_answers_only(trainer.model if recipe.method == "full" else trainer.model.get_base_model())
    if len(trainer.train_dataset) == 0:
        raise PermanentError(
            f"no row of {spec.dataset} holds an answer within data.max_length of {recipe.data.max_length} tokens"
        )
    return trainer


def _apply(schedule: Schedule, trainer: Any) -> None:
    """The schedule depends on how many rows are left, which only the trainer that was built with them knows."""
    trainer.args.warmup_steps = schedule.warmup_steps
    if schedule.evaluation_steps is not None:
        trainer.args.eval_steps = schedule.evaluation_steps


def _check_targets(recipe: Recipe, model: Any) -> None:
    """PEFT refuses if no module matches at all; one misspelt name among seven would pass unseen."""
    assert recipe.lora is not None
    there = {name.rpartition(".")[-1] for name, module in model.named_modules() if hasattr(module, "in_features")}
    missing = [name for name in recipe.lora.target_modules if name not in there]
    if missing:
        raise PermanentError(
            f"recipe {recipe.name}: {recipe.base_model.id} has no module {', '.join(missing)}; "
            f"lora.target_modules can be of {', '.join(sorted(there - {'lm_head'}))}"
        )


def _lora_config(recipe: Recipe) -> Any:
    from peft import LoraConfig

    assert recipe.lora is not None
    return LoraConfig(
        r=recipe.lora.r,
        lora_alpha=recipe.lora.alpha,
        lora_dropout=recipe.lora.dropout,
        target_modules=list(recipe.lora.target_modules),
        use_rslora=recipe.lora.rank_stabilised,
        use_dora=recipe.lora.dora,
        task_type="CAUSAL_LM",
    )


def _repeatable(base: Any) -> Any:
    """One of TRL's trainers that goes on from a checkpoint exactly as if it had never stopped."""
    import torch
    from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file, save_file
    from transformers.trainer_pt_utils import LengthGroupedSampler

    class EpochSampler(LengthGroupedSampler):  # type: ignore[misc, unused-ignore]
        """An order that depends on seed and epoch alone. The library's takes it from the global random state."""

        def __init__(self, seed: int, batch_size: int, lengths: list[int]) -> None:
            super().__init__(batch_size, lengths=lengths, generator=torch.Generator())
            self.seed = seed
            self.epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[int]:
            self.generator.manual_seed(self.seed * 1_000_003 + self.epoch)
            return iter(super().__iter__())

    class RepeatableTrainer(base):  # type: ignore[misc]
        group_rows = True

        @property
        def row_lengths(self) -> list[int]:
            """Tokens of each row that is trained on; of a pair the longer of its two sequences."""
            data = self.train_dataset
            if "input_ids" in data.column_names:
                return [len(ids) for ids in data["input_ids"]]
            columns = zip(data["prompt_ids"], data["chosen_ids"], data["rejected_ids"], strict=True)
            limit = self.args.max_length
            return [min(limit, len(prompt) + max(len(a), len(b))) for prompt, a, b in columns]

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            if not self.group_rows:
                return super()._get_train_sampler(train_dataset)
            effective = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
            return EpochSampler(self.args.seed, effective, self.row_lengths)

        def create_model_card(self, *args: Any, **kwargs: Any) -> None:
            """None: a card would name this machine's folders."""

        # Trainer saves the tokenizer and a pickle of its arguments with every checkpoint. And where a preference
        # training has a second, frozen adapter, it loads that one back and forgets the one that is trained.
        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            if isinstance(self.model, PeftModel):
                # Else PEFT looks on the hub whether the base's vocabulary has changed.
                weights = get_peft_model_state_dict(self.model, adapter_name="default", save_embedding_layers=False)
                save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / _WEIGHTS)
            else:
                self.model.save_pretrained(folder)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            if isinstance(self.model, PeftModel):
                weights = load_file(Path(resume_from_checkpoint) / _WEIGHTS)
                set_peft_model_state_dict(self.model, weights, adapter_name="default")
            else:
                super()._load_from_checkpoint(resume_from_checkpoint, model)

    return RepeatableTrainer


def _changed_modules(model: Any) -> list[str]:
    """The adapter's modules whose B matrix is no longer the zeros that it starts with."""
    return [
        name
        for name, weight in model.named_parameters()
        if ".lora_B.default." in name and bool(weight.detach().count_nonzero())
    ]


def _save_weights(trainer: Any, tokenizer: Any, spec: TrainingSpec, name: str) -> None:
    """Write the adapter (or the whole model) as safetensors, with nothing in it that names this machine."""
    folder = spec.output / name
    shutil.rmtree(folder, ignore_errors=True)
    with staged_directory(folder) as staging:
        if name == MODEL:
            trainer.model.save_pretrained(staging)
            tokenizer.save_pretrained(staging)
            return
        changed = _changed_modules(trainer.model)
        if not changed:
            raise PermanentError(
                "training changed nothing: every B matrix of the adapter is still zero; look at the learning rate, and "
                "at whether the rows hold an answer within data.max_length"
            )
        config = trainer.model.peft_config["default"]
        # Readers look for the base by this id; PEFT wrote the folder that it was loaded from.
        config.base_model_name_or_path = spec.recipe.base_model.id
        config.revision = spec.recipe.base_model.revision
        config.inference_mode = True
        config.save_pretrained(staging)
        trainer._save(str(staging))
        (staging / "chat_template.jinja").write_text(tokenizer.chat_template)


def _write_metrics(history: Sequence[dict[str, Any]], path: Path) -> None:
    """One row a step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({column: [entry.get(column) for entry in history] for column in _METRIC_COLUMNS})
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".metrics.", delete=False) as stream:
        pq.write_table(table, stream)
    Path(stream.name).replace(path)


def _reference(spec: TrainingSpec) -> str | None:
    if spec.recipe.objective != "dpo":
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
    from accelerate.utils.memory import should_reduce_batch_size  # type: ignore[import-untyped, unused-ignore]

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

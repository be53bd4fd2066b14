"""A specification as TRL's trainer: its rows, its tokenizer, and method and objective put together.

Belongs here: all that is made before the first step. Does not: what differs between methods and objectives (there is a
module for each), and what happens from the first step on (`trainer.py`).
"""

import dataclasses
from pathlib import Path
from typing import Any

from ec1.answers.answering import fold_slices
from ec1.corpus.row_kinds import PAIRS
from ec1.errors import InputError, PermanentError
from ec1.files import digest_of
from ec1.models import Precision, precision_on, weight_bytes_in
from ec1.recipes.objectives import OBJECTIVES
from ec1.seals import FILES, MANIFEST, check_files, read_sealed
from ec1.training.checkpoints import newest_checkpoint
from ec1.training.cpu import score_answers_only
from ec1.training.methods import METHODS, fuses_kernels, in_32_bits, put_adapter_on
from ec1.training.objectives import TRAINERS
from ec1.training.packed import require_hidden_rows
from ec1.training.plan import VALIDATION_SHARE
from ec1.training.spec import TrainingSpec
from ec1.training.tracking import PROJECT


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a base model, with the chat template that serving uses. Raises InputError if it has none."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer.chat_template:
        raise InputError(f"{folder} has no chat template: training and serving need the same one")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_rows(spec: TrainingSpec, scratch: Path) -> tuple[Any, Any, Any]:
    """Rows to train on and to measure on, with the columns of the objective only, and all of those set aside, if any.

    They are the dataset's two sides; with early stopping, both are of the training side: what the gate scores must not
    choose the weights. Raises InputError if the columns are not there.
    """
    from datasets import Dataset

    kind = OBJECTIVES[spec.recipe.objective].rows
    wanted = list(kind.columns)
    if (spec.dataset / MANIFEST).is_file():
        # It may have come from another machine; one that was made by hand has no manifest.
        mend = "start the night again, which builds it again"
        check_files(spec.dataset, read_sealed(spec.dataset, mend)[FILES], mend)
    parts = []
    for side in ("train", "heldout"):
        files = sorted(str(path) for path in (spec.dataset / side).glob("*.parquet"))
        if not files:
            raise InputError(f"{spec.dataset / side} holds no rows")
        # What the library derives from a data set it caches beside it, and this one is immutable.
        rows = Dataset.from_parquet(files, cache_dir=str(scratch / side))
        if missing := [column for column in wanted if column not in rows.column_names]:
            raise InputError(f"{spec.dataset / side} lacks {', '.join(missing)}: objective {spec.recipe.objective}")
        if kind.tokens and set(kind.tokens) <= set(rows.column_names):
            wanted = list(kind.tokens)
        parts.append(rows)
    if len(parts[0]) == 0:
        raise PermanentError(f"{spec.dataset} holds no row to train on")
    aside = None
    if spec.recipe.sets_aside:
        parts[0], aside = _set_aside(parts[0], spec)
    if spec.recipe.optimisation.early_stopping_patience is not None:
        parts[1] = aside
    return parts[0].select_columns(wanted), parts[1].select_columns(wanted), aside


def _set_aside(rows: Any, spec: TrainingSpec) -> tuple[Any, Any]:
    """The rows without a tenth of their sources, and the rows of that tenth."""
    groups = sorted(set(rows["group"]), key=lambda group: digest_of([spec.effective_seed, group]))
    if len(groups) < 2:
        raise PermanentError(
            f"{spec.dataset}: optimisation.early_stopping_patience and evaluation.task_steps need rows of at least two "
            "sources, there is one"
        )
    aside = set(groups[: max(1, round(VALIDATION_SHARE * len(groups)))])
    chosen = [group in aside for group in rows["group"]]
    return (
        rows.select([place for place, taken in enumerate(chosen) if not taken]),
        rows.select([place for place, taken in enumerate(chosen) if taken]),
    )


def build_trainer(
    spec: TrainingSpec, tokenizer: Any, rows: Any, heldout: Any, batch: int, accumulation: int, card: int = 0
) -> Any:
    """TRL's trainer for the recipe's objective and method, ready to train. Raises PermanentError for a bad target.

    `batch` and `accumulation` are those of this process, `card` is the index of its card.
    """
    from accelerate.utils import AutocastKwargs
    from peft import PeftModel

    recipe, wish = spec.recipe, spec.recipe.optimisation
    method, objective = METHODS[recipe.method], TRAINERS[recipe.objective]
    # Parts of a model are put together in 16 bits.
    precision: Precision = "bfloat16"
    if not spec.fsdp:
        precision = precision_on(spec.device, weight_bytes_in(spec.base_model))
    # One that is to be spread over cards need not fit one.
    model = method.base(recipe, spec.base_model, card if spec.device == "cuda" and not spec.fsdp else None, precision)
    adapter = method.adapter(recipe, model)
    if adapter is not None and spec.start_adapter is not None:
        # For DPO, TRL keeps a frozen copy of an adapter that comes with the model, as the reference.
        model, adapter = PeftModel.from_pretrained(model, str(spec.start_adapter.folder), is_trainable=True), None
    elif adapter is not None and not objective.fused_head:
        model, adapter = put_adapter_on(model, adapter), None
    evaluates = wish.evaluation_steps is not None and len(heldout) > 0
    trainer_class, arguments_class = objective.classes()
    settings = _arguments(arguments_class, spec, batch, accumulation, precision, evaluates=evaluates)
    arguments = arguments_class(**settings)
    if arguments.n_gpu > 1:
        # One process would spread each batch over all cards that it sees, and one is its own.
        arguments._n_gpu = 1
    trainer = objective.base(trainer_class)(
        model=model,
        args=arguments,
        peft_config=adapter,
        train_dataset=rows,
        eval_dataset=heldout if evaluates else None,
        processing_class=tokenizer,
        **({} if objective.rewards is None else {"reward_funcs": objective.rewards(recipe, tokenizer)}),
    )
    in_32_bits(trainer.model)
    if recipe.method == "full":
        # Each weight is cast once a pass; kept, the 16-bit copies of all would lie beside them until its end.
        trainer.accelerator.autocast_handler = AutocastKwargs(cache_enabled=False)
    if not spec.fsdp:
        # What a model writes, and the likelihood of it, are slices.
        fold_slices(trainer.model)
    trainer.group_rows = wish.group_by_length
    if wish.packing:
        require_hidden_rows(trainer.model, trainer.data_collator)
    if not objective.fused_head:
        trainer.counted_tokens = 0
        trainer.train_dataset = trainer.train_dataset.filter(_has_both_answers)
    elif spec.device == "cpu" and not spec.fsdp and objective.rewards is None:
        causal = trainer.model if recipe.method == "full" else trainer.model.get_base_model()
        score_answers_only(causal, pairs=OBJECTIVES[recipe.objective].rows is PAIRS)
    if len(trainer.train_dataset) == 0:
        raise PermanentError(
            f"no row of {spec.dataset} holds an answer within data.max_length of {recipe.data.max_length} tokens"
        )
    return trainer


def _arguments(
    of: Any, spec: TrainingSpec, batch: int, accumulation: int, precision: Precision, *, evaluates: bool
) -> dict[str, Any]:
    """What `of`, TRL's configuration of the objective, is made of."""
    recipe, wish = spec.recipe, spec.recipe.optimisation
    objective = TRAINERS[recipe.objective]
    stops_early = evaluates and wish.early_stopping_patience is not None
    whole_layers = recipe.lora is not None and bool(recipe.lora.modules_to_save)
    settings = dict(
        output_dir=str(spec.checkpoints),
        run_name=spec.run_name,
        project=PROJECT,
        num_train_epochs=wish.epochs,
        learning_rate=wish.learning_rate,
        per_device_train_batch_size=batch * recipe.answers,
        per_device_eval_batch_size=batch,
        gradient_accumulation_steps=accumulation,
        lr_scheduler_type="cosine_with_min_lr" if wish.min_rate_share else wish.scheduler,
        lr_scheduler_kwargs={"min_lr_rate": wish.min_rate_share} if wish.min_rate_share else None,
        optim=wish.optimizer,
        weight_decay=wish.weight_decay,
        max_grad_norm=wish.max_grad_norm,
        gradient_checkpointing=wish.gradient_checkpointing,
        use_liger_kernel=fuses_kernels(recipe, spec.device),
        # The base is in 16 bits anyway, and a quantised one computes in them; on a CPU autocast's look at every
        # operation is not free. It also gives back logits in 32 bits, from which differences can be taken.
        bf16=precision == "bfloat16"
        and (
            spec.device == "cuda"
            or (objective.casts and (recipe.method != "qlora" or whole_layers or not objective.fused_head))
        ),
        use_cpu=spec.device == "cpu",
        fsdp=spec.fsdp,
        # All of an adapter takes part in every step.
        ddp_find_unused_parameters=False if spec.processes > 1 else None,
        seed=spec.effective_seed,
        data_seed=spec.effective_seed,
        logging_steps=1,
        # On by default, it replaces a NaN loss by the average of the ones before.
        logging_nan_inf_filter=False,
        eval_strategy="steps" if evaluates else "no",
        eval_on_start=evaluates and newest_checkpoint(spec.checkpoints) is None,
        # The monitor decides when to save, and which checkpoints to keep.
        save_strategy="best" if stops_early else "no",
        load_best_model_at_end=stops_early,
        metric_for_best_model="loss" if stops_early else None,
        # Trackers are added by hand, after the monitor has completed a step's figures.
        report_to=[],
        disable_tqdm=True,
        dataloader_pin_memory=spec.device == "cuda",
        **objective.settings(recipe),
    )
    if objective.rewards is None:
        # What is asked was measured when the dataset was made, and an answer ends by a bound of its own.
        answer = recipe.own_answers.max_tokens if recipe.own_answers is not None else 0
        settings |= {"max_length": recipe.data.max_length + answer, "dataset_num_proc": None}
    if recipe.method != "full" and "router_aux_loss_coef" in {each.name for each in dataclasses.fields(of)}:
        # No loss that keeps experts in equal use, where an adapter leaves their routers as they are.
        settings["router_aux_loss_coef"] = 0.0
    return settings


def _has_both_answers(row: dict[str, list[int]]) -> bool:
    return all(row[labels][-1] != -100 for labels in ("chosen_labels", "rejected_labels"))

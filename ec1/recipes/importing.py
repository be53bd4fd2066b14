"""Recipes of Axolotl and LLaMA-Factory as ours: each key is carried, or named with the reason why it is not.

Belongs here: what their keys mean in a recipe, and their defaults, which differ from ours. Does not: their data sets
(`ec1 corpus import` reads those).

https://docs.axolotl.ai/docs/config-reference.html,
https://llamafactory.readthedocs.io/en/latest/getting_started/sft.html, and the arguments of transformers' Trainer.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from ec1.errors import InputError
from ec1.recipes.schema import DpoLoss

Put = Callable[["_Importing", Any], None]

_SCHEDULERS = ("linear", "cosine", "constant", "constant_with_warmup")
_OPTIMIZERS = {
    "adamw_torch": "adamw_torch",
    "adamw_torch_fused": "adamw_torch_fused",
    "adamw_hf": "adamw_torch",
    "paged_adamw_8bit": "paged_adamw_8bit",
}
_ATTENTION = {"sdpa": "sdpa", "eager": "eager", "flash_attention_2": "flash_attention_2", "fa2": "flash_attention_2"}


@dataclass(frozen=True)
class Imported:
    """A recipe as YAML, and what of the other file it does not hold: key -> why."""

    source: str
    """Axolotl or LLaMA-Factory."""
    text: str
    not_carried: dict[str, str]


def import_recipe(values: Mapping[str, Any], tenant: str, role: str) -> Imported:
    """Turn the values of such a file into a recipe that extends `base`. Raises InputError for a file of neither kind,
    and for one whose training has no counterpart here."""
    if "model_name_or_path" in values:
        source, keys, defaults = "LLaMA-Factory", _LLAMA_FACTORY, _LLAMA_FACTORY_DEFAULTS
    elif "base_model" in values and not isinstance(values["base_model"], Mapping):
        source, keys, defaults = "Axolotl", _AXOLOTL, _AXOLOTL_DEFAULTS
    else:
        raise InputError("it names neither base_model (Axolotl) nor model_name_or_path (LLaMA-Factory)")
    made = _Importing(dict(values))
    for key, value in values.items():
        made.key = key
        if value is None:
            continue
        if key in _ELSEWHERE:
            made.refuse(_ELSEWHERE[key])
        elif key not in keys:
            made.refuse("not known here")
        else:
            keys[key](made, value)
    made.finish(defaults, source)
    return Imported(source, _yaml(made.values, tenant, role, source), dict(sorted(made.not_carried.items())))


@dataclass
class _Importing:
    """The values so far (dotted key -> value and where it comes from), and what cannot be carried."""

    given: dict[str, Any]
    values: dict[str, tuple[Any, str]] = field(default_factory=dict)
    not_carried: dict[str, str] = field(default_factory=dict)
    key: str = ""

    def put(self, target: str, value: Any, origin: str | None = None) -> None:
        self.values[target] = (value, origin or self.key)

    def refuse(self, reason: str) -> None:
        self.not_carried[self.key] = reason

    def finish(self, defaults: Mapping[str, Any], source: str) -> None:
        """The other's defaults for what it leaves out, and the sections that a method or objective needs."""
        for target, value in defaults.items():
            if target == "optimisation.warmup_share" and "optimisation.warmup_steps" in self.values:
                continue
            if target not in self.values:
                self.put(target, value, f"default of {source}")
        method = self.values["method"][0]
        if "optimisation.warmup_steps" in self.values:
            # Steps win over a share in both.
            self.put("optimisation.warmup_share", None, self.values["optimisation.warmup_steps"][1])
        if method == "full":
            dropped = [key for key in self.values if key.startswith("lora.")]
            for key in dropped:
                del self.values[key]
            self.put("lora", None, self.values["method"][1])
        elif "lora.alpha" not in self.values:
            rank = self.values["lora.r"][0]
            self.put("lora.alpha", 2 * rank, f"default of {source}")
        if method != "qlora":
            self.put("quantization", None, self.values["method"][1])
        if "optimisation.max_steps" in self.values:
            # There it takes the place of the epochs; here the first of the two ends the training.
            self.put("optimisation.epochs", 100, self.values["optimisation.max_steps"][1])
        objective = self.values["objective"][0]
        for target in [key for key in self.values if key.startswith("preference.")]:
            value, origin = self.values.pop(target)
            if objective != "sft":
                self.put(f"{objective}.{target.removeprefix('preference.')}", value, origin)
        for target in [key for key in self.values if key.startswith("dpo.") and objective != "dpo"]:
            self.key = self.values.pop(target)[1]
            self.refuse(f"has no effect with objective {objective}")
        if objective != "sft":
            self.values.setdefault(f"{objective}.beta", (_BETA[objective], f"default of {source}"))
        if objective == "simpo":
            self.values.setdefault("simpo.gamma", (0.5, f"default of {source}"))
        if self.values.get("kind", ("",))[0] != "pretraining" and self.values.pop("lora.modules_to_save", None):
            self.key = "lora_modules_to_save" if source == "Axolotl" else "additional_target"
            self.refuse("vLLM cannot serve layers that were trained whole")


_BETA = {"dpo": 0.1, "orpo": 0.1, "simpo": 2.0}


def _to(target: str, kind: type = object) -> Put:
    def put(made: _Importing, value: Any) -> None:
        made.put(target, kind(value) if kind is not object else value)

    return put


def _only(allowed: Any, why: str) -> Put:
    """A key that says what is so here anyway; any other value cannot be carried."""

    def put(made: _Importing, value: Any) -> None:
        if value not in allowed:
            made.refuse(why)

    return put


def _choice(target: str, choices: Mapping[str, Any]) -> Put:
    def put(made: _Importing, value: Any) -> None:
        if str(value) in choices:
            made.put(target, choices[str(value)])
        else:
            made.refuse(f"{value} has no counterpart: {target} can be of {', '.join(sorted(set(choices.values())))}")

    return put


def _model(made: _Importing, value: Any) -> None:
    made.put("base_model.id", str(value))
    if str(value).startswith((".", "/", "~")):
        raise InputError(f"{made.key}: {value} is a folder: name the model's id, and the folder in the deployment")


def _names(target: str) -> Put:
    def put(made: _Importing, value: Any) -> None:
        names = [name.strip() for name in value.split(",")] if isinstance(value, str) else list(value)
        if target == "lora.target_modules" and (names in (["all"], ["all-linear"])):
            made.put(target, "all-linear")
            return
        if "lm_head" in names and target == "lora.target_modules":
            made.refuse("lm_head cannot carry an adapter here; the other layers are carried")
            names = [name for name in names if name != "lm_head"]
        made.put(target, names)

    return put


def _if_true(target: str, value_there: Any) -> Put:
    def put(made: _Importing, value: Any) -> None:
        if value is True or value == "true":
            made.put(target, value_there)

    return put


def _steps(made: _Importing, value: Any) -> None:
    if isinstance(value, int) and value > 0:
        made.put("optimisation.max_steps", value)


def _warmup(made: _Importing, value: Any) -> None:
    """Steps; below 1 a share of them, as in transformers 5."""
    if 0 < float(value) < 1:
        made.put("optimisation.warmup_share", float(value))
    else:
        made.put("optimisation.warmup_steps", int(value))


def _sampling(made: _Importing, value: Any) -> None:
    if value in ("random", "group_by_length"):
        made.put("optimisation.group_by_length", value == "group_by_length")
    else:
        made.refuse(f"{value}: rows come in a random order, or in one by length")


def _every(made: _Importing, value: Any) -> None:
    if isinstance(value, int) and value >= 1:
        made.put("optimisation.evaluation_steps", value)
    else:
        made.refuse("a share of the steps: write optimisation.evaluation_steps as a number of steps")


def _held_out(made: _Importing, value: Any) -> None:
    if 0 < float(value) < 1:
        made.put("data.heldout_share", float(value))
    else:
        made.refuse("not a share of the rows: data.heldout_share keeps its default, for the gate needs held-out rows")


def _scheduler(made: _Importing, value: Any) -> None:
    if value == "cosine_with_min_lr":
        made.put("optimisation.scheduler", "cosine")
    else:
        _choice("optimisation.scheduler", {name: name for name in _SCHEDULERS})(made, value)


def _scheduler_values(made: _Importing, value: Any) -> None:
    rest = dict(value) if isinstance(value, Mapping) else {"?": value}
    if "min_lr_rate" in rest:
        made.put("optimisation.min_rate_share", rest.pop("min_lr_rate"))
    if rest:
        made.refuse(f"{', '.join(map(str, rest))} cannot be set")


def _checkpointing(made: _Importing, value: Any) -> None:
    made.put("optimisation.gradient_checkpointing", bool(value))
    if not isinstance(value, bool):
        made.refuse(f"{value}: recomputed on the device, as with true")


def _patience(made: _Importing, value: Any) -> None:
    if isinstance(made.given.get("eval_steps"), int):
        made.put("optimisation.early_stopping_patience", value)
    else:
        made.refuse("needs eval_steps as a number: when to measure")


def _rl(made: _Importing, value: Any) -> None:
    """Axolotl's `rl` with its `dpo_loss_type`, a list."""
    losses = made.given.get("dpo_loss_type") or ["ipo" if value == "ipo" else "sigmoid"]
    if value in ("dpo", "ipo"):
        if len(losses) != 1 or losses[0] not in get_args(DpoLoss):
            raise InputError(f"dpo_loss_type: {losses}: one of {', '.join(get_args(DpoLoss))} can be trained here")
        made.put("objective", "dpo")
        made.put("dpo.loss", losses[0])
    elif value in ("orpo", "simpo"):
        made.put("objective", value)
    else:
        raise InputError(f"rl: {value}: only dpo, ipo, orpo and simpo can be trained here")


def _stage(made: _Importing, value: Any) -> None:
    """LLaMA-Factory's `stage` with its `pref_loss`."""
    loss = str(made.given.get("pref_loss", "sigmoid"))
    if value == "sft":
        made.put("objective", "sft")
    elif value == "pt":
        made.put("objective", "sft")
        made.put("kind", "pretraining")
    elif value == "dpo" and loss in ("orpo", "simpo"):
        made.put("objective", loss)
    elif value == "dpo" and loss in get_args(DpoLoss):
        made.put("objective", "dpo")
        made.put("dpo.loss", loss)
    else:
        raise InputError(f"stage: {value}{f' with pref_loss {loss}' if value == 'dpo' else ''} cannot be trained here")


def _adapter(made: _Importing, value: Any) -> None:
    if value not in ("lora", "qlora", "full", "none", ""):
        raise InputError(f"{made.key}: {value}: only lora, qlora and full can be trained here")
    four = made.given.get("load_in_4bit") is True or made.given.get("quantization_bit") == 4
    made.put("method", "full" if value in ("full", "none", "") else "qlora" if value == "qlora" or four else "lora")


def _bits(made: _Importing, value: Any) -> None:
    if value not in (4, True, None, False):
        made.refuse("only 4 bits (qlora) and 16 bits (lora) can be trained")


_SAME: dict[str, Put] = {
    "gradient_accumulation_steps": _to("optimisation.gradient_accumulation", int),
    "learning_rate": _to("optimisation.learning_rate", float),
    "max_steps": _steps,
    "warmup_steps": _warmup,
    "warmup_ratio": _to("optimisation.warmup_share", float),
    "weight_decay": _to("optimisation.weight_decay", float),
    "max_grad_norm": _to("optimisation.max_grad_norm", float),
    "seed": _to("optimisation.seed", int),
    "eval_steps": _every,
    "group_by_length": _to("optimisation.group_by_length", bool),
    "train_sampling_strategy": _sampling,
    "neftune_noise_alpha": _to("optimisation.neftune_alpha", float),
    "gradient_checkpointing": _checkpointing,
    "bf16": _only((True, "auto", "true", "full"), "training is in bfloat16"),
    "fp16": _only((False, "false"), "training is in bfloat16"),
    "tf32": _only((False, "auto"), "not set: what is computed in 32 bits stays so"),
    "lora_alpha": _to("lora.alpha", float),
    "lora_dropout": _to("lora.dropout", float),
    "simpo_gamma": _to("preference.gamma", float),
}
_AXOLOTL: dict[str, Put] = _SAME | {
    "base_model": _model,
    "revision_of_model": _to("base_model.revision", str),
    "adapter": _adapter,
    "load_in_4bit": _bits,
    "load_in_8bit": _only((False,), "only 4 bits (qlora) and 16 bits (lora) can be trained"),
    "lora_r": _to("lora.r", int),
    "lora_target_modules": _names("lora.target_modules"),
    "lora_target_linear": _if_true("lora.target_modules", "all-linear"),
    "lora_modules_to_save": _names("lora.modules_to_save"),
    "peft_use_dora": _to("lora.dora", bool),
    "peft_use_rslora": _to("lora.rank_stabilised", bool),
    "sequence_len": _to("data.max_length", int),
    "sample_packing": _to("optimisation.packing", bool),
    "micro_batch_size": _to("optimisation.batch_size", int),
    "num_epochs": _to("optimisation.epochs", float),
    "lr_scheduler": _scheduler,
    "lr_scheduler_kwargs": _scheduler_values,
    "cosine_min_lr_ratio": _to("optimisation.min_rate_share", float),
    "optimizer": _choice("optimisation.optimizer", _OPTIMIZERS),
    "val_set_size": _held_out,
    "rl": _rl,
    "dpo_loss_type": lambda made, value: None,
    "early_stopping_patience": _patience,
    "rl_beta": _to("preference.beta", float),
    "dpo_beta": _to("preference.beta", float),
    "orpo_alpha": _to("preference.beta", float),
    "dpo_label_smoothing": _to("dpo.label_smoothing", float),
    "train_on_inputs": _only((False,), "answers alone are learnt; kind pretraining learns all of a row"),
    "flash_attention": _if_true("hardware.attention", "flash_attention_2"),
    "sdp_attention": _if_true("hardware.attention", "sdpa"),
    "attn_implementation": _choice("hardware.attention", _ATTENTION),
}
_LLAMA_FACTORY: dict[str, Put] = _SAME | {
    "model_name_or_path": _model,
    "model_revision": _to("base_model.revision", str),
    "stage": _stage,
    "pref_loss": lambda made, value: None,
    "finetuning_type": _adapter,
    "quantization_bit": _bits,
    "lora_rank": _to("lora.r", int),
    "lora_target": _names("lora.target_modules"),
    "additional_target": _names("lora.modules_to_save"),
    "use_dora": _to("lora.dora", bool),
    "use_rslora": _to("lora.rank_stabilised", bool),
    "cutoff_len": _to("data.max_length", int),
    "packing": _to("optimisation.packing", bool),
    "neat_packing": _if_true("optimisation.packing", True),
    "disable_gradient_checkpointing": _if_true("optimisation.gradient_checkpointing", False),
    "early_stopping_steps": _patience,
    "max_samples": _to("data.max_rows", int),
    "mask_history": _if_true("data.train_on", "last"),
    "per_device_train_batch_size": _to("optimisation.batch_size", int),
    "num_train_epochs": _to("optimisation.epochs", float),
    "lr_scheduler_type": _scheduler,
    "lr_scheduler_kwargs": _scheduler_values,
    "optim": _choice("optimisation.optimizer", _OPTIMIZERS),
    "val_size": _held_out,
    "pref_beta": _to("preference.beta", float),
    "pref_ftx": _to("dpo.sft_weight", float),
    "dpo_label_smoothing": _to("dpo.label_smoothing", float),
    "train_on_prompt": _only((False,), "answers alone are learnt; kind pretraining learns all of a row"),
    "flash_attn": _choice("hardware.attention", _ATTENTION | {"auto": "sdpa", "disabled": "eager"}),
    "do_train": _only((True,), "a recipe is trained; evaluation is the gate's"),
}
_DATA = "rows come from the role's bucket: read them with `ec1 corpus import`"
_OURS = "where things are written and shown is the deployment's"
_SCALE = "one device trains"
_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(
        ("datasets", "dataset", "dataset_dir", "eval_dataset", "test_datasets", "dataset_prepared_path"), _DATA
    ),
    **dict.fromkeys(("chat_template", "template"), "the base model's own chat template is used, as in serving"),
    **dict.fromkeys(
        ("output_dir", "overwrite_output_dir", "logging_steps", "logging_dir", "plot_loss", "report_to", "run_name"),
        _OURS,
    ),
    **dict.fromkeys(
        ("wandb_project", "wandb_entity", "wandb_name", "wandb_watch", "wandb_log_model", "use_wandb"), _OURS
    ),
    **dict.fromkeys(("deepspeed", "fsdp", "fsdp_config", "ddp_timeout"), _SCALE),
    **dict.fromkeys(
        ("save_steps", "save_strategy", "saves_per_epoch", "save_total_limit", "save_only_model"),
        "checkpoints are taken by the clock: optimisation.checkpoint_minutes",
    ),
    "trust_remote_code": "code that comes with a model is never run",
    "resume_from_checkpoint": "a training goes on by itself where it was interrupted",
}
_COMMON_DEFAULTS: dict[str, Any] = {
    "objective": "sft",
    "lora.dropout": 0.0,
    "optimisation.gradient_accumulation": 1,
    "optimisation.weight_decay": 0.0,
    "optimisation.max_grad_norm": 1.0,
    "optimisation.seed": 42,
    "optimisation.group_by_length": False,
}
_AXOLOTL_DEFAULTS: dict[str, Any] = _COMMON_DEFAULTS | {
    "method": "full",
    "lora.r": 8,
    "optimisation.epochs": 1.0,
    "optimisation.batch_size": 1,
    "optimisation.scheduler": "cosine",
    "optimisation.warmup_share": 0.03,
    "data.max_length": 512,
}
_LLAMA_FACTORY_DEFAULTS: dict[str, Any] = _COMMON_DEFAULTS | {
    "method": "lora",
    "lora.r": 8,
    "lora.target_modules": "all-linear",
    "optimisation.epochs": 3.0,
    "optimisation.batch_size": 8,
    "optimisation.learning_rate": 5e-5,
    "optimisation.scheduler": "linear",
    "optimisation.warmup_share": 0.0,
    "data.max_length": 2048,
}


def _yaml(values: Mapping[str, tuple[Any, str]], tenant: str, role: str, source: str) -> str:
    """The recipe, each value with the key that it comes from."""
    lines = [f"# From a file of {source}.", "extends: base", "version: 1", f"tenant: {tenant}", f"role: {role}"]
    sections: dict[str, list[str]] = {}
    for target, (value, origin) in values.items():
        section, _, key = target.rpartition(".")
        line = f"{key}: {json.dumps(value, ensure_ascii=False)}  # {origin}"
        if section:
            sections.setdefault(section, []).append(f"  {line}")
        else:
            lines.append(line)
    for section in sorted(sections):
        lines += ["", f"{section}:", *sections[section]]
    return "\n".join(lines) + "\n"

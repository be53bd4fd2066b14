"""TRL's trainers, changed to resume from a checkpoint exactly as if they had never stopped.

Belongs here: what has to be changed inside Trainer for that: the order of rows, what a checkpoint holds, which tokens
are counted. Does not: when to save or stop (`monitor.py`).
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ec1.training.cpu import attention_to
from ec1.training.processes import like, whole

WEIGHTS = "adapter_model.safetensors"
_OPTIMIZER, _SCHEDULER = "optimizer.pt", "scheduler.pt"


def repeatable(base: Any) -> Any:
    """A subclass of one of TRL's trainers, with an order of rows as that one makes it."""
    import torch
    from peft import PeftModel
    from peft.helpers import disable_input_dtype_casting

    class RepeatableTrainer(base):  # type: ignore[misc]
        counted_tokens: int | None = None
        """Tokens read in this process, where TRL does not count them; None where it does."""

        @property
        def row_lengths(self) -> list[int]:
            """Tokens of each row that is trained on; of a pair the longer of its two sequences."""
            data = self.train_dataset
            limit = self.args.max_length
            if "input_ids" in data.column_names:
                return [len(ids) for ids in data["input_ids"]]
            if "chosen_input_ids" in data.column_names:
                pairs = zip(data["chosen_input_ids"], data["rejected_input_ids"], strict=True)
                return [max(len(chosen), len(rejected)) for chosen, rejected in pairs]
            columns = zip(data["prompt_ids"], data["chosen_ids"], data["rejected_ids"], strict=True)
            return [min(limit, len(prompt) + max(len(a), len(b))) for prompt, a, b in columns]

        def create_accelerator_and_postprocess(self) -> None:
            if not self.args.fsdp:
                super().create_accelerator_and_postprocess()
                return
            from accelerate.state import PartialState
            from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
            from torch.distributed.fsdp import MixedPrecisionPolicy

            # As under autocast: computed in 16 bits, summed up in 32.
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            self.args.fsdp_plugin_args["mixed_precision_policy"] = policy
            super().create_accelerator_and_postprocess()
            if self.args.use_cpu:
                # Accelerate shards on accelerators only; torch does on a CPU too.
                state = self.accelerator.state
                state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
                state.distributed_type = PartialState._shared_state["distributed_type"] = DistributedType.FSDP
                self.is_fsdp_enabled = True

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self.counted_tokens is not None:
                masks = [name for name in inputs if name.endswith("attention_mask") and not name.startswith("prompt")]
                self.counted_tokens += sum(int(inputs[name].sum()) for name in masks)
            # Autocast casts what a layer reads. PEFT would before it, to the adapter's 32 bits, and all is cast twice.
            # Not where a step writes answers first, which autocast has no part in: its inputs are a list of rows.
            on_cpu = self.args.use_cpu and isinstance(inputs, Mapping)
            with (
                disable_input_dtype_casting(model, active=on_cpu and self.args.bf16),
                attention_to(inputs, self.model) if on_cpu else contextlib.nullcontext(),
            ):
                return super().training_step(model, inputs, *args, **kwargs)

        def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
            if self.counted_tokens is not None and "loss" in logs:
                logs["num_tokens"] = float(self.counted_tokens)
            super().log(logs, *args, **kwargs)

        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            # An evaluation draws seeds for its loader; whether there was one must not change the next step's dropout.
            with torch.random.fork_rng():
                return super().evaluate(*args, **kwargs)

        def _determine_best_metric(self, metrics: Any, trial: Any) -> bool:
            # Trainer saves only what is best then, and forgets that the monitor wanted a checkpoint at this step.
            better = super()._determine_best_metric(metrics, trial)
            return bool(better or self.control.should_save)

        def _load_best_model(self) -> None:
            # Trainer's own wants PEFT's configuration in the checkpoint, and puts a second adapter on the model.
            self._load_from_checkpoint(self.state.best_model_checkpoint)

        def create_model_card(self, *args: Any, **kwargs: Any) -> None:
            """None: a card would name this machine's folders."""

        # Trainer saves the tokenizer and a pickle of its arguments with every checkpoint. And where a preference
        # training has a second, frozen adapter, it loads that one back and forgets the one that is trained. Where the
        # model is spread over processes, it saves all of the base too, in a form that one process cannot read.
        def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
            weights = self.whole_adapter()
            if self.args.should_save:
                self.write(Path(output_dir or self.args.output_dir), weights)

        def write(self, folder: Path, weights: dict[str, Any]) -> None:
            """Write the adapter, or where there is none the whole model, as safetensors."""
            from safetensors.torch import save_file

            folder.mkdir(parents=True, exist_ok=True)
            if isinstance(self.model, PeftModel):
                save_file(weights, folder / WEIGHTS)
            else:
                self.model.save_pretrained(folder)

        def whole_adapter(self) -> dict[str, Any]:
            """The adapter's weights; each process may hold a part of them. All processes must ask."""
            return {name: whole(tensor).contiguous() for name, tensor in self._adapter().items()}

        def _adapter(self) -> dict[str, Any]:
            from peft import get_peft_model_state_dict

            if not isinstance(self.model, PeftModel):
                return {}
            # Else PEFT looks on the hub whether the base's vocabulary has changed.
            weights = get_peft_model_state_dict(self.model, adapter_name="default", save_embedding_layers=False)
            return dict(weights)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            from peft import set_peft_model_state_dict
            from safetensors.torch import load_file

            if not isinstance(self.model, PeftModel):
                super()._load_from_checkpoint(resume_from_checkpoint, model)
                return
            weights = load_file(Path(resume_from_checkpoint) / WEIGHTS)
            if self.is_fsdp_enabled:
                parts = self._adapter()
                weights = {name: like(tensor, parts[name]) for name, tensor in weights.items()}
            set_peft_model_state_dict(self.model, weights, adapter_name="default")

        def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
            if not self.is_fsdp_enabled:
                super()._save_optimizer_and_scheduler(output_dir)
                return
            optimizer_state = self.optimizer.state_dict()
            moments = {
                number: {name: whole(value) for name, value in values.items()}
                for number, values in optimizer_state["state"].items()
            }
            if self.args.should_save:
                torch.save({**optimizer_state, "state": moments}, Path(output_dir) / _OPTIMIZER)
                torch.save(self.lr_scheduler.state_dict(), Path(output_dir) / _SCHEDULER)

        def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
            if checkpoint is None or not self.is_fsdp_enabled:
                super()._load_optimizer_and_scheduler(checkpoint)
                return
            optimizer_state = torch.load(Path(checkpoint) / _OPTIMIZER, map_location="cpu", weights_only=True)
            weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
            for number, values in optimizer_state["state"].items():
                for name, value in values.items():
                    if value.shape == weights[number].shape:
                        values[name] = like(value, weights[number])
            self.optimizer.load_state_dict(optimizer_state)
            self.lr_scheduler.load_state_dict(torch.load(Path(checkpoint) / _SCHEDULER, weights_only=True))

    return RepeatableTrainer


def in_epoch_order(base: Any) -> Any:
    """`repeatable`, with rows in an order of ours: by length, and the same whatever was drawn before."""
    import torch
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

    class OrderedTrainer(repeatable(base)):  # type: ignore[misc]
        group_rows = True

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            if not self.group_rows:
                return super()._get_train_sampler(train_dataset)
            # Accelerate deals the batches of this order out to the processes: a step has the same rows with any number.
            rows = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
            effective = rows * self.args.world_size
            return EpochSampler(self.args.seed, effective, self.row_lengths)

    return OrderedTrainer


def in_group_order(base: Any) -> Any:
    """`repeatable`, for objectives that write several answers to each prompt: prompts in an order of seed and epoch."""
    from trl.trainer.utils import RepeatSampler

    class GroupSampler(RepeatSampler):  # type: ignore[misc, unused-ignore]
        """The library's goes on where the last epoch's draws ended, which a resumed training cannot know."""

        def set_epoch(self, epoch: int) -> None:
            self.generator.manual_seed(self.seed * 1_000_003 + epoch)

    class GroupTrainer(repeatable(base)):  # type: ignore[misc]
        @property
        def row_lengths(self) -> list[int]:
            """None: prompts were measured when the dataset was made, and are never cut."""
            return []

        def _get_train_sampler(self, dataset: Any = None) -> Any:
            sampler = super()._get_train_sampler(dataset)
            sampler.__class__ = GroupSampler
            return sampler

    return GroupTrainer

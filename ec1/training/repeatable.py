"""TRL's trainers, changed to resume from a checkpoint exactly as if they had never stopped.

Belongs here: what has to be changed inside Trainer for that: the order of rows, what a checkpoint holds, which tokens
are counted. Does not: when to save or stop (`monitor.py`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

WEIGHTS = "adapter_model.safetensors"


def repeatable(base: Any) -> Any:
    """A subclass of one of TRL's trainers."""
    import torch
    from peft import PeftModel
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

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            if not self.group_rows:
                return super()._get_train_sampler(train_dataset)
            effective = self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps
            return EpochSampler(self.args.seed, effective, self.row_lengths)

        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self.counted_tokens is not None:
                masks = [name for name in inputs if name.endswith("attention_mask") and not name.startswith("prompt")]
                self.counted_tokens += sum(int(inputs[name].sum()) for name in masks)
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
        # training has a second, frozen adapter, it loads that one back and forgets the one that is trained.
        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            from peft import get_peft_model_state_dict
            from safetensors.torch import save_file

            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            if isinstance(self.model, PeftModel):
                # Else PEFT looks on the hub whether the base's vocabulary has changed.
                weights = get_peft_model_state_dict(self.model, adapter_name="default", save_embedding_layers=False)
                save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / WEIGHTS)
            else:
                self.model.save_pretrained(folder)

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            from peft import set_peft_model_state_dict
            from safetensors.torch import load_file

            if isinstance(self.model, PeftModel):
                weights = load_file(Path(resume_from_checkpoint) / WEIGHTS)
                set_peft_model_state_dict(self.model, weights, adapter_name="default")
            else:
                super()._load_from_checkpoint(resume_from_checkpoint, model)

    return RepeatableTrainer

"""A step of the sample's training on this machine's CPU: as PEFT and torch compute it, and as ours does, by turns.

Rows of the length of the sample's, a LoRA adapter of rank 16 in 32 bits beside the base in bfloat16, under autocast as
the trainer runs it. `casts once`: PEFT leaves casting to autocast; `plain attention`: short rows with all scores at
once; `ours` is both. Wall seconds of one step, forward and back.
"""

import argparse
import contextlib
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks._engine import embedded, model_of
from benchmarks._turns import medians_by_turns
from ec1.training.cpu import attention_to

VARIANTS = {"as the libraries": (), "casts once": ("casts",), "plain attention": ("attention",)}
VARIANTS |= {"ours": ("casts", "attention")}


def main(rows: int, tokens: int, rounds: int) -> None:
    """Print a row for each variant: median seconds, and how many times as fast it is."""
    import torch
    from peft import LoraConfig, get_peft_model
    from peft.helpers import disable_input_dtype_casting
    from transformers import AutoModelForCausalLM

    deployment, _ = embedded()
    with tempfile.TemporaryDirectory() as name:
        base = AutoModelForCausalLM.from_pretrained(model_of(deployment, Path(name)), dtype=torch.bfloat16)
    model = get_peft_model(base, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = torch.randint(0, 40000, (rows, tokens), generator=torch.Generator().manual_seed(7))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs["attention_mask"][: rows // 2, tokens - tokens // 5 :] = 0

    def step(parts: tuple[str, ...]) -> float:
        model.zero_grad()
        began = time.monotonic()
        with (
            disable_input_dtype_casting(model, active="casts" in parts),
            attention_to(inputs, model) if "attention" in parts else contextlib.nullcontext(),
            torch.autocast("cpu", torch.bfloat16),
        ):
            base.model(**inputs).last_hidden_state.float().pow(2).mean().backward()
        return time.monotonic() - began

    medians = medians_by_turns({each: partial(step, parts) for each, parts in VARIANTS.items()}, rounds)
    print(f"{rows} rows of {tokens} tokens, the body of the model, {rounds} rounds")
    for each, median in medians.items():
        print(f"{each:18} {median:6.2f} s  {medians['as the libraries'] / median:5.2f}×")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training_step", description=__doc__)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=142)
    parser.add_argument("--rounds", type=int, default=8)
    given = parser.parse_args()
    main(given.rows, given.tokens, given.rounds)

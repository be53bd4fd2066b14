"""A step on pairs on this machine's CPU: each prompt read for both of its answers, and once for the two, by turns.

The sample's model with a LoRA adapter of rank 16, computed in what this machine trains in; policy forward and backward,
and the reference forward, as DPO asks for them. Lengths: the sample's reviewed attempts by default. CPU seconds of one
thread: other work on the machine changes little.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._engine import embedded, model_of
from benchmarks._turns import medians_by_turns
from ec1.models import precision_on, weight_bytes_in
from ec1.training.cpu import attention_to, score_answers_only


def prepared(folder: Path, *, pairs: bool) -> Any:
    """The model as the trainer has it."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    base = AutoModelForCausalLM.from_pretrained(folder, dtype=precision_on("cpu", weight_bytes_in(folder)))
    torch.manual_seed(7)
    model = get_peft_model(base, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    add_fused_lm_head(base, outputs=("log_probs", "entropy", "mean_logits", "is_top1"))
    score_answers_only(base, pairs=pairs)
    return model


def main(pairs: int, prompt: int, answer: int, rounds: int) -> None:
    """Print medians of both ways, and how far their losses lie apart."""
    import torch

    torch.set_num_threads(1)
    ids = torch.randint(0, 40000, (2 * pairs, prompt + answer), generator=torch.Generator().manual_seed(7))
    ids[pairs:, :prompt] = ids[:pairs, :prompt]
    labels = ids.clone()
    labels[:, :prompt] = -100
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    deployment, _ = embedded()
    with tempfile.TemporaryDirectory() as name:
        folder = model_of(deployment, Path(name))
        models = {"twice": prepared(folder, pairs=False), "once": prepared(folder, pairs=True)}
    losses: dict[str, float] = {}

    def step(each: str) -> float:
        model = models[each]
        began = time.process_time()
        sixteen_bits = model.dtype == torch.bfloat16
        with attention_to(batch, model), torch.autocast("cpu", torch.bfloat16, enabled=sixteen_bits):
            with torch.no_grad(), model.disable_adapter():
                model(**batch, labels=labels, fused_lm_head=True)
            loss = model(**batch, labels=labels, fused_lm_head=True).loss
            loss.backward()
        losses[each] = float(loss.detach())
        return time.process_time() - began

    medians = medians_by_turns({each: partial(step, each) for each in models}, rounds)
    print(f"{pairs} pairs, prompts of {prompt} tokens, answers of {answer}, {models['once'].dtype}, {rounds} rounds")
    for each, median in medians.items():
        print(f"prompts {each:6} {median:6.2f} CPU s  {medians['twice'] / median:5.2f}×")
    print(f"losses {abs(losses['once'] - losses['twice']):.1e} nats apart")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefix_sharing", description=__doc__)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=69)
    parser.add_argument("--answer", type=int, default=54)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    main(given.pairs, given.prompt, given.answer, given.rounds)

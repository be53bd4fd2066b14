"""What a CPU computes fastest in: products of matrices, and a step of the sample's model with an adapter, in 16 and in
32 bits by turns. CPU seconds of one thread: other work on the machine changes little.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._engine import embedded, model_of
from benchmarks._turns import medians_by_turns
from ec1.models import precision_on, weight_bytes_in

PRECISIONS = ("bfloat16", "float32")
ROWS = 4
"""Of a step, as the sample's engineering recipe has them."""


def seconds_of(work: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def products(precision: str, tokens: int) -> Callable[[], Any]:
    """Ten products as a layer of the small model makes them, 10 GFLOP with rows of 144 tokens."""
    import torch

    rows = torch.randn(ROWS * tokens, 576, dtype=getattr(torch, precision))
    weights = torch.randn(1536, 576, dtype=getattr(torch, precision))
    return lambda: [torch.nn.functional.linear(rows, weights) for _ in range(10)]


def products_back(precision: str, tokens: int) -> Callable[[], Any]:
    """Ten products as such a layer makes them to pass a gradient on, as many."""
    import torch

    gradients = torch.randn(ROWS * tokens, 1536, dtype=getattr(torch, precision))
    weights = torch.randn(1536, 576, dtype=getattr(torch, precision))
    return lambda: [gradients @ weights for _ in range(10)]


def step(precision: str, tokens: int, folder: Path) -> Callable[[], Any]:
    """Forward and backward through the model with a LoRA adapter of rank 16."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    config = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder, dtype=precision), config)
    rows = torch.randint(0, 40000, (ROWS, tokens), generator=torch.Generator().manual_seed(7))
    return lambda: model(input_ids=rows, labels=rows).loss.backward()


def main(rounds: int, tokens: int) -> None:
    """Print medians, and how many times as fast the second precision is."""
    import torch

    torch.set_num_threads(1)
    deployment, _ = embedded()
    with tempfile.TemporaryDirectory() as name:
        folder = model_of(deployment, Path(name))
        works = {
            "products": {each: products(each, tokens) for each in PRECISIONS},
            "products back": {each: products_back(each, tokens) for each in PRECISIONS},
            "a step": {each: step(each, tokens, folder) for each in PRECISIONS},
        }
        for what, by_precision in works.items():
            medians = medians_by_turns({each: partial(seconds_of, work) for each, work in by_precision.items()}, rounds)
            shown = ", ".join(f"{each} {seconds:.3f} CPU s" for each, seconds in medians.items())
            faster = medians["bfloat16"] / medians["float32"]
            sys.stdout.write(f"{what}: {shown}; float32 is {faster:.2f} times as fast\n")
        chosen = precision_on("cpu", weight_bytes_in(folder))
    sys.stdout.write(f"here this model computes in {chosen} on the CPU\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=144, help="of a row; 144: the recipe's mean")
    args = parser.parse_args()
    main(args.rounds, args.tokens)

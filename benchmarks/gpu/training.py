"""Tokens per second and memory of LoRA and QLoRA on random weights, beside what the plan computes for the same.

The loop is the one that trainers come down to: rows of full length, the loss by pieces of the head, fused AdamW on the
adapter. No TRL and no datasets are needed, so it runs on any image that trains at all.
"""

import gc
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.card import synchronise
from benchmarks.gpu.models import random_model, with_adapter, write_config
from ec1.home import CHECKOUT
from ec1.recipes.resolution import load_recipe
from ec1.recipes.schema import Recipe
from ec1.training.cards import find_card
from ec1.training.memory import peak_memory_gib
from ec1.training.physics import DEFAULT_EFFICIENCY, operations_per_token, work_of
from ec1.training.shape import ModelShape

HEAD_PIECE = 256
WARM_UP_SECONDS, LEAST_STEPS = 1.0, 2


@dataclass(frozen=True)
class Case:
    """One training: rows of `length` tokens, of which only a `filled` share is not padding."""

    method: str
    length: int
    batch: int
    checkpointing: bool
    liger: bool = False
    filled: float = 1.0


def measured(shape: str, device: str, cases: Sequence[Case], seconds: float, folder: Path, card: str) -> Iterator[Any]:
    """One row per case, in their order. All cases share a method: the base is made once."""
    path = write_config(shape, folder, max(case.length for case in cases))
    model_shape = ModelShape.read(path)
    began = time.monotonic()
    base = random_model(path, device, quantised=cases[0].method == "qlora")
    synchronise(device)
    yield {"what": f"{cases[0].method} base", "load_seconds": round(time.monotonic() - began, 1)}
    for case in cases:
        row = {**asdict(case), **planned(case, model_shape, device, card)}
        try:
            row |= _train(base, case, device, seconds)
        except ImportError as error:
            row["left_out"] = str(error)
        except RuntimeError as error:
            if "out of memory" not in str(error).lower():
                raise
            row["left_out"] = "out of memory"
        if "tokens_per_second" in row:
            recipe = recipe_of(case)
            row["tflops"] = round(
                operations_per_token(recipe, model_shape, case.length) * row["computed_tokens_per_second"] / 1e12, 7
            )
        yield row
        _free(device)


def recipe_of(case: Case) -> Recipe:
    """The shipped recipe with the case's figures."""
    shipped = CHECKOUT / "configs" / "recipes"
    recipe = load_recipe(shipped / "pointsav" / "engineering.yaml", [shipped]).recipe
    wish = {"batch_size": case.batch, "gradient_accumulation": 1, "gradient_checkpointing": case.checkpointing}
    wish["liger_kernels"] = case.liger
    return recipe.model_copy(
        update={
            "method": case.method,
            "optimisation": recipe.optimisation.model_copy(update=wish),
            "data": recipe.data.model_copy(update={"max_length": case.length}),
        }
    )


def planned(case: Case, shape: ModelShape, device: str, card: str) -> dict[str, Any]:
    """What the plan says of it before anything was measured: GiB, and tokens/s where the card has a data sheet."""
    recipe = recipe_of(case)
    found: dict[str, Any] = {"planned_gib": round(peak_memory_gib(recipe, shape, device, case.length), 2)}
    if (known := find_card(card)) is not None:
        tokens = case.batch * case.length
        work = work_of(recipe, shape, tokens=tokens, batches=1, updates=1)
        found["planned_tokens_per_second"] = round(tokens / work.expected_on(known, DEFAULT_EFFICIENCY))
    return found


def _train(base: Any, case: Case, device: str, seconds: float) -> dict[str, Any]:
    import torch

    loss_of = _liger_loss(base) if case.liger else _piecewise_loss
    model = with_adapter(base, checkpointing=case.checkpointing)
    try:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
        ids = torch.randint(0, model.config.vocab_size, (case.batch, case.length), device=device)
        mask = torch.ones_like(ids)
        mask[:, max(1, int(case.length * case.filled)) :] = 0

        def step() -> Any:
            with torch.autocast(device, torch.bfloat16):
                hidden = model.get_base_model().model(input_ids=ids, attention_mask=mask).last_hidden_state
                loss = loss_of(hidden[:, :-1], model.get_output_embeddings().weight, ids[:, 1:], mask[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        steps, began = 0, time.monotonic()
        while steps == 0 or (steps < LEAST_STEPS and time.monotonic() - began < WARM_UP_SECONDS):
            loss = step()
            synchronise(device)
            steps += 1
        steps, began = 0, time.monotonic()
        while steps < LEAST_STEPS or time.monotonic() - began < seconds:
            loss = step()
            synchronise(device)
            steps += 1
        took = time.monotonic() - began
        if not torch.isfinite(loss):
            raise ValueError("the loss is not a number")
        return {
            "steps": steps,
            "tokens_per_second": round(int(mask.sum()) * steps / took, 1),
            "computed_tokens_per_second": round(ids.numel() * steps / took, 1),
            "peak_gib": round(_peak_gib(device), 2),
        }
    finally:
        model.unload()


def _piecewise_loss(hidden: Any, head: Any, labels: Any, mask: Any) -> Any:
    """Cross entropy without the logits of all tokens at once, as TRL's fused head does it."""
    import torch
    from torch.utils.checkpoint import checkpoint

    def piece(part: Any, wanted: Any, counts: Any) -> Any:
        losses = torch.nn.functional.cross_entropy((part @ head.T).float(), wanted, reduction="none")
        return (losses * counts).sum()

    flat, wanted, counts = hidden.flatten(0, 1), labels.flatten(), mask.flatten()
    pieces = zip(*(each.split(HEAD_PIECE) for each in (flat, wanted, counts)), strict=True)
    return sum(checkpoint(piece, *each, use_reentrant=False) for each in pieces) / counts.sum()


def _liger_loss(base: Any) -> Any:
    """Liger's kernels in the model from now on, and its loss. Raises ImportError."""
    from liger_kernel.transformers import (  # type: ignore[import-not-found, unused-ignore]
        LigerFusedLinearCrossEntropyLoss,
        apply_liger_kernel_to_llama,
    )

    apply_liger_kernel_to_llama(fused_linear_cross_entropy=False, model=base)
    loss = LigerFusedLinearCrossEntropyLoss()
    return lambda hidden, head, labels, mask: loss(
        head, hidden.flatten(0, 1), labels.masked_fill(mask == 0, -100).flatten()
    )


def _peak_gib(device: str) -> float:
    if device == "cpu":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    import torch

    # What torch holds it does not give back: with the context, this is what the card had to have free.
    free, total = torch.cuda.mem_get_info()
    return float((total - free) / 2**30)


def _free(device: str) -> None:
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.empty_cache()


def two_in_one_process(shape: str, device: str, length: int, seconds: float, folder: Path) -> Iterator[dict[str, Any]]:
    """Two trainings of one loaded base, one after the other: what loading costs, and what the first one leaves."""
    case = Case("lora", length, 1, True)
    path = write_config(shape, folder, length)
    began = time.monotonic()
    base = random_model(path, device, quantised=False)
    synchronise(device)
    loading = time.monotonic() - began
    for number in (1, 2):
        row = _train(base, case, device, seconds)
        _free(device)
        yield {
            "what": f"training {number} of one base",
            **row,
            "load_seconds": round(loading if number == 1 else 0.0, 3),
        }

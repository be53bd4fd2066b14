"""Packed rows: whether a model's attention keeps those that share a sequence apart.

Belongs here: the trial before a training. Does not: packing itself, which is TRL's.
"""

from typing import Any

from ec1.answers.answering import at_rest
from ec1.errors import PermanentError


def require_hidden_rows(model: Any, collator: Any) -> None:
    """Check that a packed row sees nothing of the one before it, by exchanging that one.

    Raises PermanentError if it does: not every kind of attention heeds where a row begins.
    """
    import torch

    length = 16
    second = list(range(2 * length, 3 * length))
    seen = []
    for first in (list(range(length)), list(range(length, 2 * length))):
        ids = first + second
        batch = collator([{"input_ids": ids, "labels": ids, "seq_lengths": [length, length]}])
        inputs = {
            name: value.to(model.device) if isinstance(value, torch.Tensor) else value
            for name, value in batch.items()
            if name != "labels"
        }
        with at_rest(model):
            seen.append(model(**inputs, use_cache=False).logits[0, length:].float())
    if float((seen[0] - seen[1]).abs().max()) > 1e-3 * float(seen[0].abs().max()):
        raise PermanentError(
            "optimisation.packing: this model's attention does not hide packed rows from one another; switch it off, "
            "or set hardware.attention to flash_attention_2"
        )

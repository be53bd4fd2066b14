"""Pairs as one row each: what the chosen and the rejected answer have before them is computed once for both.

Belongs here: laying the two answers of a pair one behind the other, and which models keep them apart. Does not: what is
learnt from them (TRL's), and evaluations, which share a prompt among any number of answers (`ec1.adapters.likelihood`).

Prefix sharing, https://arxiv.org/abs/2410.20305
"""

import sys
from typing import TYPE_CHECKING, Any

from ec1.answers.answering import apart, at_rest, longest_apart

if TYPE_CHECKING:
    import torch

_TRIED = 16
_SAME = 0.03
"""Of the hidden states' size. The sample's model, in 32 and in 16 bits: 0.00, without the positions 0.07, without the
mask 0.17."""


def paired_states(
    body: Any, *, input_ids: "torch.Tensor", attention_mask: "torch.Tensor", **others: Any
) -> "torch.Tensor":
    """The last hidden states (rows, tokens, width) of a batch whose second half are the rejected rows of its first.

    `body`: the model without its head. Both tensors: (rows, tokens), padded on the right. The states of padding have no
    meaning, as always.
    """
    import torch

    seen = attention_mask.bool()
    (chosen, rejected), (in_chosen, in_rejected) = input_ids.chunk(2), seen.chunk(2)
    common = ((chosen == rejected) & in_chosen & in_rejected).cumprod(1).sum(1, keepdim=True)
    pairs, tokens = chosen.shape
    own = torch.arange(tokens, device=input_ids.device)
    behind = in_chosen.sum(1, keepdim=True) - common
    # In the pair's row: the chosen one as it is, and what the rejected one has of its own behind it.
    places = torch.cat([own.expand_as(chosen), own + (own >= common) * behind])
    width = int((in_rejected.sum(1, keepdim=True) + behind).max())
    places = places.masked_fill(~seen, width)  # padding goes to a column that is cut off

    def laid(values: torch.Tensor, empty: int) -> torch.Tensor:
        both = torch.full((pairs, width + 1), empty, device=input_ids.device)
        for rows, half in zip(places.chunk(2), values.chunk(2), strict=True):
            both.scatter_(1, rows, half)
        return both[:, :width]

    answer = (own >= common).long()
    states = body(
        input_ids=laid(input_ids, 0),
        position_ids=laid(own.repeat(2 * pairs, 1), 0),
        attention_mask=apart(laid(torch.cat([answer, 2 * answer]), -1)),
        **others,
    ).last_hidden_state
    first = width * torch.arange(pairs, device=input_ids.device).repeat(2)[:, None]
    flat = (first + places.clamp(max=width - 1)).flatten()
    found: torch.Tensor = states.flatten(0, 1).index_select(0, flat).unflatten(0, (2 * pairs, tokens))
    return found


def shares_prefixes(model: Any) -> bool:
    """Whether a causal model keeps to mask and positions: not one that looks back by other means, such as a state or a
    window."""
    import torch

    if longest_apart(model.config) < sys.maxsize:
        return False
    body = model.base_model
    ids = torch.arange(2 * 3 * _TRIED, device=model.device).view(2, -1)
    ids[1, : 2 * _TRIED] = ids[0, : 2 * _TRIED]
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with at_rest(model):
        alone = body(**batch, use_cache=False).last_hidden_state.float()
        try:
            shared = paired_states(body, **batch, use_cache=False).float()
        except Exception:  # noqa: BLE001 - a model that takes no mask of this shape says so in whatever way it fails
            return False
    return bool((shared - alone).norm() <= _SAME * alone.norm())

"""What makes training on a CPU correct and fast enough. Nothing here affects training on a GPU.

Belongs here: the three places where the libraries' CPU paths are wrong or slow for training. Does not: anything that
changes what is learnt.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ec1.answers.answering import at_rest
from ec1.training.prefix_sharing import paired_states, shares_prefixes

if TYPE_CHECKING:
    import torch

_TILE_TOKENS = 64
"""Tokens whose logits are held at once: with a vocabulary of 50,000 about 12 MB in 32 bits."""
_TRIED_TOKENS = 8
_SHORT_ROWS = 192
"""Tokens up to which attention is faster, and takes no more memory, with all its scores at once (torch 2.13)."""


def keep_gradients(model: Any) -> None:
    """Keep bitsandbytes from repacking its 4-bit weights.

    On a CPU with AVX512-BF16 it repacks a weight at its first forward in evaluation mode into a form that passes no
    gradient on: a training that evaluates in between would silently learn nothing from then on.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def attention_to(inputs: Mapping[str, Any], model: Any) -> contextlib.AbstractContextManager[None]:
    """What a step on these inputs is computed in: short rows with all scores of their attention at once.

    Torch's flash attention goes back over bfloat16 on a CPU in tiles of 32 queries: 25 ms for 8 rows of 132 tokens and
    9 heads, where the way forward takes 3, and this takes 7 (`python -m benchmarks.training_step`).
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    width = max((rows.shape[-1] for name, rows in inputs.items() if name.endswith("input_ids")), default=0)
    if model.dtype == torch.bfloat16 and 0 < width <= _SHORT_ROWS:
        return sdpa_kernel(SDPBackend.MATH)
    return contextlib.nullcontext()


def score_answers_only(model: Any, *, pairs: bool = False) -> None:
    """Let the loss of TRL's trainers project only the tokens that count onto the vocabulary.

    TRL's fused head does that on a GPU. On a CPU it scores every position, the prompt's and the padding's too, works in
    tiles far larger than the caches, computes the logits twice, and multiplies in 32 bits on the way back. `model` is a
    causal model that TRL's `add_fused_lm_head` has been at; only its calls with `fused_lm_head=True` change, and they
    return the same figures. A model whose head is trained too keeps TRL's way, which knows the head's gradient, and one
    that changes what its head gives: TRL knows how.
    `pairs`: each batch is chosen and then rejected answers, whose prompts are computed once if the model allows it.
    """
    from trl.trainer.utils import FusedCausalLMOutput

    head = model.get_output_embeddings()
    if head.weight.requires_grad or head.bias is not None or not _head_is_last(model):
        return
    theirs: Callable[..., Any] = model.forward
    score = _scorer(head.weight)
    shared = pairs and shares_prefixes(model)

    @functools.wraps(theirs)
    def forward(*args: Any, fused_lm_head: bool = False, labels: "torch.Tensor | None" = None, **kwargs: Any) -> Any:
        if not fused_lm_head or labels is None or kwargs.get("output_router_logits"):
            return theirs(*args, fused_lm_head=fused_lm_head, labels=labels, **kwargs)
        if shared:
            hidden = paired_states(model.base_model, **kwargs)[:, :-1]
        else:
            hidden = model.base_model(*args, **kwargs).last_hidden_state[:, :-1]
        mask = labels[:, 1:] != -100
        # `masked_scatter` keeps the result connected to the model even where a batch has nothing to learn.
        log_probs, entropy, mean_logits, is_top1 = (
            figure.new_zeros(mask.shape).masked_scatter(mask, figure)
            for figure in score(hidden[mask], labels[:, 1:][mask])
        )
        return FusedCausalLMOutput(
            loss=-log_probs.sum() / mask.sum().clamp(min=1),
            log_probs=log_probs,
            entropy=entropy,
            mean_logits=mean_logits,
            is_top1=is_top1,
            label_mask=mask,
        )

    model.forward = forward


def _head_is_last(model: Any) -> bool:
    """Whether a causal model's logits are what its head gives: not scaled (Granite) or bounded (Gemma 2) after it."""
    import torch

    given: list[torch.Tensor] = []
    hook = model.get_output_embeddings().register_forward_hook(lambda _, inputs, outputs: given.append(outputs))
    try:
        with at_rest(model):
            logits = model(input_ids=torch.arange(_TRIED_TOKENS, device=model.device)[None], use_cache=False).logits
    finally:
        hook.remove()
    return len(given) == 1 and torch.equal(given[0].float(), logits.float())


def _scorer(weight: "torch.Tensor") -> "Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, ...]]":
    """A function from hidden states (tokens, width) and targets (tokens) to, per token: log-probability of the target,
    entropy, mean logit, and whether the target is the likeliest. Only the first has a gradient."""
    import torch

    mean_weight = weight.detach().float().mean(0)

    class Score(torch.autograd.Function):
        """The gradient of a target's log-probability is its own row of the weight less the row that the model expects;
        both are at hand on the way forward, so nothing of the vocabulary's size is kept or computed again."""

        @staticmethod
        def forward(ctx: Any, hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
            log_probs = torch.empty(len(hidden))
            entropy, is_top1 = torch.empty_like(log_probs), torch.empty(len(hidden), dtype=torch.bool)
            gradient = torch.empty_like(hidden)
            for start in range(0, len(hidden), _TILE_TOKENS):
                tile = slice(start, start + _TILE_TOKENS)
                states, wanted = hidden[tile], targets[tile]
                logits = (states @ weight.t()).float()
                normaliser = logits.logsumexp(-1)
                log_probs[tile] = logits.gather(1, wanted.unsqueeze(1)).squeeze(1) - normaliser
                is_top1[tile] = logits.argmax(-1) == wanted
                probabilities = logits.sub_(normaliser.unsqueeze(1)).exp_().to(weight.dtype)
                expected = probabilities @ weight
                gradient[tile] = weight[wanted] - expected
                # The expected logit is linear in the expected row.
                entropy[tile] = normaliser - (states.float() * expected.float()).sum(-1)
            ctx.save_for_backward(gradient)
            mean_logits = hidden.float() @ mean_weight
            ctx.mark_non_differentiable(entropy, mean_logits, is_top1)
            return log_probs, entropy, mean_logits, is_top1

        @staticmethod
        def backward(ctx: Any, upstream: torch.Tensor, *others: Any) -> tuple[torch.Tensor, None]:
            (gradient,) = ctx.saved_tensors
            return (upstream.unsqueeze(1) * gradient).to(gradient.dtype), None

    def score(hidden: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, ...]:
        figures: tuple[torch.Tensor, ...] = Score.apply(hidden.to(weight.dtype), targets)  # type: ignore[no-untyped-call]
        return figures

    return score

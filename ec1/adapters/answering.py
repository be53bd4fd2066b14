"""A base model with adapters on it, in this process, and what it writes.

Belongs here: loading as adapters are served (bf16, unmerged), switching, writing answers out. Does not: likelihoods
(`likelihood.py`) and who is asked what (`evaluation.py`, `trial.py`).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.errors import PermanentError

_BATCH_TOKENS = 2**13
"""Prompts and answers of one batch: what attention keeps of them is about 4 GiB for a 7B without grouped heads."""


@dataclass(frozen=True)
class ModelAnswer:
    """What a model wrote; `cut` if the limit on its tokens ended it."""

    text: str
    cut: bool


def load_candidates(
    base: Path, candidates: Mapping[str, Path | None], device: str
) -> tuple[Any, Callable[[str], AbstractContextManager[None]]]:
    """The model with all adapters, and a function that gives a context in which one name answers.

    `candidates`: name -> adapter folder; None is the base alone. Raises PermanentError for one that does not fit.
    """
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, local_files_only=True)
    model = model.to(device).eval()
    names: dict[str, str] = {}
    for number, (name, folder) in enumerate(candidates.items()):
        if folder is None:
            continue
        # PEFT makes attribute names of these, and a version's own name has dots and slashes.
        names[name] = f"adapter{number}"
        try:
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = True
            if len(names) == 1:
                model = PeftModel(model, config, adapter_name=names[name], autocast_adapter_dtype=False)
            else:
                model.add_adapter(names[name], config, autocast_adapter_dtype=False)
            result = model.load_adapter(str(folder), names[name], torch_device=device, autocast_adapter_dtype=False)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise PermanentError(f"{folder} does not load on {base}: {str(error).splitlines()[0]}") from error
        if result.missing_keys or result.unexpected_keys:
            strange = (*result.missing_keys, *result.unexpected_keys)
            raise PermanentError(f"{folder} does not fit {base}: {len(strange)} tensors, such as {strange[0]}")

    @contextlib.contextmanager
    def switch(name: str) -> Iterator[None]:
        if name in names:
            model.set_adapter(names[name])
            yield
        else:
            with model.disable_adapter() if names else contextlib.nullcontext():
                yield

    model.eval()
    return model, switch


def ends_of(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens with which the model ends an answer."""
    own = model.generation_config.eos_token_id
    return frozenset(own if isinstance(own, list) else [own]) - {None} | {tokenizer.eos_token_id}


def write_answers(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    *,
    device: str,
    max_tokens: int,
    begun: Sequence[list[int]] | None = None,
) -> list[ModelAnswer]:
    """The answers to prompts of tokens, the likeliest token each time; as many in a batch as memory bears.

    `begun`: how each answer begins, which is not written again; `max_tokens` are those of an answer with its beginning.
    """
    answers: dict[int, ModelAnswer] = {}
    given = begun or [[] for _ in prompts]
    length = [len(prompt) + len(own) for prompt, own in zip(prompts, given, strict=True)]
    # Prompts of like length share a batch: little of it is padding.
    left = sorted(range(len(prompts)), key=lambda place: -length[place])
    while left:
        size = max(1, _BATCH_TOKENS // (length[left[0]] + max_tokens))
        batch, left = left[:size], left[size:]
        written = _write(
            model,
            tokenizer,
            [prompts[place] for place in batch],
            [given[place] for place in batch],
            device,
            max_tokens,
        )
        answers.update(zip(batch, written, strict=True))
    return [answers[place] for place in range(len(prompts))]


def _write(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[list[int]],
    begun: Sequence[list[int]],
    device: str,
    max_tokens: int,
) -> list[ModelAnswer]:
    import torch

    asked = [prompt + own for prompt, own in zip(prompts, begun, strict=True)]
    width = max(map(len, asked))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    tokens = torch.tensor([[pad] * (width - len(each)) + each for each in asked], device=device)
    mask = torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in asked], device=device)
    written = model.generate(
        input_ids=tokens,
        attention_mask=mask,
        max_new_tokens=max(1, max_tokens - min(map(len, begun))),
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        pad_token_id=pad,
    )[:, width:]
    ends = ends_of(model, tokenizer) | {pad}
    found = []
    for own, row in zip(begun, written.tolist(), strict=True):
        end = next((place for place, token in enumerate(row) if token in ends), None)
        answer = own + row[:end]
        text = tokenizer.decode(answer[:max_tokens], skip_special_tokens=True)
        found.append(ModelAnswer(text.strip(), cut=end is None or len(answer) > max_tokens))
    return found

"""A base model with adapters on it, in this process, and what it writes.

Belongs here: loading as adapters are served (unmerged), switching, writing answers out, the mask of several behind one
prompt. Does not: likelihoods, and who is asked what (`ec1.adapters`, `ec1.training.on_the_way`).
"""

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.answers.wording import Wording
from ec1.errors import PermanentError
from ec1.launch.libraries import hidden, load_libraries
from ec1.models import load_model, precision_on, unneeded_libraries, weight_bytes_in

_ROUND = 32
"""Tokens after which it is looked which answers go on."""
_BATCH_TOKENS = 2**13
"""Prompts and answers of one batch: what attention keeps of them is about 4 GiB for a 7B without grouped heads."""
_THOUGHT = re.compile(r"<(/?)[\w:]*think>")
_OPENING_TOKENS = 8
"""With which a chat template opens an answer, and perhaps a thought."""


@dataclass(frozen=True)
class ModelAnswer:
    """What a model wrote; `cut` if the limit on its tokens ended it, `thinking` if that was before any answer."""

    text: str
    cut: bool
    thinking: bool = False


@contextlib.contextmanager
def ready_to_answer(base: Path) -> Iterator[None]:
    """Load what `load_candidates` needs for this model, and nothing more: for a process that does nothing else."""
    with hidden(unneeded_libraries(base)):
        load_libraries("peft")
        yield


def load_candidates(
    base: Path, candidates: Mapping[str, Path | None], device: str
) -> tuple[Any, Callable[[str], AbstractContextManager[None]]]:
    """The model with all adapters, and a function that gives a context in which one name answers.

    `candidates`: name -> adapter folder; None is the base alone. Raises PermanentError for one that does not fit.
    """
    from peft import PeftConfig, PeftModel

    precision = precision_on(device, weight_bytes_in(base))
    model = load_model(base, dtype=precision)
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
    fold_slices(model)
    return model, switch


@contextlib.contextmanager
def at_rest(model: Any) -> Iterator[None]:
    """No gradients and no dropout, and afterwards the mode in which the model was: a look at one that is trained."""
    import torch

    training = model.training
    # Layers that are trained whole are in 32 bits, and hand on what the next one of a base in 16 cannot read.
    mixed = any(".modules_to_save." in name for name, _ in model.named_parameters()) and model.dtype == torch.bfloat16
    device = next(model.parameters()).device.type
    model.eval()
    try:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, mixed):
            yield
    finally:
        model.train(training)


def fold_slices(model: Any) -> None:
    """Make a frozen head multiply all rows of a batch at once.

    Of a slice of places, which both reading and writing ask for, torch multiplies each row on its own with a weight
    that is frozen: sixty times as slow (`should_fold` in ATen/native/LinearAlgebra.cpp).
    """
    model.get_output_embeddings().register_forward_pre_hook(lambda _, given: (given[0].contiguous(), *given[1:]))


def apart(answer_of: Any) -> Any:
    """The attention mask (rows, 1, tokens, tokens) of rows in which several answers stand behind one prompt.

    `answer_of` (rows, tokens): of which answer a token is; 0 of the prompt, which all of them see; -1 of none.
    """
    same = (answer_of[:, None, :] == 0) | (answer_of[:, None, :] == answer_of[:, :, None])
    return same.tril()[:, None]


def longest_apart(config: Any) -> int:
    """How many tokens a row may have in which that mask alone decides what a token sees: none in a model that looks
    back by other means too, such as a state, and no more than the window of layers that have one."""
    text = config.get_text_config()
    kinds = set(getattr(text, "layer_types", None) or ())
    if kinds - {"full_attention", "sliding_attention"}:
        return 0
    return getattr(text, "sliding_window", None) or sys.maxsize


def tokens_of(tokenizer: Any, messages: Sequence[Mapping[str, Any]], *, ask: bool) -> list[int]:
    """A conversation in the model's own template; `ask`: with the opening of an answer. What a table has no value for
    does not count."""
    said = [{key: value for key, value in each.items() if value is not None} for each in messages]
    return list(tokenizer.apply_chat_template(said, add_generation_prompt=ask, tokenize=True, return_dict=False))


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
    hopeless: Callable[[int, str], bool] = lambda place, text: False,
    temperature: float | None = None,
) -> list[ModelAnswer]:
    """The answers to prompts of tokens, as many in a batch as memory bears: the likeliest token each time, or with a
    `temperature` one drawn with it.

    `begun`: how each answer begins, which is not written again; `max_tokens` are those of an answer with its beginning
    and its end. `hopeless` says of the answer at a place, by what there is of it, that the rest need not be written.
    """
    wording = Wording.of(tokenizer)
    answers = [list(own) for own in begun] if begun is not None else [[] for _ in prompts]
    ended, given_up = set[int](), set[int]()
    left, step = list(range(len(prompts))), _ROUND
    while left:
        asked = {place: prompts[place] + answers[place] for place in left}
        for batch in _batches(asked, max_tokens):
            most = max_tokens - min(len(answers[place]) for place in batch)
            rows = _write(
                model, tokenizer, [asked[place] for place in batch], device, max(1, min(step, most)), temperature
            )
            for place, (row, whole) in zip(batch, rows, strict=True):
                answers[place] += row
                if whole:
                    ended.add(place)
        going = [place for place in left if place not in ended and len(answers[place]) < max_tokens]
        given_up |= {place for place in going if hopeless(place, wording.text(answers[place]))}
        # In rounds, each twice as long: those that have ended hold up the others no more.
        left, step = [place for place in going if place not in given_up], 2 * step
    found = []
    for place, answer in enumerate(answers):
        text = wording.text(answer[:max_tokens])
        if place in given_up:
            found.append(ModelAnswer(f"{text} \u2026", cut=False))
            continue
        cut = place not in ended or len(answer) >= max_tokens
        found.append(ModelAnswer(text, cut, thinking=cut and _in_thought(tokenizer, prompts[place], text)))
    return found


def write_meanwhile(
    model: Any, tokenizer: Any, prompts: Sequence[list[int]], *, device: str, max_tokens: int
) -> list[ModelAnswer]:
    """As `write_answers`, of a model that is being trained: its mode and all random states are afterwards as they were,
    so whether something was answered does not change the next step."""
    import torch

    with at_rest(model), torch.random.fork_rng(), torch.inference_mode():
        return write_answers(model, tokenizer, prompts, device=device, max_tokens=max_tokens)


def _batches(asked: Mapping[int, list[int]], max_tokens: int) -> Iterator[list[int]]:
    """Prompts of like length share a batch: little of it is padding."""
    left = sorted(asked, key=lambda place: -len(asked[place]))
    while left:
        size = max(1, _BATCH_TOKENS // (len(asked[left[0]]) + max_tokens))
        yield left[:size]
        left = left[size:]


def _write(
    model: Any, tokenizer: Any, asked: Sequence[list[int]], device: str, tokens: int, temperature: float | None
) -> list[tuple[list[int], bool]]:
    """So many more tokens each, or all up to the end; and whether it ended."""
    import torch

    width = max(map(len, asked))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    written = model.generate(
        input_ids=torch.tensor([[pad] * (width - len(each)) + each for each in asked], device=device),
        attention_mask=torch.tensor([[0] * (width - len(each)) + [1] * len(each) for each in asked], device=device),
        max_new_tokens=tokens,
        do_sample=temperature is not None,
        # A training with gradient checkpointing has switched it off in the model's own settings.
        use_cache=True,
        temperature=temperature,
        # Nothing is left out of what is drawn from.
        top_p=None if temperature is None else 1.0,
        top_k=None if temperature is None else 0,
        pad_token_id=pad,
    )[:, width:]
    ends = ends_of(model, tokenizer)
    cuts = [next((at for at, token in enumerate(row) if token in ends), None) for row in written.tolist()]
    return [(row[:end], end is not None) for row, end in zip(written.tolist(), cuts, strict=True)]


def _in_thought(tokenizer: Any, prompt: Sequence[int], text: str) -> bool:
    """Whether what the template opens with, or the answer itself, has opened a thought, and nothing has ended it."""
    marks = _THOUGHT.findall(tokenizer.decode(prompt[-_OPENING_TOKENS:]) + text)
    return bool(marks) and not marks[-1]

"""The evaluation: base, incumbent and candidate scored on the same held-out examples, in a separate process.

Run as `python -m ec1.adapters.evaluation SPEC.json`. The base is loaded once and the adapters are switched on it. It is
scored as it is served: the weights in bf16 with the adapter unmerged, not the 4-bit weights that were trained on.
A score is a mean log-probability per token, which sees small changes that right-or-wrong answers do not.

Belongs here: tokenising as training does, scoring, sample answers. Does not: the decision (`gate.py`).
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ec1.adapters.scores import BASE, ExampleScores, Sample, ScoredObjective, Scores, write_scores
from ec1.errors import EC1Error, InputError, PermanentError
from ec1.files import canonical_json, read_json
from ec1.launch.reporting import open_reporter
from ec1.recipes.evaluation import EvaluationOptions
from ec1.settings import Settings
from ec1.strict_yaml import validate

log = logging.getLogger(__name__)

Report = Callable[[str], None]

_NLL_PIECE = 256
_SAMPLE_PROMPT_TOKENS = 512


class EvaluationSpec(Settings):
    """What to evaluate. Paths are absolute, or relative to the process's folder."""

    model: Path = Field(description="the base model's folder")
    device: Literal["cuda", "cpu"] = "cuda"
    candidates: dict[str, Path | None] = Field(description="name -> adapter folder; `base` is null")
    heldout: Path = Field(description="a folder of Parquet files or a .jsonl file, conversational examples")
    objective: ScoredObjective
    system_prompt: str | None = Field(None, description="put before examples that have none, as in training")
    max_length: int = Field(512, gt=1, description="tokens; longer examples are cut at the end, as in training")
    batch_size: int = Field(4, gt=0)
    options: EvaluationOptions = EvaluationOptions()
    output: Path = Field(description="folder for evaluation.json and examples.jsonl")

    @field_validator("candidates")
    @classmethod
    def _has_the_base(cls, value: dict[str, Path | None]) -> dict[str, Path | None]:
        if value.get(BASE, Path()) is not None or sum(path is None for path in value.values()) != 1:
            raise ValueError("needs `base: null`, and a folder for every other name")
        return value


@dataclass(frozen=True)
class _Example:
    """One held-out example as tokens. `answers`: the completion, or the chosen and the rejected answer."""

    name: str
    group: str
    prompt: list[int]
    answers: tuple[list[int], ...]
    prompt_text: str
    expected: str


@dataclass(frozen=True)
class _Sequence:
    """Prompt and answer in a row; `start` is where the answer begins."""

    example: int
    answer: int
    tokens: list[int]
    start: int


def evaluate(spec: EvaluationSpec, report: Report) -> Scores:
    """Score all candidates, write the result to `spec.output` and return it. `report` gets a line per stage.

    Raises InputError for held-out data of another shape, PermanentError for an adapter that does not fit the model.
    """
    import torch
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    started = time.monotonic()
    tokenizer = AutoTokenizer.from_pretrained(spec.model, local_files_only=True)
    examples, skipped = _read_examples(spec, tokenizer)
    if not examples:
        raise InputError(f"{spec.heldout} holds no example that fits {spec.max_length} tokens: nothing to evaluate")
    model, switch = _load(spec)
    seconds = {"load": time.monotonic() - started}
    report(f"loaded {spec.model.name} and {len(spec.candidates) - 1} adapters in {seconds['load']:.1f} s")

    per_model: dict[str, list[list[float]]] = {}
    answers: dict[str, list[str]] = {}
    chosen = _shortest(examples, spec.options.sample_generations)
    torch.manual_seed(spec.options.seed)
    for name in spec.candidates:
        started = time.monotonic()
        with torch.inference_mode(), switch(name):
            per_model[name] = _losses(model, examples, spec, tokenizer.pad_token_id or 0)
            answers[name] = _generate(model, tokenizer, [examples[index].prompt for index in chosen], spec)
        seconds[name] = time.monotonic() - started
        report(f"evaluated {name} on {len(examples)} examples in {seconds[name]:.1f} s")

    scores = Scores(
        objective=spec.objective,
        models=tuple(spec.candidates),
        examples=tuple(_scored(example, index, per_model) for index, example in enumerate(examples)),
        skipped=skipped,
        samples=tuple(
            Sample(
                prompt=examples[index].prompt_text,
                expected=examples[index].expected,
                answers={name: answers[name][place] for name in spec.candidates},
            )
            for place, index in enumerate(chosen)
        ),
        precision="bfloat16, adapters unmerged, no quantisation",
        device=spec.device,
        seconds={name: round(value, 2) for name, value in seconds.items()},
    )
    write_scores(scores, spec.output)
    return scores


def _read_examples(spec: EvaluationSpec, tokenizer: Any) -> tuple[list[_Example], int]:
    """The examples as tokens, and how many had no room for an answer."""
    rows = list(enumerate(_rows(spec.heldout)))
    # A stable choice that does not depend on the order of rows, so that nights stay comparable.
    rows.sort(key=lambda item: hashlib.sha256(_name(*item).encode()).digest())
    examples: list[_Example] = []
    skipped = 0
    for index, row in sorted(rows[: spec.options.max_examples]):
        columns = ("completion",) if spec.objective == "sft" else ("chosen", "rejected")
        messages = {column: _messages(row, column, spec.heldout) for column in ("prompt", *columns)}
        prompt = messages.pop("prompt")
        if spec.system_prompt and prompt[0]["role"] != "system":
            prompt = [{"role": "system", "content": spec.system_prompt}, *prompt]
        if row.get("input_ids") and row.get("completion_mask"):
            # What training reads, with the tools and the reasoning that the columns of messages have no room for.
            start, end = _last_answer(row["completion_mask"])
            asked = row["input_ids"]
            wholes = [asked[:end]]
        else:
            asked = _tokens(tokenizer, prompt, ask=True)
            wholes = [_tokens(tokenizer, prompt + answer, ask=False) for answer in messages.values()]
            # As TRL does: an answer begins where prompt and whole conversation part.
            start = min(_common_prefix(asked, whole) for whole in wholes)
        answers = tuple(whole[start : spec.max_length] for whole in wholes)
        if start == 0 or not all(answers):
            skipped += 1
            continue
        name = _name(index, row)
        examples.append(
            _Example(
                name,
                str(row.get("group") or name),
                asked[:start],
                answers,
                prompt[-1]["content"],
                "\n".join(message["content"] for message in messages[columns[0]]),
            )
        )
    return examples, skipped


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.is_file():
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    import pyarrow.parquet as pq

    files = sorted(path.glob("*.parquet"))
    if not files:
        raise InputError(f"{path} is neither a .jsonl file nor a folder with Parquet files")
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def _messages(row: dict[str, Any], column: str, where: Path) -> list[dict[str, str]]:
    messages = row.get(column)
    if not isinstance(messages, list) or not messages or not all(isinstance(item, dict) for item in messages):
        raise InputError(f"{where}: the column {column!r} must hold a list of messages (role, content)")
    return [{"role": message["role"], "content": message["content"]} for message in messages]


def _name(index: int, row: dict[str, Any]) -> str:
    name = row.get("row")
    return str(name) if name else hashlib.sha256(canonical_json(row)).hexdigest()[:16] + f"-{index}"


def _tokens(tokenizer: Any, messages: list[dict[str, str]], *, ask: bool) -> list[int]:
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=ask, tokenize=True, return_dict=False))


def _last_answer(mask: Sequence[int]) -> tuple[int, int]:
    """Where the last answer begins and ends: of a conversation the answers before it are given, not scored."""
    end = len(mask)
    while end and not mask[end - 1]:
        end -= 1
    start = end
    while start and mask[start - 1]:
        start -= 1
    return start, end


def _common_prefix(one: list[int], other: list[int]) -> int:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _load(spec: EvaluationSpec) -> tuple[Any, Callable[[str], Any]]:
    """The model with all adapters, and a function that gives a context in which one name answers."""
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(spec.model, dtype=torch.bfloat16, local_files_only=True)
    model = model.to(spec.device).eval()
    names: dict[str, str] = {}
    for number, (name, folder) in enumerate(spec.candidates.items()):
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
            result = model.load_adapter(
                str(folder), names[name], torch_device=spec.device, autocast_adapter_dtype=False
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise PermanentError(f"{folder} does not load on {spec.model}: {str(error).splitlines()[0]}") from error
        if result.missing_keys or result.unexpected_keys:
            strange = (*result.missing_keys, *result.unexpected_keys)
            raise PermanentError(f"{folder} does not fit {spec.model}: {len(strange)} tensors, such as {strange[0]}")

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


def _losses(model: Any, examples: Sequence[_Example], spec: EvaluationSpec, pad: int) -> list[list[float]]:
    """Per example, per answer: the mean negative log-probability of its tokens, in nats."""
    import torch

    sequences = [
        _Sequence(index, place, example.prompt + answer, len(example.prompt))
        for index, example in enumerate(examples)
        for place, answer in enumerate(example.answers)
    ]
    # Rows of similar length together: less padding, and the same batches for every model.
    sequences.sort(key=lambda item: (-len(item.tokens), item.example, item.answer))
    losses = [[math.nan] * len(example.answers) for example in examples]
    for first in range(0, len(sequences), spec.batch_size):
        batch = sequences[first : first + spec.batch_size]
        width = len(batch[0].tokens)
        tokens = torch.tensor([item.tokens + [pad] * (width - len(item.tokens)) for item in batch], device=spec.device)
        mask = torch.tensor(
            [[1] * len(item.tokens) + [0] * (width - len(item.tokens)) for item in batch], device=spec.device
        )
        # The logits at a place foretell the next token, and those before any answer are not computed.
        before = min(item.start for item in batch) - 1
        logits = model(input_ids=tokens, attention_mask=mask, use_cache=False, logits_to_keep=width - before).logits
        for row, item in enumerate(batch):
            begin, end = item.start - 1 - before, len(item.tokens) - 1 - before
            losses[item.example][item.answer] = _mean_loss(logits[row, begin:end], tokens[row, item.start :])
    return losses


def _mean_loss(logits: Any, tokens: Any) -> float:
    from torch.nn.functional import cross_entropy

    # In pieces: a long answer over a large vocabulary in float32 would fill the memory.
    total = 0.0
    for first in range(0, len(logits), _NLL_PIECE):
        piece = logits[first : first + _NLL_PIECE].float()
        total += float(cross_entropy(piece, tokens[first : first + len(piece)], reduction="sum"))
    return total / len(logits)


def _shortest(examples: Sequence[_Example], count: int) -> list[int]:
    """The examples with the shortest prompts: their sample answers cost least."""
    order = sorted(range(len(examples)), key=lambda index: (len(examples[index].prompt), examples[index].name))
    return [index for index in order if len(examples[index].prompt) <= _SAMPLE_PROMPT_TOKENS][:count]


def _generate(model: Any, tokenizer: Any, prompts: Sequence[list[int]], spec: EvaluationSpec) -> list[str]:
    import torch

    if not prompts:
        return []
    width = max(map(len, prompts))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    tokens = torch.tensor([[pad] * (width - len(prompt)) + prompt for prompt in prompts], device=spec.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=spec.device)
    answers = model.generate(
        input_ids=tokens,
        attention_mask=mask,
        max_new_tokens=spec.options.sample_tokens,
        do_sample=False,
        temperature=None,
        top_p=None,
        top_k=None,
        pad_token_id=pad,
    )
    return [text.strip() for text in tokenizer.batch_decode(answers[:, width:], skip_special_tokens=True)]


def _scored(example: _Example, index: int, per_model: dict[str, list[list[float]]]) -> ExampleScores:
    """One answer: its log-probability is the score. Two: the first one's minus the second one's."""
    losses = {name: values[index] for name, values in per_model.items()}
    scores = {name: (value[1] - value[0]) if len(value) == 2 else -value[0] for name, value in losses.items()}
    return ExampleScores(
        example=example.name,
        group=example.group,
        tokens=len(example.answers[0]),
        scores={name: value if math.isfinite(value) else None for name, value in scores.items()},
        losses={name: value[0] if math.isfinite(value[0]) else None for name, value in losses.items()},
    )


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 1 failed, 2 usage."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    if len(arguments) != 1:
        log.error("usage: python -m ec1.adapters.evaluation SPEC.json")
        return 2
    try:
        path = Path(arguments[0])
        if not path.is_file():
            raise InputError(f"{path} does not exist")
        spec = validate(EvaluationSpec, read_json(path), str(path))
        with open_reporter(os.environ) as reporter:
            scores = evaluate(spec, reporter.progress)
            reporter.result({"evaluated": list(scores.models), "examples": len(scores.examples)})
    except EC1Error as error:
        log.error("%s", error)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

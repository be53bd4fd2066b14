"""Held-out examples as tokens, and what a model makes of their answers when it is shown them.

Belongs here: tokenising as training does, mean log-probabilities, which see small changes that right-or-wrong answers
do not, and how much of an answer the model would write itself. Does not: which models are asked (`evaluation.py`),
writing (`ec1.answers.answering`) and what follows (`gate.py`).
"""

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from ec1.answers.answering import tokens_of
from ec1.corpus.cases import chosen
from ec1.corpus.row_kinds import ROW_KINDS
from ec1.errors import InputError
from ec1.files import canonical_json

_NLL_PIECE = 256


@dataclass(frozen=True)
class HeldOutExample:
    """One held-out example as tokens. `answers`: the completion, or the chosen and the rejected answer."""

    name: str
    group: str
    prompt: list[int]
    answers: tuple[list[int], ...]
    prompt_text: str
    expected: str


@dataclass(frozen=True)
class ReadAnswer:
    """What a model makes of an answer that it is shown. Greedy decoding, the likeliest token each time, would write its
    first `same` tokens as they are; `whole`: all of it, and end there."""

    loss: float
    """The mean negative log-probability of its tokens, in nats."""
    same: int
    whole: bool


_UNREAD = ReadAnswer(math.nan, 0, False)


@dataclass(frozen=True)
class _Sequence:
    """Prompt and answer in a row; `start` is where the answer begins."""

    example: int
    answer: int
    tokens: list[int]
    start: int


def read_examples(
    path: Path, objective: str, tokenizer: Any, *, system_prompt: str | None, max_length: int, limit: int
) -> tuple[list[HeldOutExample], int]:
    """At most `limit` examples, evaluation cases first, and how many had no room for an answer. Raises InputError for
    another shape."""
    rows = list(enumerate(rows_of(path)))
    # A stable choice that does not depend on the order of rows, so that nights stay comparable.
    rows.sort(key=lambda item: hashlib.sha256(name_of(*item).encode()).digest())
    examples: list[HeldOutExample] = []
    skipped = 0
    first = chosen(((row.get("group"), (index, row)) for index, row in rows), limit)
    for index, row in sorted(first, key=itemgetter(0)):
        columns = ROW_KINDS[objective].sides
        messages = {column: _messages(row, column, path) for column in ("prompt", *columns)}
        prompt = messages.pop("prompt")
        if system_prompt and prompt[0]["role"] != "system":
            prompt = [{"role": "system", "content": system_prompt}, *prompt]
        if row.get("input_ids") and row.get("completion_mask"):
            # What training reads, with the tools and the reasoning that the columns of messages have no room for.
            start, end = _last_answer(row["completion_mask"])
            asked = row["input_ids"]
            wholes = [asked[:end]]
        else:
            asked = tokens_of(tokenizer, prompt, ask=True)
            wholes = [tokens_of(tokenizer, prompt + answer, ask=False) for answer in messages.values()]
            # As TRL does: an answer begins where prompt and whole conversation part.
            start = min(_common_prefix(asked, whole) for whole in wholes)
        answers = tuple(whole[start:max_length] for whole in wholes)
        if start == 0 or not all(answers):
            skipped += 1
            continue
        name = name_of(index, row)
        examples.append(
            HeldOutExample(
                name,
                str(row.get("group") or name),
                asked[:start],
                answers,
                prompt[-1]["content"],
                "\n".join(message["content"] for message in messages[columns[0]]),
            )
        )
    return examples, skipped


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file or of a folder of Parquet files. Raises InputError if it is neither."""
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


def name_of(index: int, row: dict[str, Any]) -> str:
    """What a row is called in scores."""
    name = row.get("row")
    return str(name) if name else hashlib.sha256(canonical_json(row)).hexdigest()[:16] + f"-{index}"


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


def shuffled(examples: Sequence[HeldOutExample]) -> list[HeldOutExample | None]:
    """Each example's first answer behind the prompt of one from another group, always the same; None if there is none.

    Neighbours in a stable order that has nothing to do with what they say are as good as chance, and repeatable.
    """
    order = sorted(range(len(examples)), key=lambda index: hashlib.sha256(examples[index].name.encode()).digest())
    found: list[HeldOutExample | None] = [None] * len(examples)
    for place, index in enumerate(order):
        mine = examples[index]
        others = (examples[order[(place + step) % len(order)]] for step in range(1, len(order)))
        other = next((other for other in others if other.group != mine.group), None)
        if other is not None:
            found[index] = replace(mine, prompt=other.prompt, answers=mine.answers[:1])
    return found


def read_answers(
    model: Any, examples: Sequence[HeldOutExample], *, batch_tokens: int, pad: int, ends: Collection[int], device: str
) -> list[list[ReadAnswer]]:
    """Per example, per answer, what one pass over prompt and answer says. `ends`: the tokens that end an answer.

    A batch holds at most `batch_tokens`, padding with them, or one row.
    """
    import torch

    sequences = [
        _Sequence(index, place, example.prompt + answer, len(example.prompt))
        for index, example in enumerate(examples)
        for place, answer in enumerate(example.answers)
    ]
    # Rows of like length together: less padding, and the same batches for every model.
    sequences.sort(key=lambda item: (-len(item.tokens), item.example, item.answer))
    found = [[_UNREAD] * len(example.answers) for example in examples]
    while sequences:
        width = len(sequences[0].tokens)
        size = max(1, batch_tokens // width)
        batch, sequences = sequences[:size], sequences[size:]
        tokens = torch.tensor([item.tokens + [pad] * (width - len(item.tokens)) for item in batch], device=device)
        mask = torch.tensor(
            [[1] * len(item.tokens) + [0] * (width - len(item.tokens)) for item in batch], device=device
        )
        # The logits at a place foretell the next token, and those before any answer are not computed.
        before = min(item.start for item in batch) - 1
        logits = model(input_ids=tokens, attention_mask=mask, use_cache=False, logits_to_keep=width - before).logits
        for row, item in enumerate(batch):
            begin, end = item.start - 1 - before, len(item.tokens) - 1 - before
            found[item.example][item.answer] = _read(logits[row, begin:end], tokens[row, item.start :], ends)
    return found


def _read(logits: Any, tokens: Any, ends: Collection[int]) -> ReadAnswer:
    from torch.nn.functional import cross_entropy

    # In pieces: a long answer over a large vocabulary in float32 would fill the memory.
    total, own = 0.0, []
    for first in range(0, len(logits), _NLL_PIECE):
        piece = logits[first : first + _NLL_PIECE].float()
        total += float(cross_entropy(piece, tokens[first : first + len(piece)], reduction="sum"))
        own += piece.argmax(dim=-1).tolist()
    wanted = tokens[: len(logits)].tolist()
    same = _common_prefix(own, wanted)
    # What a template puts behind the end of a turn is never written.
    end = next((place for place, token in enumerate(wanted) if token in ends), len(wanted))
    return ReadAnswer(total / len(logits), min(same, end), same > end)

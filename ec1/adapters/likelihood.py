"""Held-out examples as tokens, and what a model makes of their answers when it is shown them.

Belongs here: tokenising as training does, mean log-probabilities, which see small changes that right-or-wrong answers
do not, and how much of an answer the model would write itself. Does not: which models are asked (`evaluation.py`),
writing (`ec1.answers.answering`) and what follows (`gate.py`).
"""

import hashlib
import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

from ec1.answers.answering import apart, longest_apart, tokens_of
from ec1.corpus.cases import chosen
from ec1.corpus.row_kinds import ROW_KINDS
from ec1.errors import InputError
from ec1.files import canonical_json

_NLL_PIECE = 256
_SAME_NATS = 0.05
"""Two readings of an answer in 16 bits lie 0.01 nats per token apart, and 0.3 to 2 where it sees others (the sample's
model, base and adapters)."""
_TRIED_ROWS = 4


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
_Found = dict[tuple[int, int], ReadAnswer]
"""By example, and which of its answers."""


@dataclass
class _Row:
    """A prompt, and one or more of its answers one behind the other, none of which sees another."""

    prompt: list[int]
    answers: list[list[int]]
    places: list[tuple[int, int]]
    """Of each: which example's it is, and which of its answers."""

    @property
    def length(self) -> int:
        return len(self.prompt) + sum(map(len, self.answers))


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

    A prompt is read once for all of its answers, if the model lets them share it. A batch holds at most `batch_tokens`,
    padding with them, or one answer.
    """
    read = partial(_read_rows, model, batch_tokens=batch_tokens, pad=pad, ends=ends, device=device)
    rows = _rows(examples, min(batch_tokens, longest_apart(model.config)))
    shared = sorted((row for row in rows if len(row.answers) > 1), key=lambda row: -row.length)
    try:
        found = read(rows)
        keeps_apart = not shared or _shares(found, read, shared[:_TRIED_ROWS])
    except Exception:
        # A model that takes no such mask says so in whatever way it fails.
        if not shared:
            raise
        keeps_apart = False
    if not keeps_apart:
        found = read(_rows(examples, 0))
    return [
        [found.get((index, place), _UNREAD) for place in range(len(example.answers))]
        for index, example in enumerate(examples)
    ]


def _rows(examples: Sequence[HeldOutExample], most: int) -> list[_Row]:
    """Each prompt once, with its answers, as long as that makes at most so many tokens."""
    open_rows: dict[tuple[int, ...], _Row] = {}
    rows = []
    for index, example in enumerate(examples):
        for place, answer in enumerate(example.answers):
            row = open_rows.get(key := tuple(example.prompt))
            if row is None or row.length + len(answer) > most:
                row = open_rows[key] = _Row(example.prompt, [], [])
                rows.append(row)
            row.answers.append(answer)
            row.places.append((index, place))
    return rows


def _shares(found: _Found, read: Callable[[list[_Row]], _Found], rows: list[_Row]) -> bool:
    """Whether the model read the last of each row's answers as if it were the only one: not if it looks at what stands
    before by other means than the mask, such as a state or a window."""
    alone = read([_Row(row.prompt, row.answers[-1:], row.places[-1:]) for row in rows])
    return sum(abs(each.loss - found[place].loss) for place, each in alone.items()) < _SAME_NATS * len(alone)


def _read_rows(
    model: Any, rows: list[_Row], *, batch_tokens: int, pad: int, ends: Collection[int], device: str
) -> _Found:
    import torch

    # Rows of like length together: less padding, and the same batches for every model.
    rows = sorted(rows, key=lambda row: (-row.length, row.places))
    found: _Found = {}
    while rows:
        width = rows[0].length
        size = max(1, batch_tokens // width)
        batch, rows = rows[:size], rows[size:]
        tokens = torch.full((len(batch), width), pad, device=device)
        # Of which answer a token is: 0 of the prompt, which all of them see; -1 of none.
        answer_of, positions = torch.full_like(tokens, -1), torch.zeros_like(tokens)
        for number, row in enumerate(batch):
            start = 0
            for which, part in enumerate([row.prompt, *row.answers]):
                span, first = slice(start, start + len(part)), len(row.prompt) if which else 0
                tokens[number, span] = torch.tensor(part, device=device)
                answer_of[number, span] = which
                positions[number, span] = torch.arange(first, first + len(part), device=device)
                start += len(part)
        # The logits at a place foretell the next token, and those before any answer are not computed.
        before = min(len(row.prompt) for row in batch) - 1
        seen = {"attention_mask": (answer_of >= 0).long()}
        if any(len(row.answers) > 1 for row in batch):
            seen = {"attention_mask": apart(answer_of), "position_ids": positions}
        logits = model(input_ids=tokens, use_cache=False, logits_to_keep=width - before, **seen).logits
        for number, row in enumerate(batch):
            end = len(row.prompt)
            for answer, place in zip(row.answers, row.places, strict=True):
                begin, end = end, end + len(answer)
                # The first of its tokens is foretold at the end of the prompt, wherever the answer stands.
                told = [
                    logits[number, len(row.prompt) - 1 - before, None],
                    logits[number, begin - before : end - 1 - before],
                ]
                found[place] = _read(torch.cat(told), tokens[number, begin:end], ends)
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

"""A look at rows as the model will read them, token by token, with what is learnt marked.

Belongs here: the few rows that a person wants to see, through the same steps as a dataset's (tuples, cleaning,
rendering). Does not: how they are printed (commands), the steps themselves.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ec1.corpus import cleaning
from ec1.corpus.dataset import with_system_prompt
from ec1.corpus.options import DataOptions
from ec1.corpus.rendering import encode, rendered, rendered_sides
from ec1.corpus.row_kinds import PAIRS, ROW_KINDS
from ec1.corpus.snapshots import Snapshot
from ec1.corpus.tuples import Example, Objective, example_of, parse_record
from ec1.errors import RejectedError


@dataclass(frozen=True)
class PreviewRow:
    """One row. `pieces` are stretches of its text with whether they are learnt; `problem` says why it is left out."""

    origin: str
    tokens: int
    learnt: int
    pieces: tuple[tuple[str, bool], ...]
    problem: str | None = None


@dataclass(frozen=True)
class Measured:
    """Lengths of the first `rows` rows in tokens, and what a recipe would drop of them, by reason."""

    rows: int
    percentiles: dict[str, int]
    dropped: dict[str, int]
    mean: float = 0.0


def row_tokens(tokenizer: Any, record: Mapping[str, Any], objective: Objective, data: DataOptions) -> int:
    """How many tokens a tuple is as the model reads it, with its template; of a preference the longer side. Raises
    RejectedError if it cannot be a row."""
    example = with_system_prompt(example_of(parse_record(record, data.known_keys), objective), data.system_prompt)
    sides = ROW_KINDS[objective].sides
    if not sides:
        return len(_asked(tokenizer, example)[1])
    forms = [rendered(tokenizer, {**example, "completion": example[side]}, data.train_on) for side in sides]
    return max(len(item.input_ids) for item in encode(tokenizer, forms))


def measure(snapshot: Snapshot, data: DataOptions, model: Path, rows: int = 2000) -> Measured:
    """How long the rows are and which would be dropped, before a night finds out; duplicates are not looked for."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    lengths: list[int] = []
    dropped: Counter[str] = Counter()
    for row in itertools.islice(snapshot.rows(), rows):
        try:
            lengths.append(row_tokens(tokenizer, row.record, snapshot.objective, data))
        except RejectedError as error:
            dropped[str(error)] += 1
    refused = dropped.total()
    long = 0 if ROW_KINDS[snapshot.objective].cut else sum(length > data.max_length for length in lengths)
    if long:
        dropped[f"longer than data.max_length = {data.max_length}"] = long
    shares = {f"p{share}": int(np.percentile(lengths, share)) for share in (50, 90, 95, 99, 100)} if lengths else {}
    mean = float(np.mean(lengths)) if lengths else 0.0
    return Measured(len(lengths) + refused, shares, dict(dropped.most_common()), mean)


def preview_rows(
    found: Iterable[tuple[str, Mapping[str, Any] | RejectedError]], data: DataOptions, objective: Objective, model: Path
) -> list[PreviewRow]:
    """Rows as a model reads them, each with where it stands or why it cannot be read; each side of a preference is
    a row of its own."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    shown: list[PreviewRow] = []
    for origin, record in found:
        try:
            if isinstance(record, RejectedError):
                raise record
            example = example_of(parse_record(record, data.known_keys), objective)
            if data.scrub:
                example, _ = cleaning.scrub_example(example, data.recognizers)
            example = with_system_prompt(example, data.system_prompt)
            kind = ROW_KINDS[objective]
            if kind.beside:
                text, tokens = _asked(tokenizer, example)
                checks = ("\n".join(message["content"] for message in example["checks"]), False)
                shown.append(PreviewRow(origin, len(tokens), 0, ((text, False), checks), None))
                continue
            sides = [_side(example, side) for side in kind.sides] if kind is PAIRS else [example]
            shown += [_row(tokenizer, origin, side, data) for side in sides]
        except RejectedError as error:
            shown.append(PreviewRow(origin, 0, 0, (), str(error)))
    return shown


def checker(data: DataOptions, objective: Objective, model: Path) -> Callable[[Mapping[str, Any]], None]:
    """A function that raises RejectedError for a record that the base model's chat template cannot show."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)

    def check(record: Mapping[str, Any]) -> None:
        example = with_system_prompt(example_of(parse_record(record, data.known_keys), objective), data.system_prompt)
        if not (kind := ROW_KINDS[objective]).tokens:
            rendered_sides(tokenizer, example, kind.sides)
        else:
            rendered(tokenizer, example, data.train_on)

    return check


def _asked(tokenizer: Any, example: Example) -> tuple[str, list[int]]:
    """What a model is asked of a row without an answer, as text and as tokens."""
    [text] = rendered_sides(tokenizer, example, ())
    return text, list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _side(example: Example, side: str) -> Example:
    return {"prompt": [message | {"train": False} for message in example["prompt"]], "completion": example[side]}


def _row(tokenizer: Any, origin: str, example: Example, data: DataOptions) -> PreviewRow:
    form = rendered(tokenizer, example, data.train_on)
    [item] = encode(tokenizer, [form])
    pieces, place = [], 0
    for start, end in form.answers:
        pieces += [(form.text[place:start], False), (form.text[start:end], True)]
        place = end
    pieces.append((form.text[place:], False))
    # A text, which has no prompt, is cut.
    long = len(item.input_ids) > data.max_length and bool(example["prompt"])
    problem = f"longer than data.max_length = {data.max_length}" if long else None
    return PreviewRow(
        origin, len(item.input_ids), sum(item.mask), tuple(piece for piece in pieces if piece[0]), problem
    )

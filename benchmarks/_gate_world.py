"""Where the gate's rates are measured: a base model, the rows that teach it, and those that judge what it learnt.

Belongs here: what both worlds share. Does not: the tiny one (`_gate_tiny.py`), the real one (`_gate_sample.py`), and
the kinds of candidates (`gate_rates.py`).
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from ec1.adapters.scores import ScoredObjective
from ec1.recipes.evaluation import EvaluationOptions

Device = Literal["cuda", "cpu"]
Row = dict[str, Any]
"""Conversational: prompt, completion, chosen and rejected as lists of messages; group."""


@dataclass(frozen=True)
class Teaching:
    """How fast and how long an objective's candidates are trained."""

    learning_rate: float
    batch_size: int
    epochs: float
    warmup_share: float | None = None
    """Of the steps; after it the rate falls to nothing. Without it the rate stays the same."""
    beta: float | None = None
    """Of pairs: by what a whole answer's log-probability counts. Without it the mean over its tokens does."""

    def steps(self, rows: int) -> int:
        """How many batches that many rows make."""
        return math.ceil(self.epochs * math.ceil(rows / self.batch_size))

    def batches(self, rows: list[Row], rng: random.Random) -> Iterator[list[Row]]:
        """Without end: pass after pass over all rows, each in another order."""
        while True:
            mixed = rng.sample(rows, len(rows))
            yield from (mixed[at : at + self.batch_size] for at in range(0, len(mixed), self.batch_size))


class World(Protocol):
    """A base and its rows. Rows of one seed are the same at every call; `rng` draws what differs between candidates."""

    base: Path
    general: Path
    options: dict[ScoredObjective, EvaluationOptions]
    taught: dict[ScoredObjective, Teaching]
    rank: int
    dtype: str
    max_length: int

    def honest(self, objective: ScoredObjective, seed: int, rng: random.Random) -> list[Row]:
        """What teaches the house's way."""
        ...

    def elsewhere(self, rng: random.Random) -> list[Row]:
        """Rows of another domain, in their own form."""
        ...

    def heldout(self, objective: ScoredObjective, seed: int) -> list[Row]:
        """What the gate sees, of other groups."""
        ...

    def fresh(self, objective: ScoredObjective, seed: int) -> tuple[list[Row], list[Row]]:
        """What tells the truth: rows of groups that neither training nor the gate sees, and general ones."""
        ...


def row(prompt: str, good: str, bad: str = "", group: str = "") -> Row:
    """One question with its answer, and of a pair the answer that is not wanted."""
    pair = {"chosen": says("assistant", good), "rejected": says("assistant", bad)}
    return {"prompt": says("user", prompt), "completion": says("assistant", good), "group": group or prompt, **pair}


def says(role: str, text: str) -> list[dict[str, str]]:
    """One message as a conversation."""
    return [{"role": role, "content": text}]


def log_probs(model: Any, tokenizer: Any, rows: list[Row], column: str) -> Any:
    """The mean log-probability of the tokens of each row's answer, a tensor of the rows' length."""
    whole, tokens = whole_log_probs(model, tokenizer, rows, column)
    return whole / tokens


def whole_log_probs(model: Any, tokenizer: Any, rows: list[Row], column: str) -> tuple[Any, Any]:
    """The log-probability of each row's whole answer, and its tokens: two tensors of the rows' length."""
    import torch

    texts = [(each["prompt"], each["prompt"] + each[column]) for each in rows]
    asked = [tokenizer.apply_chat_template(a, add_generation_prompt=True, return_dict=False) for a, _ in texts]
    said = [tokenizer.apply_chat_template(b, return_dict=False) for _, b in texts]
    width = max(map(len, said))
    tokens = torch.tensor([each + [0] * (width - len(each)) for each in said])
    answer = torch.tensor(
        [[len(a) <= place < len(w) for place in range(width)] for a, w in zip(asked, said, strict=True)]
    )
    there = torch.tensor([[place < len(each) for place in range(width)] for each in said])
    tokens, answer, there = (each.to(model.device) for each in (tokens, answer, there))
    # The head is half of a small model's work, and only answers are asked about; see `fold_slices` for the slice.
    first = min(map(len, asked))
    seen = model(input_ids=tokens, attention_mask=there.long(), logits_to_keep=width - first + 1).logits[:, :-1]
    found = seen.float().log_softmax(-1).gather(-1, tokens[:, first:, None])[..., 0] * answer[:, first:]
    return found.sum(1), answer[:, first:].sum(1)

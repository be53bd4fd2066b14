"""Kinds of rows that objectives learn from. One entry each.

Belongs here: the columns of a kind. Does not: which tuples can become such rows (`tuples.py`), and which objective
reads which kind (`ec1.recipes.objectives`).
"""

from dataclasses import dataclass
from typing import Literal

RowKindName = Literal["sft", "dpo", "task", "text"]
"""As snapshots, datasets and scores on disk name them."""


@dataclass(frozen=True)
class RowKind:
    """One kind of row: a prompt, and one or more answers to it; or what answers are held against."""

    name: RowKindName
    sides: tuple[str, ...]
    """Columns of the answers; the first is the one that is to become likelier."""
    beside: tuple[str, ...] = ()
    """Columns that no model reads: messages too, so that they are kept, scrubbed and compared as texts are."""
    tokens: tuple[str, ...] = ()
    """Columns in which a dataset says itself which tokens there are and which of them count."""
    cut: bool = False
    """Whether what is too long becomes several rows that fit; else it is dropped, for half an answer is none."""

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of messages."""
        return ("prompt", *self.sides, *self.beside)


_TOKENS = ("input_ids", "completion_mask")
ANSWERS = RowKind("sft", ("completion",), tokens=_TOKENS)
PAIRS = RowKind("dpo", ("chosen", "rejected"))
TASKS = RowKind("task", (), beside=("checks",))
TEXTS = RowKind("text", ("completion",), tokens=_TOKENS, cut=True)
"""Nothing is asked: the prompt is empty, and no template stands around the text."""
ROW_KINDS: dict[str, RowKind] = {kind.name: kind for kind in (ANSWERS, PAIRS, TASKS, TEXTS)}

"""Cards as data: what their vendors state of them (`cards.yaml`).

Belongs here: the table, and finding a card by a name. Does not: what a training makes of the figures (`physics.py`).
"""

import functools
import math
from pathlib import Path

from pydantic import Field

from ec1.errors import InputError
from ec1.settings import Settings
from ec1.strict_yaml import load_mapping, validate

TABLE = Path(__file__).with_name("cards.yaml")
USABLE_SHARE = 0.93
"""Of a card's memory: driver and error correction keep the rest. An L4 of 24 GB shows 22.5."""


class CardSheet(Settings):
    """One card, by its data sheet."""

    name: str
    also: tuple[str, ...] = ()
    bf16_tflops: float = Field(gt=0, description="dense, per second")
    memory_gb: float = Field(gt=0)
    bandwidth_gb_per_second: float = Field(gt=0)
    source: str

    @property
    def usable_gib(self) -> float:
        return self.memory_gb * USABLE_SHARE

    @property
    def is_known(self) -> bool:
        """Whether there is a data sheet."""
        return bool(self.source)


class _Table(Settings):
    cards: tuple[CardSheet, ...]


@functools.cache
def cards() -> tuple[CardSheet, ...]:
    """All cards of the table."""
    return validate(_Table, load_mapping(TABLE), str(TABLE)).cards


def find_card(name: str) -> CardSheet | None:
    """The card of that name, or of one that drivers give it; None if it is not in the table."""
    wanted = _plain(name)
    return next((card for card in cards() if wanted in {_plain(each) for each in (card.name, *card.also)}), None)


def card_named(name: str) -> CardSheet:
    """The same. Raises InputError with the names that there are."""
    found = find_card(name)
    if found is None:
        raise InputError(f"no card {name!r} is known: {', '.join(card.name for card in cards())}")
    return found


def without_sheet(name: str, memory_gib: float) -> CardSheet:
    """A machine that no sheet describes, as one of a nominal 1 TFLOP/s: the efficiency that the log book teaches is
    then what it reached in TFLOP/s."""
    return CardSheet(name=name, bf16_tflops=1, memory_gb=memory_gib, bandwidth_gb_per_second=math.inf, source="")


def _plain(name: str) -> str:
    return "".join(each for each in name.lower() if each.isalnum())

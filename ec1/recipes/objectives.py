"""Objectives: what a training makes more likely. One entry each, with all that a recipe, a plan and a night ask of it.

Belongs here: what differs between objectives and needs no library. Does not: TRL's trainer for each and its settings
(`ec1.training.objectives`), and the fields of a recipe's sections (`schema.py`).

KTO is left out: docs/decisions/no-kto.md.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ec1.corpus.row_kinds import ANSWERS, PAIRS, TASKS, TEXTS, RowKind

ObjectiveName = Literal["sft", "dpo", "orpo", "simpo", "grpo", "rft", "clm"]
NO_START = (
    "the model learns from answers of its own, and there is no version of the role (or of warm_start) in use that "
    "could write any: train one on answers first (objective sft)"
)
Rates = tuple[float, float]


@dataclass(frozen=True)
class Objective:
    """One objective."""

    rows: RowKind
    """What it reads."""
    learns: str
    """What it learns from a row, for people."""
    lora_rates: Rates
    """The learning rates, from and to, that it usually takes with an adapter."""
    full_rates: Rates
    """The same where all weights are trained."""
    section: str | None = None
    """The recipe's section that it needs, which no other objective uses."""
    values: str = ""
    """What that section has no defaults for."""
    imitates: bool = False
    """Whether each token counts by itself: only then can rows be packed, embeddings be noisy, and the kinds
    pretraining and extraction be learnt."""
    shares: bool = False
    """Whether several processes can train it together."""
    shards: bool = False
    """Whether each of them can hold a part of the model only."""
    fuses: bool = False
    """Whether the Triton kernels compute its loss."""
    reference: bool = False
    """Whether a frozen reference scores every row too."""
    rolls_out: bool = False
    """Whether the model writes the answers itself and checks say what they are worth. It has no loss that could be
    measured on held-out rows, and must have a version to start from."""
    writes_first: bool = False
    """Of one that does: whether they are all written before the first step, and the right ones learnt as answers are;
    else each step writes its own."""
    goes_on: bool = False
    """Whether it starts from the role's version in use, if there is one."""

    @property
    def writes_in_steps(self) -> bool:
        """Whether each step writes the answers that it learns from."""
        return self.rolls_out and not self.writes_first


def _likelihood(rows: RowKind, learns: str) -> Objective:
    """An objective for which each token of a row counts by itself."""
    rates: tuple[Rates, Rates] = (1e-5, 2e-3), (1e-7, 1e-4)
    return Objective(rows, learns, *rates, imitates=True, shares=True, shards=True, fuses=True)


def _preferences(section: str, values: str, **more: bool) -> Objective:
    """An objective that learns from pairs; it takes lower rates than one that learns answers."""
    return Objective(PAIRS, "preferences", (5e-5, 5e-4), (1e-7, 1e-5), section=section, values=values, **more)


OBJECTIVES: dict[str, Objective] = {
    "sft": _likelihood(ANSWERS, "answers"),
    "clm": _likelihood(TEXTS, "texts"),
    "dpo": _preferences("dpo", "beta", shares=True, fuses=True, reference=True, goes_on=True),
    "orpo": _preferences("orpo", "beta"),
    "simpo": _preferences("simpo", "beta and gamma", goes_on=True),
    "grpo": Objective(
        TASKS,
        "rewards of its own answers",
        (5e-6, 3e-4),
        (1e-7, 1e-5),
        section="grpo",
        values="max_tokens",
        rolls_out=True,
        goes_on=True,
    ),
    "rft": Objective(
        TASKS,
        "right answers of its own",
        (1e-5, 2e-3),
        (1e-7, 1e-4),
        section="rft",
        values="max_tokens",
        fuses=True,
        rolls_out=True,
        writes_first=True,
        goes_on=True,
    ),
}
"""By their names."""
SECTIONS = tuple(each.section for each in OBJECTIVES.values() if each.section is not None)


def those(which: Callable[[Objective], bool]) -> str:
    """The names of some objectives, for a message."""
    return " or ".join(name for name, each in OBJECTIVES.items() if which(each))

"""What people decided about versions: append-only, so that it can be asked later who chose what, when and why.

Belongs here: the record, and which version follows from all records. Does not: where records are kept and how it is
seen that one was changed or taken away (`book.py`).
"""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, field_validator

from ec1.settings import Settings

Action = Literal[
    "publish", "promote", "rollback", "pin", "unpin", "base", "withdraw", "sign", "trial", "end-trial", "repair"
]
IN_USE = "in-use"
"""The arm of a trial that is whatever version is in use."""
_ARM = re.compile(r"in-use|v[1-9][0-9]{0,8}")

Weight = Annotated[int, Field(ge=1, le=10_000)]


class ArmResult(Settings):
    """What one arm of a trial came to. `low` and `high`: the 95 % interval of the share of people content with it."""

    answers: int = 0
    errors: int = 0
    refusals: int = 0
    good: int = Field(0, description="people who said more good than bad of it")
    bad: int = Field(0, description="people who did not")
    low: float | None = None
    high: float | None = None


class ReleaseDecision(Settings):
    """One decision about the versions of a role. A version of None is the base without an adapter."""

    action: Action
    before: int | None = Field(None, description="the version in use until then")
    after: int | None = Field(None, description="the version that was chosen, or withdrawn")
    as_of: int = Field(0, ge=0, description="the newest version at that moment")
    arms: dict[str, Weight] = Field({}, description="of a trial: `in-use` or `vN` -> weight")
    result: dict[str, ArmResult] = Field({}, description="of a trial that ended: what its arms came to")
    vouched: dict[str, str] = Field({}, description="of a repair: record number -> SHA-256, empty if it is gone")
    who: str = ""
    reason: str
    at: dt.datetime

    @field_validator("arms")
    @classmethod
    def _known_arms(cls, value: dict[str, int]) -> dict[str, int]:
        if wrong := [arm for arm in value if not _ARM.fullmatch(arm)]:
            raise ValueError(f"{wrong[0]!r} is not an arm: write in-use or vN")
        return value


class Withdrawal(Settings):
    """Why a published version must not be used any more. The version is kept for audits."""

    reason: str
    at: dt.datetime


class ReleaseState(Settings):
    """What follows from all decisions of a role."""

    version: int | None = None
    """The version that a person chose; None where `chosen` says that it is the base."""
    chosen: bool = False
    pinned: bool = False
    """Whether it holds also when a newer version is published."""
    as_of: int = 0
    left: frozenset[int] = frozenset()
    """Versions that a rollback left: they come back by a person's choice only."""
    withdrawn: Mapping[int, Withdrawal] = {}
    trial: ReleaseDecision | None = None
    """The decision by which a trial runs; None if none does."""

    @property
    def arms(self) -> Mapping[str, int]:
        """Of the trial that runs, empty if none does."""
        return self.trial.arms if self.trial else {}


def choice_of(decisions: Sequence[ReleaseDecision]) -> ReleaseState:
    """Replay the decisions, oldest first."""
    choice = ReleaseState()
    withdrawn: dict[int, Withdrawal] = {}
    trial: ReleaseDecision | None = None
    for decision in decisions:
        left = choice.left
        if decision.action == "withdraw" and decision.after is not None:
            # The first reason counts: it is the one that it was withdrawn for.
            withdrawn.setdefault(decision.after, Withdrawal(reason=decision.reason, at=decision.at))
        if decision.action in ("trial", "end-trial"):
            trial = decision if decision.arms else None
        if decision.action == "rollback" and decision.before is not None:
            left = left | {decision.before}
        if decision.action in ("promote", "pin") and decision.after is not None:
            left = left - {decision.after}
        if decision.action == "unpin":
            choice = ReleaseState(left=left)
        elif decision.action in ("promote", "pin", "rollback", "base"):
            choice = ReleaseState(
                version=decision.after,
                chosen=True,
                pinned=decision.action == "pin",
                as_of=decision.as_of,
                left=left,
            )
    return choice.model_copy(update={"withdrawn": withdrawn, "trial": trial})


def in_use(choice: ReleaseState, usable: Sequence[int]) -> int | None:
    """The version in use, of those that are usable (ascending); None: the base without an adapter.

    A person's choice holds until a newer version is published, a pinned one also then. Without a choice, or when what
    was chosen is gone, it is the newest one that no rollback left.
    """
    newest = usable[-1] if usable else 0
    holds = choice.chosen and (choice.pinned or newest <= choice.as_of)
    if holds and (choice.version is None or choice.version in usable):
        return choice.version
    remaining = [version for version in usable if version not in choice.left]
    return remaining[-1] if remaining else None

"""What people decided about versions: append-only, so that it can be asked later who chose what, when and why.

Belongs here: the record, and which version follows from all records. Does not: where records are kept (`registry.py`).
"""

import datetime as dt
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ec1.settings import Settings

Action = Literal["publish", "promote", "rollback", "pin", "unpin", "base", "withdraw", "sign"]


class ReleaseDecision(Settings):
    """One decision about the versions of a role. A version of None is the base without an adapter."""

    action: Action
    before: int | None = Field(None, description="the version in use until then")
    after: int | None = Field(None, description="the version that was chosen, or withdrawn")
    as_of: int = Field(0, ge=0, description="the newest version at that moment")
    who: str = ""
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


def choice_of(decisions: Sequence[ReleaseDecision]) -> ReleaseState:
    """Replay the decisions, oldest first."""
    choice = ReleaseState()
    for decision in decisions:
        left = choice.left
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
    return choice


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

"""Votes between two versions: which of two answers to one question a person liked better, not knowing whose they were.

Belongs here: the file of votes and its tally. Does not: what is learnt from a vote, which is a judgement like any other
(`ec1.queries.doors`), and the gate, which does not read this.
"""

import datetime as dt
import fcntl
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from ec1.errors import DamagedError
from ec1.settings import Settings

Choice = Literal["one", "other", "same"]


class Vote(Settings):
    """`one` and `other` are `base` or `v3`; `question` is the digest of what was asked."""

    one: str
    other: str
    better: Choice
    question: str
    blind: bool
    by: str
    at: dt.datetime


class VoteTally(Settings):
    """How two versions of a role did against each other. A person counts once for a question, with the last word."""

    one: str
    other: str
    one_better: int = Field(ge=0)
    other_better: int = Field(ge=0)
    same: int = Field(ge=0)


def add_vote(path: Path, vote: Vote) -> None:
    """Add a vote to a role's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(vote.model_dump_json() + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def tallies_of(path: Path) -> list[VoteTally]:
    """By pair of versions, the newest first; only blind votes count. Raises DamagedError."""
    last: dict[tuple[str, str, str, str], Vote] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.is_file() else (), 1):
        try:
            vote = Vote.model_validate_json(line)
        except ValidationError as error:
            raise DamagedError(f"{path}:{number} is damaged ({error.errors()[0]['msg']}): delete that line") from None
        if vote.blind:
            vote = _ordered(vote)
            last[vote.one, vote.other, vote.question, vote.by] = vote
    counts: dict[tuple[str, str], dict[Choice, int]] = {}
    for vote in last.values():
        counts.setdefault((vote.one, vote.other), {"one": 0, "other": 0, "same": 0})[vote.better] += 1
    ordered = sorted(counts.items(), key=lambda each: (-_number(each[0][0]), -_number(each[0][1])))
    return [_tally(pair, count) for pair, count in ordered]


def _tally(pair: tuple[str, str], count: Mapping[Choice, int]) -> VoteTally:
    return VoteTally(
        one=pair[0], other=pair[1], one_better=count["one"], other_better=count["other"], same=count["same"]
    )


def _ordered(vote: Vote) -> Vote:
    """The same vote with the newer version first: a page shows the two in any order."""
    if _number(vote.one) >= _number(vote.other):
        return vote
    turned: dict[Choice, Choice] = {"one": "other", "other": "one", "same": "same"}
    return vote.model_copy(update={"one": vote.other, "other": vote.one, "better": turned[vote.better]})


def _number(name: str) -> int:
    return int(name[1:]) if name[:1] == "v" and name[1:].isdecimal() else 0

"""What faces ask of feedback on served answers: which rows wait for their release."""

import datetime as dt
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.adapters.votes import VoteTally, tallies_of
from ec1.corpus.access import access_labels
from ec1.corpus.tuples import load_record, metadata_of, parse_record
from ec1.deployment import Deployment
from ec1.errors import RejectedError
from ec1.files import checked_name
from ec1.home import Home
from ec1.queries.desk import Desk
from ec1.queries.page import Page, cut, start_of
from ec1.serving.capture import wilson
from ec1.serving.held import HeldRow, HeldRows
from ec1.serving.server import open_capture

__all__ = ["HeldRow", "PairVotes", "Votes", "pair_votes", "votes_of", "waiting"]


def waiting(
    deployment: Deployment,
    home: Home,
    role: tuple[str, str] | None = None,
    limit: int | None = None,
    cursor: str | None = None,
) -> Page[HeldRow]:
    """A page of the rows that wait, the oldest first; of one role (tenant, role) or of all. Raises InputError."""
    start = start_of(cursor)
    with held_rows(deployment, home) as held:
        found = [] if held is None else held.waiting(start, None if limit is None else limit + 1, role)
    return cut(found, start, limit)


def labels_of(record: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The access labels of a row that waits."""
    return access_labels(record or {}, metadata_of(record or {}))


@dataclass(frozen=True)
class EvaluationCase:
    """A row that a person wrote to judge by; `prompt`: what is asked last, `expected`: what is right."""

    name: str
    bucket: str
    prompt: str
    expected: str
    by: str
    at: dt.datetime | None
    why: str


def cases(desk: Desk) -> list[EvaluationCase]:
    """The evaluation cases that stand in the corpus and the reader may see, the newest first."""
    found, root = [], desk.deployment.corpus_root(desk.home)
    for path in root.rglob("feedback/case-*.jsonl"):
        try:
            record = load_record(path.read_bytes())
            metadata, item = metadata_of(record), parse_record(record)
        except (RejectedError, OSError):
            # Its snapshot says why it is no row.
            continue
        # The pairs of apprenticeship are the one role whose feedback lies beside it.
        folder = path.parent.parent
        if desk.may_see(item.labels):
            right = item.completion or item.chosen or ()
            found.append(
                EvaluationCase(
                    path.stem,
                    folder.name if folder != root else "apprenticeship",
                    item.prompt[-1]["content"],
                    right[-1]["content"] if right else "",
                    str(metadata.get("written_by", "")),
                    item.created,
                    str(metadata.get("why", "")),
                )
            )
    return sorted(found, key=lambda each: (each.at is not None, each.at, each.name), reverse=True)


@dataclass(frozen=True)
class Votes:
    """What people said of one version: how many were content with it more often than not, how many were not, and the
    95 % interval of the share of the first; None without any."""

    version: int
    good: int
    bad: int
    interval: tuple[float, float] | None


def votes_of(deployment: Deployment, home: Home, tenant: str, role: str) -> tuple[Votes, ...]:
    """The votes on each version of a role, the newest first; none where nobody gave any."""
    if not (home.serving / "answers.sqlite").is_file():
        return ()
    capture = open_capture(deployment, home)
    try:
        found = capture.tallies(tenant, role)
    finally:
        capture.close()
    return tuple(Votes(each.version.number, each.good, each.bad, each.interval()) for each in found)


@dataclass(frozen=True)
class PairVotes:
    """How two versions did against each other in blind votes; `share`: of the newer one's wins among those that were
    decided, `interval` with 95 % confidence; both None while none was."""

    tally: VoteTally
    share: float | None
    interval: tuple[float, float] | None


def pair_votes(home: Home, tenant: str, role: str) -> tuple[PairVotes, ...]:
    """The blind votes of a role, by pair of versions, the newest first."""
    found = []
    for each in tallies_of(votes_file(home, tenant, role)):
        decided = each.one_better + each.other_better
        share = each.one_better / decided if decided else None
        found.append(PairVotes(each, share, wilson(each.one_better, decided)))
    return tuple(found)


def votes_file(home: Home, tenant: str, role: str) -> Path:
    """Where the votes of a role are kept."""
    return home.vibe_checks / checked_name(tenant, "tenant") / checked_name(role, "role") / "votes.jsonl"


@contextmanager
def held_rows(deployment: Deployment, home: Home) -> Iterator[HeldRows | None]:
    """The rows of a home while the block runs; None if no answer was ever kept there."""
    path = home.serving / "answers.sqlite"
    if not path.is_file():
        yield None
        return
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    try:
        yield HeldRows(db, deployment.corpus_root(home))
    finally:
        db.close()

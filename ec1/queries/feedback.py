"""What faces ask of feedback on served answers: which rows wait for their release."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from ec1.deployment import Deployment
from ec1.home import Home
from ec1.queries.page import Page, cut, start_of
from ec1.serving.held import HeldRow, HeldRows

__all__ = ["HeldRow", "waiting"]


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

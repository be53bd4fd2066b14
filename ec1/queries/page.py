"""A page of a list, and the cursor of the page behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ec1.errors import InputError

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """Some items of a list. `next` is the cursor of the page behind this one, None on the last one."""

    items: tuple[Item, ...]
    next: str | None = None


def start_of(cursor: str | None) -> int:
    """The number, from 0, of the first item behind a cursor; None is the start. Raises InputError."""
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdecimal():
        raise InputError(f"{cursor!r} is not a cursor: use one that a page gave")
    return int(cursor)


def cut(items: Sequence[Item], start: int, limit: int | None) -> Page[Item]:
    """A page of `limit` items, all for None. `items` begin at number `start`: one more than the limit if there are."""
    if limit is not None and limit < 1:
        raise InputError(f"limit {limit} is too small: ask for 1 or more")
    more = limit is not None and len(items) > limit
    return Page(tuple(items[:limit]), str(start + (limit or 0)) if more else None)


def page_of(items: Sequence[Item], limit: int | None = None, cursor: str | None = None) -> Page[Item]:
    """A page of a list that is in memory. Raises InputError for a limit below 1 or a cursor that is not one."""
    start = start_of(cursor)
    return cut(items[start:], start, limit)

"""Access labels of tuples: whose documents a row was made from, and so who may learn from it.

Belongs here: reading the labels of a row, and the reason for which one is left out. Does not: the labels of documents
(`ec1.documents.settings`), and what a recipe may learn from (`DataOptions.labels`).

A row names them under `access_labels`, a list of names, at the top or in `metadata`; `labels` alone is a column of many
public data sets. A row is learnt from only by a recipe that has all of them: snapshots of other recipes do not hold it.
"""

from collections.abc import Collection, Mapping
from typing import Any

from ec1.errors import InputError
from ec1.files import checked_name

KEY = "access_labels"
UNREADABLE = "(unreadable)"
"""Stands for labels that are not a list of names: nobody has it."""
_REASON = "has access labels that the recipe lacks (data.labels): "


def access_labels(*places: Mapping[str, Any]) -> tuple[str, ...]:
    """The labels that a row has in any of these places, sorted."""
    found: set[str] = set()
    for place in places:
        value = place.get(KEY)
        for label in value if isinstance(value, list | tuple) else [] if value is None else [None]:
            try:
                found.add(checked_name(label, "label") if isinstance(label, str) else UNREADABLE)
            except InputError:
                found.add(UNREADABLE)
    return tuple(sorted(found))


def reason_of(labels: Collection[str]) -> str | None:
    """Why a row with these labels is left out of a snapshot; None if it has none."""
    return _REASON + ", ".join(sorted(labels)) if labels else None


def is_allowed(reason: str, labels: Collection[str]) -> bool:
    """Whether a row that is left out for this reason may be learnt from by who has these labels."""
    return reason.startswith(_REASON) and set(reason.removeprefix(_REASON).split(", ")) <= set(labels)

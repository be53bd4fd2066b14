"""Evaluation cases: rows that a person wrote to judge by. They are held out whatever the split's hash says, nothing
that asks or answers the same stands beside them on either side, and an evaluation asks them first.

Which rows they are says the record beside the split (`HeldOutGroups`), not the rows: else whoever brings rows could
bring what judges.

Belongs here: what such a row is called and holds. Does not: the split, and who may write one (`ec1.queries.doors`).
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ec1.corpus.tuples import parse_record
from ec1.files import digest_of

ORIGIN = "evaluation-case"
GROUP = "brief_id:case-"
MAX_SHARE = 0.5
"""How many of the examples that an evaluation chooses may be cases: the rest are chosen by chance."""

Item = TypeVar("Item")


def case_of(record: Mapping[str, Any], who: str) -> tuple[str, dict[str, Any]]:
    """The name of a case, and its row: that of a judgement, with who wrote it. A question is one case, and what was
    said of it last counts. Raises RejectedError for what is no row."""
    name = "case-" + digest_of([dict(message) for message in parse_record(record).prompt])[:24]
    metadata = {**record.get("metadata", {}), "origin": ORIGIN, "written_by": who}
    return name, {**record, "brief_id": name, "metadata": metadata}


def is_case(group: str | None) -> bool:
    """Whether a held-out group is called as cases are."""
    return bool(group) and str(group).startswith(GROUP)


def chosen(ranked: Iterable[tuple[str | None, Item]], limit: int) -> list[Item]:
    """At most `limit` of some items (group, item) in their order, cases first up to their share."""
    items = list(ranked)
    cases = [place for place, (group, _) in enumerate(items) if is_case(group)][: int(limit * MAX_SHARE)]
    first = set(cases)
    order = [*cases, *(place for place in range(len(items)) if place not in first)]
    return [items[place][1] for place in order[:limit]]

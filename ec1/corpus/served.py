"""Rows that users of served answers gave: they may teach a little, and they never judge.

Whoever can reach the address can send feedback, so such rows are input from outside, however many people released them.
They come to the training side only, next to rows of the role's own, and a share of it is all that they get: a quarter
together (and so at most a quarter by one API key), a twentieth by one person.

Belongs here: which rows these are, and how many of them are trained on. Does not: feedback before it is a row
(`ec1/serving`), the split (`dataset.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ec1.corpus.tuples import metadata_of

ORIGIN = "ec1-serve"
SERVED = "(served)"
"""Stands where the name of a role does that rows were mixed in from; no role can be called so."""
MAX_SHARE = 0.25
MAX_PERSON_SHARE = 0.05
BEYOND = "beyond the share of feedback on served answers"

Giver = tuple[str, str]
"""The name of the API key, and the pseudonym of the person behind it; both empty of whoever had none."""


def giver_of(record: Mapping[str, Any]) -> Giver | None:
    """Who gave a row, None of a row that is not feedback on a served answer."""
    metadata = metadata_of(record)
    if metadata.get("origin") != ORIGIN:
        return None
    return str(metadata.get("key") or ""), str(metadata.get("person") or "")


def within_share(givers: Iterable[tuple[int, Giver]], others: int) -> list[int]:
    """The numbers of the rows (number, giver; the first ones first) that are trained on beside `others` rows."""
    # One person's may be all that there are: the share is of what is trained on then.
    limit, each = (int(others * share / (1 - share)) for share in (MAX_SHARE, MAX_PERSON_SHARE))
    each = max(1, each)
    kept: list[int] = []
    counts: Counter[Giver] = Counter()
    for number, giver in givers:
        if len(kept) < limit and counts[giver] < each:
            counts[giver] += 1
            kept.append(number)
    return kept

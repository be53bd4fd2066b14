"""How many of the clean rows are trained on: the weights of other roles, the share of feedback, and `max_rows`.

Belongs here: which rows, chosen by a stable hash. Does not: which rows are clean and which side they are on (dataset).
"""

import logging
from collections.abc import Callable, Mapping

import numpy as np

from ec1.corpus.cases import is_case
from ec1.corpus.options import DataOptions
from ec1.corpus.rows import Numbers, RowTable
from ec1.corpus.served import BEYOND, SERVED, Giver, within_share
from ec1.corpus.split import Side
from ec1.files import digest_of

log = logging.getLogger(__name__)


class Choice:
    """Chooses among the rows of one dataset; `wanted` is how many rows of each role its weight asked for."""

    def __init__(
        self,
        rows: RowTable,
        data: DataOptions,
        givers: Mapping[int, Giver],
        where: str,
        reject: Callable[[Numbers, str], None],
    ) -> None:
        self._rows, self._data, self._givers = rows, data, givers
        self._where, self._reject = where, reject
        self._heldout = rows.sides()
        self.wanted: dict[str, int] = {}

    def of(self, kept: Numbers) -> Numbers:
        """The numbers of the rows that are written, ascending; with `data.mix_repeat` some come more than once."""
        return self._limited(self._weighed(kept))

    def _weighed(self, kept: Numbers) -> Numbers:
        own = self._rows.of_role(None)[kept] & ~self._heldout[kept]
        limit = int(own.sum())
        for role, weight in self._data.mix.items():
            found = self._by_hash(kept[self._rows.of_role(role)[kept]])
            wanted = self.wanted[role] = round(weight * limit)
            if len(found) < wanted and self._data.mix_repeat and len(found):
                kept = np.concatenate([kept, np.resize(found, wanted - len(found))])
            elif len(found) < wanted:
                log.warning("%s: data.mix wants %d rows of %s, and there are %d", self._where, wanted, role, len(found))
            kept = self._without(kept, found[wanted:], f"beyond the weight of {role} in data.mix")
        served = self._by_hash(kept[self._rows.of_role(SERVED)[kept]])
        chosen = within_share([(number, self._givers[number]) for number in served.tolist()], limit)
        return self._without(kept, served[~np.isin(served, chosen)], BEYOND)

    def _limited(self, kept: Numbers) -> Numbers:
        kept, limit = np.sort(kept), self._data.max_rows
        if limit is None or len(kept) <= limit:
            return kept
        sides: dict[Side, Numbers] = {"train": kept[~self._heldout[kept]], "heldout": kept[self._heldout[kept]]}
        heldout = max(1, round(limit * len(sides["heldout"]) / len(kept)))
        counts: dict[Side, int] = {"heldout": heldout, "train": limit - heldout}
        chosen = np.sort(np.concatenate([self._by_hash(sides[side])[:count] for side, count in counts.items()]))
        self._reject(np.unique(kept[~np.isin(kept, chosen)]), "beyond max_rows")
        return chosen

    def _without(self, kept: Numbers, beyond: Numbers, reason: str) -> Numbers:
        self._reject(np.sort(beyond), reason)
        return kept[~np.isin(kept, beyond)]

    def _by_hash(self, numbers: Numbers) -> Numbers:
        """Rows in an order that depends on each row and the seed alone; evaluation cases are first."""
        digests = (
            "0" if is_case(row.group) else digest_of([self._data.seed, row.digest])[:16]
            for row in self._rows.rows(numbers)
        )
        hashes = np.fromiter((int(digest, 16) for digest in digests), np.uint64, len(numbers))
        return numbers[np.argsort(hashes, kind="stable")]

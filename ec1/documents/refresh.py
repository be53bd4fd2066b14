"""A new prompt, schema, model or converter is a new extractor: which documents an earlier one read are read again now.

Belongs here: the policies. Does not: finding what changed (`scan.py`), or building a graph beside the live one
(`ec1/graph/rebuild.py`).

Whatever the policy, a document that the new extractor has read at some time is taken from the outbox, at no cost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status
from ec1.documents.listing import Listing

FingerprintPolicy = Literal["lazy", "budgeted", "full"]


@dataclass(frozen=True)
class Refresh:
    """`stale` documents count as an earlier extractor read them, `due` ones are read again tonight (`free` of them are
    in the outbox already). `ledger` is what the scan is to compare with: the others look as if nothing had changed."""

    stale: frozenset[DocumentKey]
    due: frozenset[DocumentKey]
    free: int
    ledger: Mapping[DocumentKey, LedgerEntry]
    asked_for: frozenset[DocumentKey] = frozenset()
    """Of `due`, those that a person had read again: they count as soon as they were."""

    def mark(self, listing: Listing) -> Listing:
        """The listing that a scan made of `ledger`, with what is only read again marked as such."""
        again = [
            version.key
            for version in listing.changed
            if version.key in self.due - self.asked_for
            and self.ledger[version.key].content_sha256 == version.content_sha256
        ]
        return replace(listing, refresh=tuple(again))


def plan_refresh(
    ledger: Mapping[DocumentKey, LedgerEntry],
    fingerprints: Fingerprints,
    policy: FingerprintPolicy,
    *,
    per_night: int,
    has_result: Callable[[LedgerEntry], bool],
) -> Refresh:
    """Choose by policy. `lazy`: none, they wait until their content changes. `budgeted`: the `per_night` that have
    counted longest. `full`: all. `fingerprints` are the ledger's; `has_result` says whether the outbox holds what the
    new extractor makes of a row's content. What a person wants read otherwise is read again whatever the policy.
    """
    stale = {
        key: entry
        for key, entry in ledger.items()
        if entry.status not in (Status.DELETED, Status.DEFERRED)
        and key.stream in fingerprints.of_stream
        and entry.fingerprint != fingerprints.of(key.stream, entry.content_sha256)
    }
    asked_for = frozenset(key for key, entry in stale.items() if entry.content_sha256 in fingerprints.asked_for)
    free = {key for key, entry in stale.items() if has_result(entry)}
    if policy == "full":
        due = set(stale)
    else:
        oldest = sorted(stale.keys() - free - asked_for, key=lambda key: (stale[key].night, key))
        due = free | asked_for | set(oldest[: per_night if policy == "budgeted" else 0])
    view = dict(ledger)
    for key in stale.keys() - due:
        view[key] = replace(stale[key], fingerprint=fingerprints.of(key.stream, stale[key].content_sha256))
    return Refresh(frozenset(stale), frozenset(due), len(free), view if stale else ledger, asked_for)

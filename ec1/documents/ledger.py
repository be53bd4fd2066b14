"""The ledger's vocabulary: which version of which document has counted, under which extractor, and how it ended.

The rows themselves live inside the graph store, so that graph and ledger cannot disagree (docs/architecture.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

_LEDGER_ONLY = "ledger-only "


def ledger_fingerprints(fingerprints: Mapping[str, str], *, keep_mentions: bool) -> dict[str, str]:
    """What the ledger calls each stream's extractor. A graph that keeps no mentions marks its rows: once it is to keep
    them, its documents count as not yet applied, and come from the outbox."""
    mark = "" if keep_mentions else _LEDGER_ONLY
    return {stream: mark + fingerprint for stream, fingerprint in fingerprints.items()}


def extractor_fingerprint(recorded: str) -> str:
    """The extractor that a ledger row stands for, whether its graph keeps mentions or not."""
    return recorded.removeprefix(_LEDGER_ONLY)


class Status(StrEnum):
    APPLIED = "applied"
    DEFERRED = "deferred"
    QUARANTINED = "quarantined"
    REJECTED = "rejected"
    DELETED = "deleted"


@dataclass(frozen=True, order=True, slots=True)
class DocumentKey:
    """A document's identity: its stream and its path relative to the document root, with forward slashes."""

    stream: str
    path: str


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One row. `attempts` counts the nights on which this version was deferred; `night` is the last that touched it."""

    key: DocumentKey
    document_id: str
    content_sha256: str
    fingerprint: str
    status: Status
    night: str
    reason: str | None = None
    attempts: int = 0
    mentions: int = 0

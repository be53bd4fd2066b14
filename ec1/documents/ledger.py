"""The ledger's vocabulary: which version of which document has counted, under which extractor, and how it ended.

The rows themselves live inside the graph store, so that graph and ledger cannot disagree (docs/architecture.md).
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from enum import StrEnum

_LEDGER_ONLY = "ledger-only "


@dataclass(frozen=True)
class Fingerprints:
    """The extractor's fingerprint by stream; `of_content` has those of contents that are read otherwise, `asked_for`
    which of them a person had read so: they do not wait for the policy."""

    of_stream: Mapping[str, str]
    of_content: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    asked_for: Set[str] = frozenset()

    def of(self, stream: str, content_sha256: str) -> str:
        """The fingerprint for one content."""
        return self.of_content.get(content_sha256, self.of_stream)[stream]


def ledger_fingerprints(fingerprints: Fingerprints, *, keep_mentions: bool) -> Fingerprints:
    """What the ledger calls each stream's extractor. A graph that keeps no mentions marks its rows: once it is to keep
    them, its documents count as not yet applied, and come from the outbox."""
    mark = "" if keep_mentions else _LEDGER_ONLY

    def marked(each: Mapping[str, str]) -> dict[str, str]:
        return {stream: mark + fingerprint for stream, fingerprint in each.items()}

    return Fingerprints(
        marked(fingerprints.of_stream),
        {content: marked(each) for content, each in fingerprints.of_content.items()},
        fingerprints.asked_for,
    )


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

"""What a document's news do to its node: what is taken back, what is written, and what counts afterwards.

Belongs here: the rules of a document's status. Does not: what it says (`news.py`), and writing it (`changes.py`).
"""

from dataclasses import dataclass
from typing import Any

from ec1.documents.ledger import DocumentKey, Status
from ec1.graph import tables
from ec1.graph.news import Change


@dataclass(frozen=True)
class Applied:
    """What became of one document: the ledger's status, whether anything was written, and how many mentions were
    written and taken back."""

    key: DocumentKey
    status: Status
    changed: bool
    mentions: int = 0
    retracted: int = 0


@dataclass
class DocumentPlan:
    """What one change does to one document's node."""

    change: Change
    node: dict[str, Any]
    old: dict[str, Any] | None
    retract: int = 0
    mentions: tuple[dict[str, Any], ...] = ()


def planned(change: Change, old: dict[str, Any] | None, night: str, quarantine_after: int) -> DocumentPlan | Applied:
    """The new node of a document, or what already counts if the change says nothing new."""
    if old is None and change.outcome == "deleted":
        return Applied(change.key, Status.DELETED, False)
    same = old is not None and (old["content_sha256"], old["fingerprint"]) == (
        change.content_sha256,
        change.fingerprint,
    )
    if old is not None and _says_nothing_new(change, old, same, night):
        return Applied(change.key, Status(old["status"]), False)
    node = dict(old) if old is not None else empty_node(change.key)
    held = node["mentions"]
    node.update(status=change.outcome, night=night, reason=change.reason, attempts=0)
    if change.outcome == "deleted":
        node.update(mentions=0, applied_id=None, applied_content=None, applied_night=None)
        return DocumentPlan(change, node, old, retract=held)
    node.update(document_id=change.document_id, content_sha256=change.content_sha256, fingerprint=change.fingerprint)
    if change.outcome == "complete":
        node.update(
            status=Status.APPLIED,
            mentions=len(change.mentions),
            applied_id=change.document_id,
            applied_content=change.content_sha256,
            applied_night=night,
        )
        return DocumentPlan(change, node, old, retract=held, mentions=change.mentions)
    if change.outcome == "deferred":
        node["attempts"] = 1 + (old["attempts"] if old is not None and same and old["status"] == "deferred" else 0)
        if node["attempts"] >= quarantine_after:
            node["status"] = Status.QUARANTINED
        more = node["applied_content"] == change.content_sha256 and len(change.mentions) > held
        if change.mentions and (node["applied_content"] is None or more):
            # Better a part of it than nothing, and more than less, until all of it counts; an older version of the
            # document that counts as a whole is better still.
            node.update(
                mentions=len(change.mentions),
                applied_id=change.document_id,
                applied_content=change.content_sha256,
                applied_night=night,
            )
            return DocumentPlan(change, node, old, retract=held, mentions=change.mentions)
        return DocumentPlan(change, node, old)
    if node["applied_content"] == change.content_sha256:
        return DocumentPlan(change, node, old)
    node.update(mentions=0, applied_id=None, applied_content=None, applied_night=None)
    return DocumentPlan(change, node, old, retract=held)


def empty_node(key: DocumentKey) -> dict[str, Any]:
    """The node of a document that nothing is known of."""
    node: dict[str, Any] = dict.fromkeys(tables.DOCUMENT_COLUMNS)
    path = tables.stored_path(key.path)
    return node | {"key": tables.document_key(key), "stream": key.stream, "path": path, "mentions": 0}


def _says_nothing_new(change: Change, old: dict[str, Any], same: bool, night: str) -> bool:
    status = old["status"]
    if change.outcome == "deleted":
        return bool(status == Status.DELETED)
    if not same or status == Status.DELETED:
        return False
    if change.outcome == "complete":
        return bool(status == Status.APPLIED)
    if change.outcome == "rejected":
        return bool(status == Status.REJECTED and old["reason"] == change.reason)
    # A night counts once, and what counts or was given up is not deferred again.
    return status in (Status.APPLIED, Status.QUARANTINED) or (status == Status.DEFERRED and old["night"] == night)

"""Phase 1's last step for one night: a listing and the outbox become mutations of the graph."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.documents.parse import read_document
from ec1.documents.scan import Listing
from ec1.errors import DeferredError, RejectedError
from ec1.extraction.folding import normalised

if TYPE_CHECKING:
    from ec1.extraction.outbox import Outbox
    from ec1.graph.ladybug_store import LadybugStore


@dataclass
class AppliedNight:
    """Counts of documents, by what happened to them, and the state of the graph before and after."""

    applied: int = 0
    deferred: int = 0
    rejected: int = 0
    vanished: int = 0
    missing: int = 0
    """Documents without any result in the outbox: extraction did not get to them."""
    entities_before: int = 0
    entities_after: int = 0
    entities_by_class: Mapping[str, int] | None = None
    mentions_after: int = 0
    digest: str = ""
    recovered: str | None = None

    @property
    def partial(self) -> bool:
        return bool(self.deferred or self.missing)

    def record(self) -> dict[str, Any]:
        return asdict(self)


def apply_night(
    store: "LadybugStore", listing: Listing, outbox: "Outbox", fingerprints: Mapping[str, str], *, quarantine_after: int
) -> AppliedNight:
    """Apply what the night found. Safe to repeat: what has been applied already changes nothing."""
    done = AppliedNight(recovered=store.recovered, entities_before=sum(store.stats().entities.values()))
    for key in listing.vanished:
        store.retract(key, listing.night)
        done.vanished += 1
    for refused in listing.rejected:
        stream = refused.key.stream
        store.reject(
            refused.key, "", refused.content_sha256, fingerprints.get(stream, ""), refused.reason, listing.night
        )
        done.rejected += 1
    for version in listing.changed:
        result = outbox.get(fingerprints[version.key.stream], version.content_sha256)
        if result is None:
            done.missing += 1
            continue
        store.apply(version.key, version.document_id, result, listing.night, quarantine_after=quarantine_after)
        done.applied += result.status == "complete"
        done.deferred += result.status == "deferred"
        done.rejected += result.status == "rejected"
    stats = store.stats()
    done.entities_by_class = dict(stats.entities)
    done.entities_after = sum(stats.entities.values())
    done.mentions_after = stats.mentions
    done.digest = store.digest()
    return done


def ungrounded(
    listing: Listing, outbox: "Outbox", fingerprints: Mapping[str, str], root: Path, max_bytes: int
) -> list[str]:
    """Mentions of tonight's documents that do not stand where they say, as `path: name`; none if all is well.

    Reads the documents again and compares, so that it does not rest on what it checks. A document that changed since
    is left out: its new version is another night's.
    """
    wrong = []
    for version in listing.changed:
        result = outbox.get(fingerprints[version.key.stream], version.content_sha256)
        if result is None or result.status != "complete":
            continue
        try:
            text = read_document(root, version, max_bytes).text
        except (DeferredError, RejectedError):
            continue
        wrong += [
            f"{version.key.path}: {mention.name}"
            for mention in result.mentions
            if normalised(text[mention.start : mention.end]) != normalised(mention.name)
        ]
    return wrong

"""Phase 1's last step for one night: a listing and the outbox become mutations of the graph."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, Status, ledger_fingerprints
from ec1.documents.listing import DocumentVersion, Listing
from ec1.documents.reader import DocumentReader
from ec1.extraction.folding import normalised
from ec1.extraction.naming.trust import trust_of
from ec1.night.records import GraphRecord

if TYPE_CHECKING:
    from ec1.extraction.reading.outbox import Outbox
    from ec1.extraction.results import ExtractionResult
    from ec1.graph.ladybug_store import LadybugStore
    from ec1.graph.model import Rebuild

MAX_UNGROUNDED = 20
MAX_REFUSED = 20
Results = Iterable[tuple[DocumentKey, str, "ExtractionResult"]]


def listing_to_apply(
    store: "LadybugStore",
    listing: Listing,
    list_again: Callable[[Mapping[DocumentKey, LedgerEntry]], Listing],
    recovered: str | None = None,
) -> Listing:
    """The night's listing, or a new one against the ledger of a graph that was just restored from an older copy.

    What the restored graph lacks had counted before, so the night's own listing does not name it; its results are in
    the outbox. `recovered` says that it was restored earlier in this run.
    """
    return listing if (store.recovered or recovered) is None else list_again(store.ledger())


def apply_finished(
    store: "LadybugStore",
    listing: Listing,
    outbox: "Outbox",
    fingerprints: Fingerprints,
    earlier: GraphRecord | None = None,
) -> GraphRecord:
    """Apply the documents whose extraction is complete, while others are still read; `earlier` is what this run applied
    before. The rest of the night's news (what vanished, was rejected or deferred, or is only read again) counts when
    all of it is known."""
    counts = GraphRecord()
    again = set(listing.refresh)
    before = sum(store.stats().entities.values()) if earlier is None else earlier.entities_before
    new = [version for version in listing.changed if version.key not in again]
    found = (each for each in _results(new, outbox, fingerprints, counts) if each[2].status == "complete")
    store.apply_many(found, listing.night)
    stats = store.stats()
    return GraphRecord(
        applied=counts.applied,
        missing=len(listing.changed) - counts.applied,
        entities_before=before,
        entities_after=sum(stats.entities.values()),
        entities_by_class=dict(stats.entities),
        mentions_after=stats.mentions,
        mentions_by_class=dict(stats.mentions_by_class),
        recovered=store.recovered or (earlier.recovered if earlier is not None else None),
        reading_process=os.getpid(),
    )


def apply_night(
    store: "LadybugStore",
    listing: Listing,
    outbox: "Outbox",
    fingerprints: Fingerprints,
    *,
    quarantine_after: int,
    keep_mentions: bool = True,
    rebuild: "Callable[[Results, int], Rebuild] | None" = None,
) -> GraphRecord:
    """Apply what the night found, a bounded batch of whole documents per transaction.

    A crash loses the batch at hand, which the outbox still holds. Safe to repeat: what has been applied already changes
    nothing. Without `keep_mentions` the store is only the ledger. With `rebuild`, which gets results and their number,
    the documents that are only read again (`listing.refresh`) count all at once, when each of them has been.
    """
    recorded = ledger_fingerprints(fingerprints, keep_mentions=keep_mentions)
    done = GraphRecord(recovered=store.recovered, entities_before=sum(store.stats().entities.values()))
    store.retract_many(listing.vanished, listing.night)
    done.vanished = len(listing.vanished)
    store.reject_many(
        (
            (each.key, "", each.content_sha256, recorded.of_stream.get(each.key.stream, ""), each.reason)
            for each in listing.rejected
        ),
        listing.night,
    )
    done.rejected = len(listing.rejected)
    done.refused = [(each.key.path, each.reason) for each in listing.rejected[:MAX_REFUSED]]
    done.put_off = dict(listing.put_off)
    done.later = listing.later
    done.deferred = len(listing.postponed)
    done.unread = [(each.key.path, each.reason) for each in listing.postponed[:MAX_REFUSED]]
    again = set(listing.refresh if rebuild else ())

    def results(versions: Iterable[DocumentVersion], counts: GraphRecord) -> Results:
        found = _results(versions, outbox, fingerprints, counts)
        if keep_mentions:
            return found
        return (
            (
                key,
                name,
                result.model_copy(
                    update={"mentions": (), "fingerprint": recorded.of(key.stream, result.content_sha256)}
                ),
            )
            for key, name, result in found
        )

    store.apply_many(
        results((version for version in listing.changed if version.key not in again), done),
        listing.night,
        quarantine_after=quarantine_after,
    )
    if rebuild and again:
        versions = [version for version in listing.changed if version.key in again]
        done.rebuild = _rebuild(
            versions, outbox, fingerprints, done, lambda counts: rebuild(results(versions, counts), len(versions))
        )
    stats = store.stats()
    done.entities_by_class = dict(stats.entities)
    done.entities_after = sum(stats.entities.values())
    done.mentions_after = stats.mentions
    done.mentions_by_class = dict(stats.mentions_by_class)
    done.digest = store.digest()
    return done


def _rebuild(
    versions: list[DocumentVersion],
    outbox: "Outbox",
    fingerprints: Fingerprints,
    done: GraphRecord,
    build: "Callable[[GraphRecord], Rebuild]",
) -> "Rebuild":
    """Build if every document has been read again, even without a result; count its documents if they are applied."""
    from ec1.graph.model import Rebuild

    waiting = sum(not outbox.path(*_unit(version, fingerprints)).exists() for version in versions)
    if waiting:
        done.missing += waiting
        reason = f"{waiting} of {len(versions)} documents still have to be read by the new extractor"
        return Rebuild(documents=len(versions), waiting=waiting, reason=reason)
    counts = GraphRecord()
    rebuilt = build(counts)
    if rebuilt.swapped:
        done.applied += counts.applied
        done.deferred += counts.deferred
        done.rejected += counts.rejected
        done.refused += counts.refused
    return rebuilt


def _results(
    versions: Iterable[DocumentVersion], outbox: "Outbox", fingerprints: Fingerprints, done: GraphRecord
) -> Iterator[tuple[DocumentKey, str, "ExtractionResult"]]:
    """The results of documents, counted; read when their turn comes, so that a batch is in memory."""
    for version in versions:
        result = outbox.get(*_unit(version, fingerprints))
        if result is None:
            done.missing += 1
            continue
        done.applied += result.status == "complete"
        done.deferred += result.status == "deferred"
        if result.status == "rejected":
            done.rejected += 1
            if len(done.refused) < MAX_REFUSED:
                done.refused.append((version.key.path, result.reason or ""))
        if result.status == "deferred" and not result.blamed:
            # It stays as it was, and comes again: nights of a smaller model must not quarantine it.
            continue
        yield version.key, version.document_id, result


def _unit(version: DocumentVersion, fingerprints: Fingerprints) -> tuple[str, str]:
    """What the outbox has a document's result under."""
    return fingerprints.of(version.key.stream, version.content_sha256), version.content_sha256


def trust_of_night(
    applied: GraphRecord, listing: Listing, outbox: "Outbox", fingerprints: Fingerprints, reader: DocumentReader
) -> None:
    """Note how far the answers about the documents of this run can be trusted."""
    units = {_unit(version, fingerprints) for version in listing.changed}
    results = (outbox.get(*unit) for unit in sorted(units))
    trust = trust_of(result for result in results if result is not None)
    applied.named, applied.kept, applied.invented = trust.named, trust.kept, trust.invented
    applied.ungrounded = ungrounded(listing, outbox, fingerprints, reader)[:MAX_UNGROUNDED]


def waiting_documents(ledger: Mapping[DocumentKey, LedgerEntry]) -> list[LedgerEntry]:
    """The documents that are deferred or quarantined, those first that were tried most often."""
    waiting = [entry for entry in ledger.values() if entry.status in (Status.DEFERRED, Status.QUARANTINED)]
    return sorted(waiting, key=lambda entry: (entry.key.stream, -entry.attempts, entry.key))


def ungrounded(listing: Listing, outbox: "Outbox", fingerprints: Fingerprints, reader: DocumentReader) -> list[str]:
    """Mentions of tonight's documents that do not stand where they say, as `path: name`; none if all is well.

    Reads the documents again and compares, so that it does not rest on what it checks. A document that changed since
    is left out: its new version is another night's.
    """
    wrong = []
    for version in listing.changed:
        result = outbox.get(*_unit(version, fingerprints))
        if result is None or result.status != "complete":
            continue
        text = reader.text(version.key, version.content_sha256)
        if text is None:
            continue
        wrong += [
            f"{version.key.path}: {mention.name}"
            for mention in result.mentions
            if normalised(text[mention.start : mention.end]) != normalised(mention.name)
        ]
    return wrong

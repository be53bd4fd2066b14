"""Phase 1's first step for one night: what is to be read, given the ledger, the deployment and the extractors."""

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ec1.corpus.tombstones import Tombstones
from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, ledger_fingerprints
from ec1.documents.listing import Listing
from ec1.documents.refresh import Refresh, plan_refresh
from ec1.documents.scan import scan_documents
from ec1.home import Home
from ec1.nights import Night

if TYPE_CHECKING:
    from ec1.extraction.reading.outbox import Outbox


def list_documents(
    deployment: Deployment,
    home: Home,
    ledger: Mapping[DocumentKey, LedgerEntry],
    extractors: Fingerprints,
    outbox: "Outbox",
    night: Night,
    *,
    as_of: dt.datetime,
    now: dt.datetime,
) -> tuple[Listing, Refresh]:
    """List the streams as of `as_of`, and say which documents a changed extractor is to read again.

    `extractors` are the fingerprints of tonight's extractors. Raises what `scan_documents` raises.
    """
    fingerprints = ledger_fingerprints(extractors, keep_mentions="ladybug" in deployment.graph_stores)
    refresh = plan_refresh(
        ledger,
        fingerprints,
        deployment.extraction.fingerprint_policy,
        per_night=deployment.extraction.refresh_per_night,
        has_result=lambda entry: outbox.has(
            extractors.of(entry.key.stream, entry.content_sha256), entry.content_sha256
        ),
    )
    listing = scan_documents(
        deployment.documents_root(home),
        refresh.ledger,
        fingerprints,
        night=night.date,
        as_of=as_of,
        retract_vanished=not night.is_past(now),
        settings=deployment.documents,
        cache=home.cache,
    )
    return refresh.mark(_without_removed(listing, home)), refresh


def _without_removed(listing: Listing, home: Home) -> Listing:
    """The listing without what was removed on request: it gets no row in the ledger, since its name may tell too much.
    What is almost the same text is refused when it is read (`DocumentReader`)."""
    removed = Tombstones(home)
    changed = tuple(each for each in listing.changed if not removed.refuses_content(each.content_sha256))
    rejected = tuple(each for each in listing.rejected if not removed.refuses_content(each.content_sha256))
    gone = len(listing.changed) + len(listing.rejected) - len(changed) - len(rejected)
    return replace(listing, changed=changed, rejected=rejected, kept_out=gone) if gone else listing

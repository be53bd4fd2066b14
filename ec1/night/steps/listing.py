"""Phase 1's first step for one night: what is to be read, given the ledger, the deployment and the extractors."""

import datetime as dt
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ec1.deployment import Deployment
from ec1.documents.ledger import DocumentKey, Fingerprints, LedgerEntry, ledger_fingerprints
from ec1.documents.listing import Listing
from ec1.documents.refresh import Refresh, plan_refresh
from ec1.documents.scan import scan_documents
from ec1.documents.sources.copied import Roots, bring, roots_of
from ec1.documents.sources.settings import SourceSettings
from ec1.errors import EC1Error
from ec1.home import Home
from ec1.nights import Night
from ec1.streams import Stream

if TYPE_CHECKING:
    from ec1.extraction.reading.outbox import Outbox

log = logging.getLogger(__name__)


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

    A stream whose source cannot be read tonight, or lost too much to be believed, is put off with the reason.
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
    settings = deployment.documents
    empty = Listing(night.date, as_of.astimezone(dt.UTC), (), (), (), {})

    def scan(roots: Roots, streams: Mapping[str, Stream]) -> Listing:
        return scan_documents(
            roots.files,
            refresh.ledger,
            fingerprints,
            night=night.date,
            as_of=as_of,
            retract_vanished=not night.is_past(now),
            settings=settings,
            cache=home.cache,
            unpacked=roots.unpacked,
            streams=streams,
        )

    def copied(stream: Stream, source: SourceSettings) -> Listing:
        roots = roots_of(home.sources, stream.name)
        share = settings.max_vanished_share
        try:
            found = bring(source, stream, roots, max_bytes=settings.max_bytes, max_vanished_share=share)
            log.info("stream %s: %d documents read from its source, %d gone", stream.name, found.read, found.removed)
            return scan(roots, {stream.name: stream})
        except EC1Error as error:
            log.warning("stream %s is put off: %s", stream.name, error)
            return replace(empty, unchanged={stream.name: 0}, put_off={stream.name: str(error)})

    streams = settings.all_streams
    here = {name: stream for name, stream in streams.items() if not stream.copied}
    listing = scan(Roots(deployment.documents_root(home), home.unpacked), here) if here else empty
    listing = listing.and_also(
        [copied(streams[name], each.source) for name, each in settings.streams.items() if each.source is not None]
    )
    return refresh.mark(listing), refresh

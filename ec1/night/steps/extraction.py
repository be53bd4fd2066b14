"""Phase 1's extraction for one night: what a listing asks for, minus what the outbox already holds.

Belongs here: the decision whether a model is needed at all. Does not: how documents are extracted
(`ec1.extraction.reading.loop`).
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

from ec1.documents.ledger import DocumentKey, Fingerprints
from ec1.documents.listing import DocumentVersion, Listing
from ec1.documents.parse import Document
from ec1.documents.reader import DocumentReader
from ec1.errors import DeferredError, SkippedError
from ec1.streams import Stream

if TYPE_CHECKING:
    from ec1.extraction.reading.client import ChatClient
    from ec1.extraction.reading.extractor import Extractor, WorkItem
    from ec1.extraction.reading.outbox import Outbox
    from ec1.extraction.reading.progress import ExtractionRecord, Progress


def work_of(listing: Listing, streams: Mapping[str, Stream], reader: DocumentReader) -> "list[WorkItem]":
    """The units of work that a listing asks for in these streams; documents are loaded when their turn comes.

    What is new comes first: it must not wait behind a whole stock of documents that are only read again. Then the
    shortest: a few files of a megabyte must not take the night from all others. Where streams have different shares,
    each gets its part of the bytes that are read, whenever the night ends.
    """
    from ec1.extraction.reading.extractor import WorkItem

    def loader(version: DocumentVersion) -> Callable[[], Document]:
        return lambda: reader.read(version.key, version.content_sha256)

    again = set(listing.refresh)
    versions = sorted(
        (version for version in listing.changed if version.key.stream in streams),
        key=lambda version: (version.key in again, version.size),
    )
    if len({stream.share for stream in streams.values()}) > 1:
        versions = _by_shares(versions, {name: stream.share for name, stream in streams.items()}, again)
    return [
        WorkItem(version.key.stream, version.content_sha256, loader(version), version.key.path) for version in versions
    ]


def _by_shares(
    versions: Sequence[DocumentVersion], shares: Mapping[str, float], again: Container[DocumentKey]
) -> list[DocumentVersion]:
    """Each stream's documents in their order, the streams in turn by how much of their share they had."""
    read: Counter[tuple[bool, str]] = Counter()
    turns = []
    for place, version in enumerate(versions):
        kind, stream = version.key in again, version.key.stream
        read[kind, stream] += version.size
        turns.append((kind, read[kind, stream] / shares[stream], place))
    return [versions[place] for *_, place in sorted(turns)]


def pending(work: "Sequence[WorkItem]", fingerprints: Fingerprints, outbox: "Outbox") -> "list[WorkItem]":
    """Those units without a final result yet."""
    return [
        item for item in work if not outbox.has(fingerprints.of(item.stream, item.content_sha256), item.content_sha256)
    ]


def _unit(item: "WorkItem") -> tuple[str, str]:
    return item.stream, item.content_sha256


def extract_night(
    work: "Sequence[WorkItem]",
    extractor: "Extractor",
    outbox: "Outbox",
    serve: "Callable[[], AbstractContextManager[ChatClient]]",
    *,
    deadline_of: Callable[[], float],
    progress: "Callable[[Progress], None]",
) -> "ExtractionRecord":
    """Extract every unit; `serve` is entered only if a unit needs the model.

    `deadline_of` is asked when the model is ready (that is when the phase's clock starts) and answers in
    `time.monotonic` seconds. A `serve` that raises DeferredError when it is entered has no model for this night: every
    unit that needs one is postponed.
    """
    from ec1.extraction.reading.loop import extract, postpone

    if not [item for item in work if not outbox.has(extractor.fingerprint(*_unit(item)), item.content_sha256)]:
        return extract(extractor, work, None, outbox, deadline=None, progress=progress)
    with ExitStack() as stack:
        try:
            client = stack.enter_context(serve())
        except DeferredError as error:
            report = postpone(extractor, work, outbox, str(error))
            report.skipped = isinstance(error, SkippedError)
            return report
        return extract(extractor, work, client, outbox, deadline=deadline_of(), progress=progress)

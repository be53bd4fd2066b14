"""What a night adds to the extractor's tuples of itself, where the deployment says so (`extraction.learn_from`).

Belongs here: which chunks with which names may be learnt without a person's file. Does not: how tuples are kept
(`ec1.corpus.labels`), and training on them.

`stronger`: the chunks that the second model of a cascade answered, with those of its names that survived grounding.
It is one that we serve ourselves; what others' models say is never trained on. `reviewed`: the chunks each of whose
names is of an entity that a person decided about in the review of the graph, and so took for one of its class. That no
other name stands there is not confirmed by anybody.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ec1.corpus.labels import add, records_of, tuple_of
from ec1.deployment import Deployment
from ec1.documents.chunks import Chunk
from ec1.documents.ledger import DocumentKey, Status, extractor_fingerprint
from ec1.documents.listing import DocumentVersion, Listing
from ec1.documents.reader import DocumentReader
from ec1.errors import RejectedError
from ec1.extraction.defence.instructions import FILLER
from ec1.graph.model import entity_key
from ec1.graph.resolution.overrides import load_overrides
from ec1.home import Home

if TYPE_CHECKING:
    from ec1.extraction.reading.extractor import Extractor
    from ec1.extraction.reading.outbox import Outbox
    from ec1.extraction.results import Mention

Tuple = dict[str, Any]


def teach(
    deployment: Deployment, home: Home, listing: Listing, extractor: "Extractor", outbox: "Outbox", now: dt.datetime
) -> dict[str, int]:
    """Write the tuples that the deployment's settings ask for; by source, how many are new.

    Before the night's results count, so that a run that is cut off writes them when it is repeated; the same ones are
    written once, and none of a text that the extractor has a tuple of, such as a person's correction.
    """
    from ec1.adapters.extractor import ROLE

    sources = deployment.extraction.learn_from
    bucket, reader = deployment.corpus_root(home) / ROLE, deployment.document_reader(home)
    written = {}
    if "reviewed" in sources:
        found = _reviewed(deployment, home, reader, extractor, outbox)
        written["reviewed"] = add(found, bucket, "reviewed", now, gives_way=True).written
    if "stronger" in sources:
        found = _stronger(listing.changed, reader, extractor, outbox)
        written["stronger"] = add(found, bucket, "stronger", now, gives_way=True).written
    return written


def _stronger(
    changed: Iterable[DocumentVersion], reader: DocumentReader, extractor: "Extractor", outbox: "Outbox"
) -> Iterator[Tuple]:
    from ec1.extraction.reading.cascade import unsure_chunks
    from ec1.extraction.reading.narrowed import Narrowed

    settings, second, first = extractor.settings.cascade, extractor.second, extractor.alone()
    assert settings is not None and second is not None, "the settings were checked"
    for version in changed:
        unit = (version.key.stream, version.content_sha256)
        asked = outbox.get(first.fingerprint(*unit), version.content_sha256)
        if asked is None or asked.status != "complete":
            continue
        narrowed = Narrowed(second, first, {unit: unsure_chunks(asked, settings)})
        result = outbox.get(narrowed.fingerprint(*unit), version.content_sha256)
        text = reader.text(version.key, version.content_sha256)
        if result is None or text is None:
            continue
        shown = extractor.readable(text, version.content_sha256)[0]
        chunks = [
            Chunk(index=each.chunk, start=each.start, end=each.end, text=shown[each.start : each.end])
            for each in result.answers
            if each.problem is None and each.finish_reason == "stop"
        ]
        yield from _tuples(version.key, chunks, result.mentions, origin=f"stronger: {second.model_id}")


def _reviewed(
    deployment: Deployment, home: Home, reader: DocumentReader, extractor: "Extractor", outbox: "Outbox"
) -> Iterator[Tuple]:
    from ec1.graph.reader import GraphReader, published_ledger

    overrides = load_overrides(deployment.graph.overrides)
    decided = {key for each in (*overrides.same, *overrides.different) for key in each.entities}
    if not decided or not home.published_graph.is_file():
        return
    with GraphReader(home.published_graph) as graph:
        known = sorted(decided & {each.key for each in graph.entities(limit=None)})
        places = {DocumentKey(each.stream, each.path) for key in known for each in graph.show(key)[0][1]}
    ledger = published_ledger(home.published_graph)
    for key in sorted(places):
        entry = ledger[key]
        result = outbox.get(extractor_fingerprint(entry.fingerprint), entry.content_sha256)
        text = reader.text(key, entry.content_sha256)
        if entry.status != Status.APPLIED or result is None or text is None:
            continue
        shown = extractor.readable(text, entry.content_sha256)[0]
        confirmed = [
            chunk
            for chunk in extractor.chunks(shown)
            if (named := [each for each in result.mentions if chunk.start < each.end and each.start < chunk.end])
            and all(entity_key(each.name, each.entity_class) in decided for each in named)
        ]
        yield from _tuples(key, confirmed, result.mentions, origin="reviewed")


def _tuples(key: DocumentKey, chunks: Sequence[Chunk], mentions: Iterable["Mention"], origin: str) -> Iterator[Tuple]:
    """The tuples of chunks that the model read whole."""
    whole = [chunk for chunk in chunks if FILLER not in chunk.text]
    for record in records_of(key.stream, key.path, "", whole, mentions):
        try:
            yield tuple_of(f"{key.stream}/{key.path}", record["text"], record["entities"], origin=origin)
        except RejectedError:
            # Such as a name that a line's end cuts in two: nothing to learn from.
            continue

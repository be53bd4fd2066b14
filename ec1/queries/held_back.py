"""What faces ask of sentences that were held back since they may tell a machine what to answer."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ec1.documents.ledger import Status, extractor_fingerprint
from ec1.extraction.defence.releases import Release, read_releases, sentence_id
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import Held
from ec1.graph.reader import published_ledger
from ec1.home import Home


@dataclass(frozen=True)
class HeldSentence:
    """A sentence that is held back in a document that counts."""

    id: str
    path: str
    content_sha256: str
    held: Held

    def line(self, action: Literal["release", "hold"], by: str, at: dt.datetime) -> Release:
        """What a person decided about it, for the log."""
        return Release(
            action=action,
            id=self.id,
            content_sha256=self.content_sha256,
            start=self.held.start,
            end=self.held.end,
            path=self.path,
            sentence=self.held.sentence,
            by=by,
            at=at,
        )


def held_sentences(home: Home, prefix: str = "") -> Iterator[HeldSentence]:
    """The sentences that were held back in the documents that count, whose path begins so. Raises InputError if no
    graph was published."""
    outbox = Outbox(home.outbox)
    for key, entry in sorted(published_ledger(home.published_graph).items(), key=lambda each: each[0].path):
        if entry.status != Status.APPLIED or not key.path.startswith(prefix):
            continue
        result = outbox.get(extractor_fingerprint(entry.fingerprint), entry.content_sha256)
        for each in result.held if result is not None else ():
            yield HeldSentence(
                sentence_id(entry.content_sha256, each.start, each.end), key.path, entry.content_sha256, each
            )


def last_words(home: Home) -> dict[str, Release]:
    """The last decision about each sentence that somebody decided about, by id. Raises InputError for a damaged log."""
    return {each.id: each for each in read_releases(home.releases).lines}

"""An extractor that reads some chunks of each document only: those that another one was unsure of.

Belongs here: cutting as the other one cuts, whose chunks are counted. Does not: which chunks those are (`cascade`).
"""

import copy
from collections.abc import Mapping, Sequence

from ec1.documents.chunks import Chunk
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.files import digest_of


class Narrowed(Extractor):
    """`extractor`, asked about `chunks` (by stream and content) of what `first` makes of a text."""

    def __init__(self, extractor: Extractor, first: Extractor, chunks: Mapping[tuple[str, str], Sequence[int]]) -> None:
        self.__dict__.update(copy.copy(extractor).__dict__)
        self._first = first
        self._chunks = chunks
        self._fingerprints = {}
        # What a person released is read by both.
        self.releases = first.releases
        self.known = first.known

    def _fingerprint(self, stream: str) -> str:
        own = super()._fingerprint(stream)
        return digest_of({"reads": own, "what is unsure to": self._first.fingerprint(stream)})

    def fingerprint(self, stream: str, content_sha256: str = "") -> str:
        """With the chunks, for a content whose chunks are read in part."""
        whole = super().fingerprint(stream, content_sha256)
        chunks = self._chunks.get((stream, content_sha256))
        return whole if chunks is None else digest_of([whole, list(chunks)])

    def chunks_to_read(self, item: WorkItem, text: str) -> list[Chunk]:
        chosen = set(self._chunks[item.stream, item.content_sha256])
        return [chunk for chunk in self._first.chunks(text) if chunk.index in chosen]

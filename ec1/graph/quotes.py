"""The sentence in which a mention stands, read again from the document that the mention names."""

import re
from functools import lru_cache

from ec1.documents.chunks import sentence_at
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.documents.reader import DocumentReader
from ec1.errors import DeferredError, RejectedError
from ec1.graph.model import Evidence, Quote, StoredMention, clean_name


class Quotes:
    """Finds the sentences of mentions among the documents; keeps the last documents that it read."""

    def __init__(self, reader: DocumentReader) -> None:
        self._reader = reader
        self._document = lru_cache(maxsize=8)(self._read)

    def of(self, evidence: Evidence) -> Quote:
        """The sentence of one mention, or of what states a relation.

        A document that was changed or removed since is a `problem`, not an error.
        """
        key = DocumentKey(evidence.stream, evidence.path)
        try:
            document = self._document(key, evidence.content_sha256)
        except (DeferredError, RejectedError) as error:
            return Quote(problem=str(error))
        text, first, last = document.text, evidence.start, evidence.end
        if isinstance(evidence, StoredMention):
            # An earlier version may have read another text out of the same file.
            found = _place(text, evidence.name, first, last)
            if found is None:
                return Quote(problem="this version reads the file otherwise: it has to be read again")
            first, last = found
        start, end = sentence_at(text, first, last)
        return Quote(text[start:first], text[first:last], text[last:end], place=document.place_at(first))

    def document(self, key: DocumentKey, content_sha256: str) -> Document:
        """A version of a document. Raises RejectedError or DeferredError where it cannot be read again."""
        return self._document(key, content_sha256)

    def date_of(self, evidence: Evidence) -> str | None:
        """The day that the document of a mention names as its own; None where it cannot be read again, too."""
        try:
            return self._document(DocumentKey(evidence.stream, evidence.path), evidence.content_sha256).date
        except (DeferredError, RejectedError):
            return None

    def _read(self, key: DocumentKey, content_sha256: str) -> Document:
        return self._reader.read(key, content_sha256)


def _place(text: str, name: str, start: int, end: int) -> tuple[int, int] | None:
    """Where a name stands: at these characters, or nearest to them."""
    if clean_name(text[start:end]).casefold() == name.casefold():
        return start, end
    words = re.compile(r"\s+".join(map(re.escape, name.split())), re.IGNORECASE)
    places = [match.span() for match in words.finditer(text)]
    return min(places, key=lambda place: abs(place[0] - start), default=None)

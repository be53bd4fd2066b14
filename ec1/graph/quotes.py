"""The sentence in which a mention stands, read again from the document that the mention names."""

from functools import lru_cache

from ec1.documents.chunks import sentence_at
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document
from ec1.documents.reader import DocumentReader
from ec1.errors import DeferredError, RejectedError
from ec1.graph.model import Evidence, Quote


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
        text = document.text
        start, end = sentence_at(text, evidence.start, evidence.end)
        return Quote(
            text[start : evidence.start],
            text[evidence.start : evidence.end],
            text[evidence.end : end],
            place=document.place_at(evidence.start),
        )

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

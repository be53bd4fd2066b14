"""The sentence in which a mention stands, read again from the document that the mention names."""

from functools import lru_cache
from pathlib import Path

from ec1.documents.chunks import sentence_at
from ec1.documents.ledger import DocumentKey
from ec1.documents.listing import DocumentVersion
from ec1.documents.parse import read_document
from ec1.errors import DeferredError, RejectedError
from ec1.graph.model import Evidence, Quote


class Quotes:
    """Finds the sentences of mentions below one document root; keeps the last documents that it read."""

    def __init__(self, root: Path, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._text = lru_cache(maxsize=8)(self._read)

    def of(self, evidence: Evidence) -> Quote:
        """The sentence of one mention, or of what states a relation.

        A document that was changed or removed since is a `problem`, not an error.
        """
        key = DocumentKey(evidence.stream, evidence.path)
        try:
            text = self._text(key, evidence.content_sha256)
        except (DeferredError, RejectedError) as error:
            return Quote(problem=str(error))
        start, end = sentence_at(text, evidence.start, evidence.end)
        return Quote(text[start : evidence.start], text[evidence.start : evidence.end], text[evidence.end : end])

    def _read(self, key: DocumentKey, content_sha256: str) -> str:
        version = DocumentVersion(key, content_sha256, document_id="", size=0, modified_ns=0)
        return read_document(self._root, version, self._max_bytes).text

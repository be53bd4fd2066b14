"""The documents below one root, read again by what names them: a place and the hash of the content."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from ec1.documents.convert import Converter
from ec1.documents.ledger import DocumentKey
from ec1.documents.parse import Document, parse_document
from ec1.documents.sources.copied import Roots
from ec1.errors import DeferredError, RejectedError

REMOVED = "its text was removed on request: ec1 forget"


class DocumentReader:
    """Reads versions of documents. `max_bytes` bounds a file; a larger one is rejected.

    `others`: of streams whose files are elsewhere than those of the root. `is_removed`: whose texts are rejected.
    """

    def __init__(
        self,
        root: Path | Roots,
        max_bytes: int,
        converter: Converter | None = None,
        *,
        others: Mapping[str, Roots] = MappingProxyType({}),
        is_removed: Callable[[str], bool] = lambda text: False,
    ) -> None:
        self._roots = root if isinstance(root, Roots) else Roots(root, root)
        self._max_bytes = max_bytes
        self._converter = converter
        self._others = others
        self._is_removed = is_removed

    def read(self, key: DocumentKey, content_sha256: str) -> Document:
        """Read one version of a document.

        Raises RejectedError (the reason it cannot be a document), DeferredError if the file no longer holds that
        version or takes too long to convert, NoConverterError (a DeferredError) if its kind cannot be converted here.
        """
        document = parse_document(key, self._data(key, content_sha256), self._converter)
        if self._is_removed(document.text):
            raise RejectedError(REMOVED)
        return document

    @property
    def at_a_time(self) -> int:
        """How many documents can be read at a time with profit: what is read and parsed here waits for no converter."""
        return 2 * self._converter.processes if self._converter is not None else 1

    @property
    def converter(self) -> str:
        """Which version of the converter gives the texts; "" without one."""
        return self._converter.version if self._converter is not None else ""

    def converts_otherwise(self, key: DocumentKey, content_sha256: str, before: str) -> bool:
        """Whether the text of a version is another one than the converter `before` gave; False if it is gone.
        Raises NoConverterError."""
        if self._converter is None:
            return False
        try:
            data = self._data(key, content_sha256)
        except (DeferredError, RejectedError):
            return False
        return self._converter.differs(data, PurePosixPath(key.path).suffix.lower(), content_sha256, before)

    def reads_otherwise(self, key: DocumentKey, content_sha256: str, characters: int | None) -> bool:
        """Whether a version of a text file is not a document of so many characters (None: was refused); False if it is
        gone."""
        try:
            found = len(self.read(key, content_sha256).text)
        except DeferredError:
            return False
        except RejectedError:
            return characters is not None
        return characters != found

    def drop_earlier_conversions(self) -> None:
        """Remove the texts that earlier converters gave."""
        if self._converter is not None:
            self._converter.drop_earlier()

    def _data(self, key: DocumentKey, content_sha256: str) -> bytes:
        """The bytes of one version. Raises as `read` does."""
        roots = self._others.get(key.stream, self._roots)
        # What a file holds has that file's path before its own.
        path = next((root / key.path for root in (roots.files, roots.unpacked) if _is_file(root / key.path)), None)
        path = path or roots.files / key.path
        try:
            with path.open("rb") as stream:
                # Not more than there is: a read sets aside all the memory that it is asked for.
                data = stream.read(min(os.fstat(stream.fileno()).st_size, self._max_bytes) + 1)
        except OSError as error:
            raise DeferredError(f"{path} cannot be read now: {error.strerror}") from None
        if len(data) > self._max_bytes:
            raise RejectedError(f"more bytes than documents.max_bytes ({self._max_bytes:,})")
        if hashlib.sha256(data).hexdigest() != content_sha256:
            raise DeferredError(f"{path} was changed after it was listed; its new version is read on a later night")
        return data

    def text(self, key: DocumentKey, content_sha256: str) -> str | None:
        """The text of a version; None where the file no longer holds it, or is not a document."""
        try:
            return self.read(key, content_sha256).text
        except (DeferredError, RejectedError):
            return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False

"""The objects of a store as documents."""

from collections.abc import Iterator
from functools import partial

from ec1.documents.sources.source import Item
from ec1.errors import InputError, RejectedError
from ec1.storage.store import NotFound, ObjectStore


class ObjectSource:
    """A `Source`: what lies below a prefix of a store. The version is the store's own (etag, generation)."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""

    def items(self) -> Iterator[Item]:
        for each in self._store.list(self._prefix):
            moment = int(each.updated.timestamp() * 1000) * 10**6
            name = each.key.removeprefix(self._prefix)
            # What stands for a folder in consoles of buckets is not a document.
            if name and not name.endswith("/"):
                version = each.version or f"{each.updated.isoformat()}-{each.size}"
                yield Item(name, version, moment, partial(self._read, each.key), each.size)

    def _read(self, key: str) -> bytes:
        try:
            return self._store.get_bytes(key)
        except NotFound:
            raise FileNotFoundError(key) from None
        except InputError as error:
            raise RejectedError(str(error)) from None

"""What one night found in the document root, as it is written down for the steps after it.

Belongs here: the types of a listing and its file. Does not: how it comes about (`scan.py`).
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ec1.documents.ledger import DocumentKey
from ec1.errors import InputError
from ec1.files import digest_of, write_atomic

LISTING = "source_documents.json"
"""A night's listing, in its folder."""


@dataclass(frozen=True)
class DocumentVersion:
    """One version of a document. `size` in bytes, `modified_ns` in nanoseconds since 1970."""

    key: DocumentKey
    content_sha256: str
    document_id: str
    size: int
    modified_ns: int


@dataclass(frozen=True)
class Rejected:
    """A file that cannot be a document, and why.

    `hashed` is False where the bytes were not read: `content_sha256` then stands for the file's size and time stamp, so
    that the ledger's row holds until the file changes. `key.path` of a name that is not UTF-8 is escaped and marked.
    """

    key: DocumentKey
    content_sha256: str
    reason: str
    hashed: bool = True


@dataclass(frozen=True)
class Postponed:
    """A file that could not be read tonight. It is left as the ledger has it, for a later night."""

    key: DocumentKey
    reason: str


@dataclass(frozen=True)
class Listing:
    """What one night found. All tuples are sorted by key.

    `changed` needs work tonight; `rejected` holds what the ledger does not know yet; `unchanged` counts files per
    stream; `later` counts files newer than `as_of`, left for their own night; `hashed` counts files that were read.
    """

    night: str
    as_of: dt.datetime
    changed: tuple[DocumentVersion, ...]
    vanished: tuple[DocumentKey, ...]
    rejected: tuple[Rejected, ...]
    unchanged: dict[str, int]
    later: int = 0
    postponed: tuple[Postponed, ...] = ()
    hashed: int = 0
    refresh: tuple[DocumentKey, ...] = ()
    """Of `changed`, those whose content is known and that only a changed extractor reads again."""
    put_off: dict[str, str] = field(default_factory=dict)
    """Streams that could not be listed tonight, and why: their documents stay as they are."""

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the work found: keys, content and reasons; no time, machine or root path in it."""
        return digest_of(
            {
                "changed": [[v.key.stream, v.key.path, v.content_sha256] for v in self.changed],
                "vanished": [[key.stream, key.path] for key in self.vanished],
                "rejected": [
                    [r.key.stream, r.key.path, r.content_sha256 if r.hashed else "", r.reason] for r in self.rejected
                ],
            }
        )

    def and_also(self, others: Sequence["Listing"]) -> "Listing":
        """This listing with what others of the same night found in other streams."""
        every = (self, *others)
        by_key = attrgetter("key")
        return replace(
            self,
            changed=tuple(sorted((each for one in every for each in one.changed), key=by_key)),
            vanished=tuple(sorted(key for one in every for key in one.vanished)),
            rejected=tuple(sorted((each for one in every for each in one.rejected), key=by_key)),
            postponed=tuple(sorted((each for one in every for each in one.postponed), key=by_key)),
            unchanged={stream: count for one in every for stream, count in one.unchanged.items()},
            put_off={stream: reason for one in every for stream, reason in one.put_off.items()},
            later=sum(one.later for one in every),
            hashed=sum(one.hashed for one in every),
        )

    def save(self, path: Path) -> None:
        """Write as JSON, atomically."""
        write_atomic(path, _listing_type.dump_json(self, indent=1) + b"\n")

    @classmethod
    def load(cls, path: Path) -> "Listing":
        """Read what `save` wrote. Raises InputError if it is missing or damaged."""
        try:
            return _listing_type.validate_json(path.read_bytes())
        except FileNotFoundError:
            raise InputError(f"{path} does not exist: materialise source_documents of this night first") from None
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]["msg"]
            raise InputError(f"{path} is not a document listing ({problem}): delete it and scan again") from None


_listing_type: TypeAdapter[Listing] = TypeAdapter(Listing)

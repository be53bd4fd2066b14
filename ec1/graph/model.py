"""Entities as the graph knows them: how a name becomes an identity, and the records that readers get.

Belongs here: identity, the preferred spelling, plain records. Does not: storage (`ladybug_store.py`, `reader.py`) and
the question whether two identities are one thing (`resolution.py`).
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from ec1.errors import RejectedError

# service-content drops these from every name; we drop them from organisations only, where they are noise.
_LEGAL_SUFFIX = re.compile(r"[ ,]+(?:incorporated|inc|corporation|corp|company|limited|ltd|llc|gmbh|plc)$")
_ORGANISATIONS = ("Company", "Account")
_TRAILING = " .,;:™®©"
# Documents name the same things again and again.
_KNOWN_NAMES = 50_000
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Entity:
    """One entity; the three figures are derived from its mentions whenever it is read."""

    key: str
    name: str
    entity_class: str
    mentions: int
    documents: int
    confidence: float
    """The highest confidence among its mentions, 0 to 1."""
    members: tuple[str, ...] = ()
    """The keys of those that resolution found to be one, its own among them; empty if there is no other."""


@dataclass(frozen=True)
class Rebuild:
    """What became of a rebuilding. `waiting` documents have not been read again yet; then nothing was built."""

    documents: int
    waiting: int = 0
    swapped: bool = False
    reason: str = ""
    entities_before: int = 0
    entities_after: int = 0
    mentions_before: int = 0
    mentions_after: int = 0

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Quote:
    """`before`, `name` and `after` are the sentence; all are empty where it cannot be shown, and `problem` says why.

    `place` is its page or sheet, such as `page 7`, where the document has them, `date` what the document says its date
    is.
    """

    before: str = ""
    name: str = ""
    after: str = ""
    problem: str | None = None
    place: str = ""
    date: str | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A place in a document, with all that an auditor needs to find the sentence again."""

    stream: str
    path: str
    document_id: str
    content_sha256: str
    """The version of the document that the offsets refer to."""
    chunk: int
    start: int
    """Character offsets in the parsed text, `[start, end)`."""
    end: int
    confidence: float
    fingerprint: str
    model: str
    night: str
    """The night in which this version was applied."""
    quote: Quote | None = None
    """The sentence; None where nobody asked for it."""


@dataclass(frozen=True, kw_only=True)
class StoredMention(Evidence):
    """One place where a document names an entity, `entity` by key: one of the members where several are one."""

    name: str
    entity: str = ""


@dataclass(frozen=True, kw_only=True)
class StoredRelation(Evidence):
    """One place where a document states a relation of an entity; the offsets hold both names."""

    relation: str
    subject: str
    object: str


@dataclass(frozen=True)
class GraphStats:
    """What the graph holds: documents that are not deleted, entities and mentions by class, ledger rows by status."""

    documents: int
    entities: dict[str, int]
    mentions: int
    mentions_by_class: dict[str, int]
    statuses: dict[str, int]
    resolved: dict[str, int] | None = None
    """By class, how many things these entities are where resolution took some to be one; None where nobody counted."""

    @property
    def total_entities(self) -> int:
        return sum(self.entities.values())


@lru_cache(maxsize=_KNOWN_NAMES)
def clean_name(name: str) -> str:
    """A name as it is shown and stored: NFC, white space collapsed, half characters and NUL replaced by U+FFFD."""
    if name.isascii() and "\0" not in name:
        return " ".join(name.split())
    return " ".join(unicodedata.normalize("NFC", _SURROGATE.sub("�", name).replace("\0", "�")).split())


def normal_name(name: str, entity_class: str) -> str:
    """The part of an entity's key that comes from its name. Raises RejectedError for a blank name."""
    cleaned = clean_name(name)
    if not cleaned:
        raise RejectedError("an entity needs a name; this one is blank")
    normal = cleaned.casefold().rstrip(_TRAILING)
    if entity_class in _ORGANISATIONS:
        normal = _LEGAL_SUFFIX.sub("", normal).rstrip(_TRAILING)
    return unicodedata.normalize("NFC", normal or cleaned.casefold())


@lru_cache(maxsize=_KNOWN_NAMES)
def entity_key(name: str, entity_class: str) -> str:
    """An entity's identity, such as `Company:acme`. The class is part of it: a Person and a Location of the same
    name are two entities. Raises RejectedError for a blank name."""
    return f"{entity_class}:{normal_name(name, entity_class)}"


def preferred_name(names: Iterable[str]) -> str:
    """The spelling to show among `names` (at least one): mixed case before all capitals or all small letters, then
    the longest, then the first in order. It depends on the set of names only, so the order of documents does not
    matter, and it can be updated with one new name at a time."""
    names = list(names)
    return (
        names[0]
        if len(names) == 1
        else min(names, key=lambda name: (name.isupper() or name.islower(), -len(name), name))
    )

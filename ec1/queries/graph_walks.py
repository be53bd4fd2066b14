"""What an analyst asks beyond one entity: how two hang together, what a night brought, what a document says.

Belongs here: answers that walk over the graph or read a document. Does not: one entity and its neighbours (`graph.py`).
"""

from dataclasses import dataclass

from ec1.documents.ledger import LedgerEntry
from ec1.errors import DeferredError, InputError, RejectedError
from ec1.graph import neighbours as around
from ec1.graph.model import Entity
from ec1.graph.quotes import Quotes
from ec1.graph.reader import GraphReader

MAX_STEPS = 4
_BREADTH = 60
_MOST_ASKED = 400


@dataclass(frozen=True)
class Step:
    """One step of a path: from one entity to the next, how, in how many documents, and one of these."""

    one: str
    other: str
    how: str
    documents: int
    document: str | None


@dataclass(frozen=True)
class NightChanges:
    """What a night brought. `documents` are those that it applied, `entities` those that no document of an earlier
    night names; both cut to a limit, the counts are whole. A document that was read again counts as the night's."""

    night: str
    documents_count: int
    entities_count: int
    documents: tuple[str, ...]
    entities: tuple[tuple[str, str], ...]
    """Key and name."""


@dataclass(frozen=True)
class DocumentPart:
    """A part of a document's text; `next` is where to go on, None at its end."""

    stream: str
    path: str
    title: str
    date: str | None
    page: str
    start: int
    text: str
    next: int | None


def path_between(reader: GraphReader, one: str, other: str, steps: int = MAX_STEPS) -> tuple[Step, ...]:
    """A shortest chain of neighbours between two entities, by key or name; empty if there is none within `steps`, among
    the closest neighbours of each. Raises InputError for an unknown entity or steps outside 1 to 4."""
    if not 1 <= steps <= MAX_STEPS:
        raise InputError(f"steps {steps} is not between 1 and {MAX_STEPS}")
    start, end = reader.find(one)[0], reader.find(other)[0]
    came: dict[str, around.Neighbour | None] = {start.key: None}
    before: dict[str, str] = {}
    border: list[Entity] = [start]
    asked = 0
    for _ in range(steps):
        further: list[str] = []
        for at in border:
            asked += 1
            for near in around.neighbours(reader, at, limit=_BREADTH) if asked <= _MOST_ASKED else ():
                if near.key not in came:
                    came[near.key], before[near.key] = near, at.key
                    further.append(near.key)
        if end.key in came:
            break
        border = [found for key in further for found in reader.find(key)[:1]]
    chain: list[Step] = []
    at_key = end.key
    while (step := came.get(at_key)) is not None:
        from_key = before[at_key]
        chain.append(Step(from_key, at_key, step.how, step.documents, _document_of(reader, from_key, at_key)))
        at_key = from_key
    return tuple(reversed(chain))


def _document_of(reader: GraphReader, one: str, other: str) -> str | None:
    """A document that names both."""
    places = []
    for key in (one, other):
        entity = reader.find(key)[0]
        places.append({each.path for each in reader.mentions_of(*(entity.members or (entity.key,)))})
    return min(places[0] & places[1], default=None)


def what_changed(reader: GraphReader, night: str | None = None, limit: int = 50) -> NightChanges:
    """What a night brought, by default the last. Raises InputError if the graph knows no such night."""
    nights = [row["night"] for row in reader.rows("MATCH (d:Document) RETURN DISTINCT d.applied_night AS night")]
    known = sorted(each for each in nights if each)
    if night is None and known:
        night = known[-1]
    if night is None or night not in known:
        shown = ", ".join(known[-5:]) or "none"
        raise InputError(f"the graph has nothing of night {night}: the last that brought something: {shown}")
    documents = sorted(
        f"{row['stream']}/{row['path']}"
        for row in reader.rows(
            "MATCH (d:Document) WHERE d.applied_night = $night RETURN d.stream AS stream, d.path AS path",
            {"night": night},
        )
    )
    entities = reader.rows(
        "MATCH (d:Document)-[:MENTIONS]->(e:Entity) WITH e, min(d.applied_night) AS first WHERE first = $night "
        "RETURN e.key AS key, e.name AS name ORDER BY key",
        {"night": night},
    )
    named = tuple((row["key"], row["name"]) for row in entities[:limit])
    return NightChanges(night, len(documents), len(entities), tuple(documents[:limit]), named)


def read_document(reader: GraphReader, quotes: Quotes, path: str, start: int = 0, length: int = 8_000) -> DocumentPart:
    """A part of the text of a document that the graph was made from, as it was read then. `path` is as `show` gives it.

    Raises InputError for a document that the graph does not have, or whose file has changed since.
    """
    entry = _entry(reader, path)
    try:
        document = quotes.document(entry.key, entry.content_sha256)
    except (DeferredError, RejectedError) as error:
        raise InputError(str(error)) from None
    if not 0 <= start < len(document.text):
        raise InputError(f"start {start} is outside the document, which has {len(document.text):,} characters")
    end = min(start + length, len(document.text))
    return DocumentPart(
        stream=entry.key.stream,
        path=entry.key.path,
        title=document.title,
        date=document.date,
        page=document.place_at(start),
        start=start,
        text=document.text[start:end],
        next=end if end < len(document.text) else None,
    )


def _entry(reader: GraphReader, path: str) -> LedgerEntry:
    # What a reader may not see is not in the ledger of its graph.
    found = [entry for key, entry in reader.ledger().items() if path in (key.path, f"{key.stream}/{key.path}")]
    if not found or found[0].status == "deleted":
        raise InputError(f"the graph has no document {path!r}: give a path as `show` gives it")
    return found[0]

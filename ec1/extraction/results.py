"""What an extraction found: the record that the outbox keeps and the graph applies.

Belongs here: the data types that extraction and graph share. Does not: how they come about or where they are stored.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from ec1.vocabulary import CONTRACT_CLASSES, ClassName, RelationName

EntityClass = ClassName
"""Any class that a deployment may have, or had when it read a document."""
ENTITY_CLASSES: tuple[EntityClass, ...] = CONTRACT_CLASSES
"""Those of the contract, which a deployment has that says nothing about it."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mention(_Record):
    """One entity at one place of a document's text."""

    name: str
    entity_class: EntityClass
    confidence: float
    """From 0 to 1; `ec1/extraction/naming/grounding.py` says what it is computed from, and whether it is calibrated."""
    chunk: int
    start: int
    """Character offsets in the parsed text, `[start, end)`; `text[start:end]` is what stands there."""
    end: int
    proven: bool = False
    """Whether the text itself proves the class: a legal form, a title, turns of a transcript."""


class Trait(_Record):
    """A fact about an entity that a document states beside its name; its kinds are `KINDS` in
    `ec1.graph.resolution.scoring`."""

    name: str
    entity_class: EntityClass
    kind: str
    value: str


class Relation(_Record):
    """A relation that a document states between two of its entities, `subject` `relation` `object`."""

    relation: RelationName
    subject: str
    subject_class: EntityClass
    object: str
    object_class: EntityClass
    confidence: float
    chunk: int
    start: int
    """Character offsets in the parsed text of what holds both names, `[start, end)`."""
    end: int


class Dropped(_Record):
    """An entity or a relation of the model's answer that was not trusted, and why."""

    name: str
    entity_class: str
    chunk: int
    reason: str
    confidence: float | None = None
    """Of an entity that was dropped for it."""


class Held(_Record):
    """A sentence that was kept from the model, because it addresses whoever reads the document by machine; or that may
    do so, and lost a name."""

    start: int
    """Character offsets in the parsed text, `[start, end)`."""
    end: int
    sentence: str
    """Its beginning."""
    reasons: tuple[str, ...]
    names: tuple[str, ...] = ()
    """What may be names in it and was not found elsewhere in the document: for a person to look at."""
    read: bool = False
    """Whether the model read it all the same, and only these names were not kept."""


class ChunkAnswer(_Record):
    """How the model answered for one chunk."""

    chunk: int
    start: int
    end: int
    finish_reason: str
    model: str
    tier: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    attempts: int = 1
    problem: str | None = None
    """None if the answer was complete, valid JSON; else why it does not count."""


class ExtractionResult(_Record):
    """One unit of work, (content, fingerprint), and its outcome. Names no path: the same bytes count once."""

    content_sha256: str
    stream: str
    fingerprint: str
    status: Literal["complete", "deferred", "rejected"]
    reason: str | None = None
    """Why it is not complete. The mentions of a deferred one are those of the chunks that were answered."""
    blamed: bool = True
    """Of a deferred one: False if the server was at fault, so that the night does not count against the document."""
    failed_readings: int = 0
    """Of a deferred one: how often it was read, this time included, without an answer that counts to each chunk, the
    server not being at fault. Such a chunk is asked about again for another answer than before."""
    characters: int = 0
    calibrated: bool = False
    """Whether the confidences are shares of what was right on gold (`ec1/extraction/naming/confidence.py`)."""
    mentions: tuple[Mention, ...] = ()
    traits: tuple[Trait, ...] = ()
    relations: tuple[Relation, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    held: tuple[Held, ...] = ()
    answers: tuple[ChunkAnswer, ...] = ()

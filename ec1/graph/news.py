"""What a document says, as rows of the graph: its mentions, traits and relations, by the entities they are of.

Belongs here: from an extraction's result to rows. Does not: what they change (`document_plans.py`), and writing them
(`changes.py`).
"""

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ec1.documents.ledger import DocumentKey
from ec1.errors import PermanentError
from ec1.extraction.results import ExtractionResult, Mention
from ec1.graph.model import clean_name, entity_key
from ec1.graph.resolution.owners import owners
from ec1.graph.resolution.profile import PERSON


@dataclass(frozen=True)
class Change:
    """One document's news, whatever its kind."""

    key: DocumentKey
    document_id: str
    content_sha256: str
    fingerprint: str
    outcome: str
    reason: str | None = None
    mentions: tuple[dict[str, Any], ...] = ()
    traits: tuple[dict[str, Any], ...] = ()
    relations: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, key: DocumentKey, document_id: str, result: ExtractionResult) -> "Change":
        """What an extraction says of a document. Raises PermanentError for a result that cannot be meant."""
        # A deferred document may have mentions already: of the chunks that were answered.
        complete = result.status in ("complete", "deferred")
        keys = _Keys(result) if complete else None
        return cls(
            key=key,
            document_id=document_id,
            content_sha256=result.content_sha256,
            fingerprint=result.fingerprint,
            outcome=result.status,
            reason=result.reason,
            mentions=_mention_rows(result, keys) if keys else (),
            traits=_trait_rows(result, keys) if keys else (),
            relations=_relation_rows(result, keys) if keys else (),
        )


class _Keys:
    """The entities that a result's names stand for; short names of people stand for their owners (`owners.py`)."""

    def __init__(self, result: ExtractionResult) -> None:
        people = (each.name for each in result.mentions if each.entity_class == PERSON)
        self._owners = owners(name for each in people if (name := clean_name(each)))

    def __call__(self, name: str, entity_class: str) -> str:
        owner = self._owners.get(clean_name(name)) if entity_class == PERSON else None
        return owner or entity_key(name, entity_class)


def _mention_rows(result: ExtractionResult, key_of: _Keys) -> tuple[dict[str, Any], ...]:
    """The result's mentions, one per entity and place: overlapping chunks may both have found it."""
    models = {answer.chunk: answer.model for answer in result.answers}
    best: dict[tuple[str, int, int], Mention] = {}
    for mention in result.mentions:
        if not math.isfinite(mention.confidence):
            raise PermanentError(f"the result for {result.content_sha256[:12]} has a confidence that is not a number")
        if not clean_name(mention.name):
            continue
        place = (key_of(mention.name, mention.entity_class), mention.start, mention.end)
        other = best.get(place)
        if other is None or _rank(mention) < _rank(other):
            best[place] = mention
    return tuple(
        {
            "entity": place[0],
            "entity_class": mention.entity_class,
            "name": clean_name(mention.name),
            "chunk": mention.chunk,
            "start_char": mention.start,
            "end_char": mention.end,
            "confidence": mention.confidence,
            "fingerprint": result.fingerprint,
            "model": models.get(mention.chunk, ""),
        }
        for place, mention in sorted(best.items(), key=itemgetter(0))
    )


def _rank(mention: Mention) -> tuple[float, int, str]:
    return -mention.confidence, mention.chunk, mention.name


def _trait_rows(result: ExtractionResult, key_of: _Keys) -> tuple[dict[str, Any], ...]:
    """The result's traits of entities that it also mentions."""
    if not result.traits:
        return ()
    mentioned = {key_of(mention.name, mention.entity_class) for mention in result.mentions}
    found = {
        (key, trait.kind, clean_name(trait.value))
        for trait in result.traits
        if (key := key_of(trait.name, trait.entity_class)) in mentioned
    }
    return tuple({"entity": entity, "kind": kind, "value": value} for entity, kind, value in sorted(found))


def _relation_rows(result: ExtractionResult, key_of: _Keys) -> tuple[dict[str, Any], ...]:
    """The result's relations between entities that it also mentions."""
    if not result.relations:
        return ()
    models = {answer.chunk: answer.model for answer in result.answers}
    mentioned = {key_of(mention.name, mention.entity_class) for mention in result.mentions}
    found = []
    for each in result.relations:
        subject, target = key_of(each.subject, each.subject_class), key_of(each.object, each.object_class)
        if {subject, target} <= mentioned:
            found.append(
                {
                    "subject": subject,
                    "object": target,
                    "relation": each.relation,
                    "chunk": each.chunk,
                    "start_char": each.start,
                    "end_char": each.end,
                    "confidence": each.confidence,
                    "fingerprint": result.fingerprint,
                    "model": models.get(each.chunk, ""),
                }
            )
    return tuple(found)

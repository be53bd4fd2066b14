"""Relations that a document states between two of its entities: an option of the deployment.

Belongs here: what a stated one must show before it is trusted. Does not: which relations there are, between which
classes (`ec1.vocabulary`), how the model is asked (`prompt`, `schema`), and trust in the entities themselves
(`grounding`).

A relation is trusted if both its ends were named as entities in the same answer, stand in the same chunk, are still
mentions when the whole document is settled, and have classes that fit. Its confidence is the lower one of its ends,
less what a model may invent: times 0.9 if both stand in one sentence, else times 0.6.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ec1.documents.chunks import Chunk, sentence_at
from ec1.extraction.folding import normalised
from ec1.extraction.naming.grounding import trimmed
from ec1.extraction.results import Dropped, Mention, Relation
from ec1.extraction.schema import Named, Stated
from ec1.vocabulary import CONTRACT, RelationName, Vocabulary

# Raise this when the same answer would give other relations.
RELATIONS_VERSION = 1

_SAME_SENTENCE, _SAME_CHUNK = 0.9, 0.6


@dataclass(frozen=True)
class Located:
    """A stated relation whose ends stand in the chunk, each at the places given."""

    stated: Stated
    relation: RelationName
    chunk: int
    subjects: tuple[Mention, ...]
    objects: tuple[Mention, ...]


def locate(
    stated: Sequence[Stated], named: Sequence[Named], mentions: Sequence[Mention], chunk: Chunk
) -> tuple[list[Located], list[Dropped]]:
    """Find the ends of the relations of one answer among what was grounded of the same answer."""
    entities = {normalised(trimmed(each.name)) for each in named}
    places: dict[str, list[Mention]] = {}
    for mention in mentions:
        places.setdefault(normalised(mention.name), []).append(mention)
    found: list[Located] = []
    dropped: list[Dropped] = []
    for each in dict.fromkeys(stated):
        ends = [normalised(trimmed(name)) for name in (each.subject, each.object)]
        subjects, objects = places.get(ends[0], []), places.get(ends[1], [])
        if not set(ends) <= entities:
            dropped.append(_dropped(each, chunk.index, "relation: an end is not among the entities"))
        elif not subjects or not objects:
            dropped.append(_dropped(each, chunk.index, "relation: an end is not in the text"))
        elif ends[0] == ends[1]:
            dropped.append(_dropped(each, chunk.index, "relation: of a thing with itself"))
        else:
            found.append(Located(each, each.relation, chunk.index, tuple(subjects), tuple(objects)))
    return found, dropped


def settle(
    located: Iterable[Located],
    mentions: Sequence[Mention],
    text: str,
    min_confidence: float,
    vocabulary: Vocabulary = CONTRACT,
) -> tuple[tuple[Relation, ...], list[Dropped]]:
    """Keep the relations whose ends are still mentions of the document, with classes that fit; each evidence once.

    Those below `min_confidence` are dropped too.
    """
    settled = {(mention.start, mention.end): mention for mention in mentions}
    found: dict[tuple[str, str, str, int, int], Relation] = {}
    dropped: list[Dropped] = []
    for each in located:
        pair = _nearest(_still(each.subjects, settled), _still(each.objects, settled))
        if pair is None:
            dropped.append(_dropped(each.stated, each.chunk, "relation: an end was not trusted"))
            continue
        subject, target = pair
        allowed = vocabulary.signatures[each.relation]
        if subject.entity_class not in allowed[0] or target.entity_class not in allowed[1]:
            dropped.append(_dropped(each.stated, each.chunk, "relation: the classes do not fit"))
            continue
        start, end = min(subject.start, target.start), max(subject.end, target.end)
        left, right = sentence_at(text, subject.start, subject.end)
        share = _SAME_SENTENCE if left <= start and end <= right else _SAME_CHUNK
        confidence = round(share * min(subject.confidence, target.confidence), 3)
        if confidence < min_confidence:
            dropped.append(_dropped(each.stated, each.chunk, "relation: low confidence"))
            continue
        relation = Relation(
            relation=each.relation,
            subject=subject.name,
            subject_class=subject.entity_class,
            object=target.name,
            object_class=target.entity_class,
            confidence=confidence,
            chunk=each.chunk,
            start=start,
            end=end,
        )
        key = (each.relation, normalised(subject.name), normalised(target.name), start, end)
        if key not in found or relation.chunk < found[key].chunk:
            found[key] = relation
    return tuple(found[key] for key in sorted(found, key=lambda key: (key[3], key))), dropped


def _still(places: Iterable[Mention], settled: dict[tuple[int, int], Mention]) -> list[Mention]:
    return [settled[place.start, place.end] for place in places if (place.start, place.end) in settled]


def _nearest(subjects: Sequence[Mention], targets: Sequence[Mention]) -> tuple[Mention, Mention] | None:
    pairs = [(subject, target) for subject in subjects for target in targets]
    return min(pairs, key=lambda pair: (abs(pair[0].start - pair[1].start), pair[0].start), default=None)


def _dropped(stated: Stated, chunk: int, reason: str) -> Dropped:
    return Dropped(name=f"{stated.subject} > {stated.object}", entity_class=stated.relation, chunk=chunk, reason=reason)

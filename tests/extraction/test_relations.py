"""Relations between entities: trusted only with both ends in the text, in one answer, of classes that fit."""

import json

import pytest
from jsonschema import Draft202012Validator

from ec1.documents.chunks import Chunk
from ec1.errors import DeferredError
from ec1.extraction import schema
from ec1.extraction.naming import grounding, relations
from ec1.extraction.prompt import PROMPT_NAMES, messages
from ec1.extraction.results import Dropped, Relation
from ec1.extraction.schema import RELATION_SCHEMA, Named, Stated, decode_answer, encode
from ec1.vocabulary import CONTRACT_RELATIONS

TEXT = "Anna Berg of Cobalt Labs flew to Oslo. The Sable account is late.\n\nBen Cole waits. Cobalt Labs is in Bergen."
ENTITIES = [
    Named("Anna Berg", "Person"),
    Named("Cobalt Labs", "Company"),
    Named("Oslo", "Location"),
    Named("Sable account", "Account"),
    Named("Ben Cole", "Person"),
    Named("Bergen", "Location"),
]


def found(
    *stated: tuple[str, str, str], entities: list[Named] = ENTITIES, min_confidence: float = 0.0
) -> tuple[list[Relation], list[Dropped]]:
    """What is kept and dropped of an answer about `TEXT` that states this."""
    chunk = Chunk(0, 0, len(TEXT), TEXT)
    mentions, _ = grounding.ground(entities, chunk, TEXT)
    located, dropped = relations.locate([Stated(*each) for each in stated], entities, mentions, chunk)
    settled, _ = grounding.settle(mentions, 0.0)
    kept, unfit = relations.settle(located, settled, TEXT, min_confidence)
    return list(kept), dropped + unfit


def test_a_stated_relation_carries_its_evidence() -> None:
    ((relation,), dropped) = found(("Anna Berg", "works_at", "Cobalt Labs"))
    assert dropped == []
    assert (relation.subject, relation.relation, relation.object) == ("Anna Berg", "works_at", "Cobalt Labs")
    assert (relation.subject_class, relation.object_class, relation.chunk) == ("Person", "Company", 0)
    assert TEXT[relation.start : relation.end] == "Anna Berg of Cobalt Labs"
    assert 0.5 < relation.confidence < 0.9


def test_the_nearest_places_are_the_evidence_and_one_sentence_is_surer_than_two() -> None:
    (near,), _ = found(("Cobalt Labs", "located_in", "Bergen"))
    assert TEXT[near.start : near.end] == "Cobalt Labs is in Bergen"
    (far,), _ = found(("Ben Cole", "works_at", "Cobalt Labs"))
    assert far.confidence < near.confidence


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        (("Anna Berg", "works_at", "Oslo"), "the classes do not fit"),
        (("Cobalt Labs", "works_at", "Anna Berg"), "the classes do not fit"),
        (("Anna Berg", "owns_account", "Cobalt Labs"), "the classes do not fit"),
        (("Anna Berg", "works_at", "Umoja Textiles"), "an end is not among the entities"),
        (("Somebody", "works_at", "Cobalt Labs"), "an end is not among the entities"),
        (("Cobalt Labs", "part_of", "Cobalt Labs"), "of a thing with itself"),
    ],
)
def test_what_does_not_hold_is_dropped_with_a_reason(stated: tuple[str, str, str], reason: str) -> None:
    kept, (dropped,) = found(stated)
    assert kept == [] and dropped.reason == f"relation: {reason}"


def test_an_end_that_is_only_in_the_prompt_is_not_in_the_text() -> None:
    entities = [*ENTITIES, Named("Umoja Textiles", "Company")]
    assert "Umoja Textiles" in PROMPT_NAMES
    kept, (dropped,) = found(("Anna Berg", "works_at", "Umoja Textiles"), entities=entities)
    assert kept == [] and dropped.reason == "relation: an end is not in the text"


def test_a_doubtful_relation_is_dropped() -> None:
    kept, (dropped,) = found(("Ben Cole", "works_at", "Cobalt Labs"), min_confidence=0.5)
    assert kept == [] and dropped.reason == "relation: low confidence"


def test_saying_it_twice_is_one_relation() -> None:
    kept, _ = found(("Anna Berg", "works_at", "Cobalt Labs"), ("Anna Berg", "works_at", "Cobalt Labs"))
    assert len(kept) == 1


def test_the_schema_of_relations_is_bounded() -> None:
    Draft202012Validator.check_schema(RELATION_SCHEMA)
    items = RELATION_SCHEMA["properties"]["relations"]
    assert items["maxItems"] == schema.MAX_RELATIONS
    many = [Stated("Anna Berg", "works_at", "Cobalt Labs")] * (schema.MAX_RELATIONS + 1)
    with pytest.raises(DeferredError, match="not of our schema"):
        decode_answer(encode(ENTITIES, many), "stop", relations=True)
    with pytest.raises(DeferredError, match="not of our schema"):
        decode_answer(encode(ENTITIES), "stop", relations=True)
    with pytest.raises(DeferredError, match="not of our schema"):
        decode_answer(encode(ENTITIES, []), "stop", relations=False)


def test_the_examples_of_the_prompt_are_answers_of_the_schema_and_state_what_may_be() -> None:
    asked = messages("x", "meeting", relations=True)
    answers = [json.loads(each["content"]) for each in asked if each["role"] == "assistant"]
    stated = 0
    for answer in answers:
        Draft202012Validator(RELATION_SCHEMA).validate(answer)
        classes = {each["name"]: each["class"] for each in answer["entities"]}
        for each in answer["relations"]:
            allowed = CONTRACT_RELATIONS[each["relation"]]
            assert classes[each["subject"]] in allowed[0] and classes[each["object"]] in allowed[1]
            stated += 1
    assert stated > 5
    assert messages("y", "meeting", relations=True)[:-1] == asked[:-1]

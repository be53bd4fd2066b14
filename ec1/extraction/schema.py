"""The shape of an answer: one bounded JSON schema for all requests, and the check that an answer has it.

The server turns the schema into a grammar, so its bounds bound the longest answer. It leaves no room for white space
only where the server is told so (`ec1/gpu/engine.py` does).
"""

import json
import re
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from ec1.errors import DeferredError
from ec1.vocabulary import CONTRACT, Vocabulary

MAX_ENTITIES = 24
MAX_NAME_CHARACTERS = 160
MAX_RELATIONS = 16
FINISH_UNSTATED = "unstated"
"""The finish reason of a server that gives none: then only the answer itself can show that it is whole."""
# No answer under the schema is longer, escapes and blanks included; checking a longer one would hold up all others.
_MAX_ANSWER_CHARACTERS = 2**16


@lru_cache(maxsize=16)
def answer_schema(relations: bool, vocabulary: Vocabulary = CONTRACT) -> dict[str, Any]:
    """The one schema object of a deployment's requests; with `relations`, for what is stated between entities too."""
    properties: dict[str, Any] = {
        "entities": {
            "type": "array",
            "maxItems": MAX_ENTITIES,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 2, "maxLength": MAX_NAME_CHARACTERS},
                    "class": {"type": "string", "enum": list(vocabulary.classes)},
                },
                "required": ["name", "class"],
                "additionalProperties": False,
            },
        }
    }
    if relations:
        properties["relations"] = {
            "type": "array",
            "maxItems": MAX_RELATIONS,
            "items": {
                "type": "object",
                "properties": {
                    "subject": {"type": "string", "minLength": 2, "maxLength": MAX_NAME_CHARACTERS},
                    "relation": {"type": "string", "enum": list(vocabulary.relations)},
                    "object": {"type": "string", "minLength": 2, "maxLength": MAX_NAME_CHARACTERS},
                },
                "required": ["subject", "relation", "object"],
                "additionalProperties": False,
            },
        }
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


@lru_cache(maxsize=16)
def _validator(relations: bool, vocabulary: Vocabulary) -> Draft202012Validator:
    return Draft202012Validator(answer_schema(relations, vocabulary))


ENTITY_SCHEMA = answer_schema(relations=False)
RELATION_SCHEMA = answer_schema(relations=True)
"""Those of the contract's classes."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"


@dataclass(frozen=True)
class Named:
    """One entity as the model named it, not yet trusted. `confidence`: raw, of one whose class and evidence were
    weighed already (`confidence.weigh`)."""

    name: str
    entity_class: str
    confidence: float | None = None


@dataclass(frozen=True)
class Stated:
    """One relation as the model stated it, not yet trusted."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True)
class ParsedAnswer:
    """What one answer holds; `relations` is empty where none were asked for."""

    entities: list[Named]
    relations: list[Stated]


def encodable(text: str) -> str:
    """`"Clara\\ud83d"` is JSON and no text: half a character becomes U+FFFD, which no document's text matches."""
    return _SURROGATE.sub("\ufffd", text)


def _encodable(record: dict[str, Any]) -> dict[str, Any]:
    return {encodable(key): encodable(each) if isinstance(each, str) else each for key, each in record.items()}


def encode(entities: list[Named], relations: list[Stated] | None = None) -> str:
    """An answer as the grammar writes it; the examples of the prompt must look the same."""
    value: dict[str, Any] = {"entities": [{"name": each.name, "class": each.entity_class} for each in entities]}
    if relations is not None:
        value["relations"] = [asdict(each) for each in relations]
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def decode(content: str, finish_reason: str) -> list[Named]:
    """The entities of a complete answer. Raises DeferredError with the reason why an answer does not count."""
    return decode_answer(content, finish_reason, relations=False).entities


def decode_answer(
    content: str, finish_reason: str, *, relations: bool, vocabulary: Vocabulary = CONTRACT
) -> ParsedAnswer:
    """Read a complete answer. Raises DeferredError with the reason why an answer does not count."""
    value = whole_answer(content, finish_reason)
    if problem := best_match(_validator(relations, vocabulary).iter_errors(value)):
        raise DeferredError(f"the answer is not of our schema: {problem.json_path}: {problem.message[:120]}")
    return ParsedAnswer(
        [Named(each["name"], each["class"]) for each in value["entities"]],
        [Stated(each["subject"], each["relation"], each["object"]) for each in value.get("relations", ())],
    )


def whole_answer(content: str, finish_reason: str) -> Any:
    """The JSON value of an answer that was not cut off. Raises DeferredError with the reason why it does not count."""
    if finish_reason not in ("stop", FINISH_UNSTATED):
        raise DeferredError(f"the answer was not finished: {finish_reason}")
    answer = content.rpartition(_THINK_CLOSE)[2]
    if answer.lstrip().startswith(_THINK_OPEN):
        raise DeferredError("the answer was cut off while the model was thinking")
    if not answer.strip():
        raise DeferredError("the answer was empty")
    if len(answer) > _MAX_ANSWER_CHARACTERS:
        raise DeferredError(f"the answer is not of our schema: {len(answer):,} characters")
    try:
        return json.loads(answer, object_hook=_encodable)
    except ValueError as error:
        raise DeferredError(f"the answer is not JSON: {error}") from None
    except RecursionError:
        raise DeferredError("the answer is not JSON of our schema: too deeply nested") from None

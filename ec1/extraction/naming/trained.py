"""What a trained extractor is asked, and what it answers: no examples, a compact list, a class for each name.

Belongs here: the prompt of a trained extractor, the form of its answer, how it decides on a span that its answer left
out, and the answer that a chunk with known entities ought to get. Does not: which adapter is served
(`ec1.adapters.extractor`), and how a model without one is asked (`prompt`, `decision`).

The answer lists, in the order of the text, each candidate that the text's structure proposes (`candidates`) and each
name beyond them, with its class, or `none` for what is not a name: the small model learns to look at every one of them
instead of stopping after the first.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from ec1.errors import DeferredError
from ec1.extraction.naming.candidates import Candidate, propose
from ec1.extraction.naming.filters import objection
from ec1.extraction.naming.grounding import places_of
from ec1.extraction.prompt import escape
from ec1.extraction.results import ENTITY_CLASSES, EntityClass
from ec1.extraction.schema import MAX_NAME_CHARACTERS, Named, encodable, whole_answer

# Raise this when an adapter that was trained before would be asked or read in another way.
TRAINED_VERSION = 1
SHIPPED = Path(__file__).parents[1] / "shipped"
"""The adapter that comes with EC1, for the embedded model; `make extractor` trains it again."""
NONE = "none"
MAX_LISTED = 40
"""Most names and candidates of one answer; a chunk with more is halved."""

# Short, since it is a part of every row of a training; what it means is learnt.
_SYSTEM = "Names and their classes."
SCHEMA: dict[str, Any] = {
    "type": "array",
    "maxItems": MAX_LISTED,
    "items": {
        "type": "array",
        "prefixItems": [
            {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARACTERS},
            {"type": "string", "enum": [*ENTITY_CLASSES, NONE]},
        ],
        "items": False,
        "minItems": 2,
    },
}
"""The grammar of an answer: `[["Maria Alvarez","Person"],["However","none"]]`."""
LABELS: dict[EntityClass | None, str] = {**{each: each for each in ENTITY_CLASSES}, None: NONE}
"""The word that stands for each class in an answer, and the one for no class, in the order of `decision.LABELS`."""
REPETITION = "repetition"
"""The finish reason of an answer that vLLM ended because it went round in circles."""
_ITEM = re.compile(r'\["((?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4}){1,200})","(\w+)"\]')
_VALIDATOR = Draft202012Validator(SCHEMA)


def messages(chunk_text: str) -> list[dict[str, str]]:
    """The messages that ask for the entities of one chunk."""
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": escape(chunk_text)}]


def answer_of(text: str, gold: Mapping[str, str]) -> str:
    """The answer that a chunk's text ought to get; `gold` is the class of each name as it stands in the text.

    A name in `gold` that is not a candidate is listed, too.
    """
    return json.dumps(_listed(text, gold), separators=(",", ":"), ensure_ascii=False)


def decode(content: str, finish_reason: str) -> tuple[list[Named], int]:
    """The entities of a complete answer, and how much it lists. Raises DeferredError with the reason why an answer does
    not count.

    An answer that was ended in the middle counts if it had begun to list the same again: small models go round.
    """
    listed = dict.fromkeys(_items(content, finish_reason))
    return [Named(encodable(name), kind) for name, kind in listed if kind != NONE], len(listed)


def left_out(content: str, finish_reason: str, text: str, spans: Iterable[Candidate], start: int) -> list[Candidate]:
    """The spans of a chunk that its answer says nothing about: no name that it lists, as whatever, shares a character
    with them. `start` is where the chunk's text begins in the text that the spans are of.

    What a filter would refuse is left out, too. An answer that does not count says nothing about any span.
    """
    try:
        listed = [name for name, _ in _items(content, finish_reason)] if content else []
    except DeferredError:
        listed = []
    taken = [place for name in dict.fromkeys(listed) for place in places_of(name, text)]
    free = []
    for each in spans:
        first, last = each.start - start, each.end - start
        if any(first < end and begin < last for begin, end in taken):
            continue
        if not objection(text, [(first, last)], ENTITY_CLASSES[0]):
            free.append(each)
    return free


def opening(name: str) -> str:
    """The beginning of an answer that has come to the class of this name: the next word is the model's decision."""
    return f'[[{escape(json.dumps(" ".join(name.split()), ensure_ascii=False))},"'


def _items(content: str, finish_reason: str) -> Sequence[tuple[str, str]]:
    """What an answer lists: names and classes. Raises DeferredError with the reason why it does not count."""
    if finish_reason in (REPETITION, "length"):
        listed = [(json.loads(f'"{name}"'), entity_class) for name, entity_class in _ITEM.findall(content)]
        # vLLM ends a circle within its second round, mostly before an item of it is whole.
        if not listed or (finish_reason == "length" and listed[-1] not in listed[:-1]):
            raise DeferredError(f"the answer was not finished: {finish_reason}")
    else:
        value = whole_answer(content, finish_reason)
        if problem := best_match(_VALIDATOR.iter_errors(value)):
            raise DeferredError(f"the answer is not of our schema: {problem.json_path}: {problem.message[:120]}")
        listed = [(name, entity_class) for name, entity_class in value]
    return listed


def _listed(text: str, gold: Mapping[str, str]) -> list[list[str]]:
    """Name and class of what is to be listed, each spelling once, in the order of the text.

    Of candidates that overlap, those are listed that are names, else only the longest, as none.
    """
    listed: dict[str, tuple[int, str]] = {}
    for run in _runs(text):
        names = [" ".join(text[start:end].split()) for start, end in run]
        known = [(start, name) for (start, _), name in zip(run, names, strict=True) if name in gold]
        if not known and any(names[0] in name for name in gold):
            # A part of a name that stands elsewhere as a whole.
            continue
        for start, name in known or [(run[0][0], names[0])]:
            listed.setdefault(name, (start, gold.get(name, NONE)))
    for name, entity_class in gold.items():
        listed.setdefault(name, (max(0, text.find(name)), entity_class))
    ordered = sorted(listed.items(), key=lambda item: (item[1][0], -len(item[0])))
    return [[name, entity_class] for name, (_, entity_class) in ordered if len(name) <= MAX_NAME_CHARACTERS]


def _runs(text: str) -> list[list[tuple[int, int]]]:
    """Candidates that no filter objects to, in runs of those that overlap, the longest of a run first."""
    runs: list[list[tuple[int, int]]] = []
    reach = -1
    places = [(each.start, each.end) for each in propose(text)]
    for start, end in sorted(places, key=lambda place: (place[0], -place[1])):
        if objection(text, [(start, end)], ENTITY_CLASSES[0]):
            continue
        if start >= reach:
            runs.append([])
        runs[-1].append((start, end))
        reach = max(reach, end)
    return [sorted(run, key=lambda place: (place[0] - place[1], place[0])) for run in runs]

"""What a document says of a person beside the name, which helps to tell whether two names are one person: the e-mail.

Belongs here: finding such facts in the text around mentions that are already trusted. Does not: what they are worth
(`ec1/graph/resolution/scoring.py`). No model is asked, so these are not part of an extractor's fingerprint: a result
without them only says less.
"""

import re
from collections.abc import Sequence

from ec1.extraction.folding import normalised, words
from ec1.extraction.results import Mention, Trait

_EMAIL = re.compile(r"(?<![\w.+-])([A-Za-z0-9][\w.+-]{0,63})@((?:[A-Za-z0-9-]{1,63}\.)+[A-Za-z]{2,24})(?![\w-])")
# `Jane Smith <jane@…>`, `Jane Smith (e-mail: jane@…)`, `Jane Smith, jane@…`.
_JOINT = re.compile(r"[\s,;:(<\[|*–-]{1,6}(?:(?:e-?mail|mailto)\s*:?\s*)?[<(\[]?", re.IGNORECASE)
_SHARED = words(
    """info office contact sales support admin hello mail team help service billing accounts noreply no-reply post
    enquiries jobs press news marketing reception orders"""
)
_REACH = 20


def traits_of(text: str, mentions: Sequence[Mention]) -> list[Trait]:
    """The facts about the persons among `mentions` of one document, each once, sorted."""
    people = [mention for mention in mentions if mention.entity_class == "Person"]
    found = set()
    if people and "@" in text:
        for match in _EMAIL.finditer(text):
            if match[1].lower() in _SHARED:
                continue
            owner = _before(text, match.start(), people) or _named_in(match[1], people)
            if owner is not None:
                found.add(Trait(name=owner, entity_class="Person", kind="email", value=match[0].lower()))
    return sorted(found, key=lambda trait: (trait.name, trait.value))


def _before(text: str, start: int, people: Sequence[Mention]) -> str | None:
    """The person whose name stands directly before the address."""
    for mention in people:
        if 0 < start - mention.end <= _REACH and _JOINT.fullmatch(text[mention.end : start]):
            return mention.name
    return None


def _named_in(local: str, people: Sequence[Mention]) -> str | None:
    """The one person whose full name the address spells, such as `jane.smith` or `jsmith`."""
    spelt = re.sub(r"[^a-z]", "", local.lower())
    owners = {}
    for mention in people:
        parts = [re.sub(r"[^a-z]", "", part) for part in normalised(mention.name).split()]
        if len(parts) > 1 and parts[0] and parts[-1]:
            first, last = parts[0], parts[-1]
            if spelt in (first + last, last + first, first[0] + last, last + first[0]):
                owners[normalised(mention.name)] = mention.name
    return next(iter(owners.values())) if len(owners) == 1 else None

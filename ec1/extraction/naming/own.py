"""What a text says of a name's class where a deployment has classes of its own.

Belongs here: evidence for own classes, and how it stands to the evidence for the contract's. Does not: that evidence
itself (`evidence`), the filters (`filters`), or what an own class is (`ec1.vocabulary`).

An own class is proven by its words (`MV Aurora`, `the vessel Aurora`) and by the filters whose finds it keeps (the name
of a law is a statute where statutes are a class). Nothing else is known of it, so what would prove one of the
contract's classes (`Bank of …`) does not take a name away from the own class that the model gave it.
"""

import re
from collections.abc import Mapping, Sequence

from ec1.extraction.naming.evidence import likely_class, proven_class
from ec1.extraction.naming.filters import objection
from ec1.extraction.results import EntityClass
from ec1.vocabulary import Kept, Vocabulary

# Raise this when the same text would prove another own class.
OWN_VERSION = 1

_FOUND: Mapping[str, Kept] = {
    "date": "dates",
    "number": "numbers",
    "law": "laws",
    "path": "paths",
    "code identifier": "code",
    "role": "roles",
}
"""The groups of filters by the reason that each gives."""
_WORD_BEFORE = re.compile(r"(\S+)[ \t\n\xa0]$")


def own_class(text: str, start: int, end: int, vocabulary: Vocabulary) -> EntityClass | None:
    """The own class that is proven for the name at `[start, end)`, or None; None, too, if two are."""
    if not vocabulary.own:
        return None
    words = text[start:end].split()
    proven = _named_by(vocabulary, (words[0], words[-1]) if len(words) > 1 else ())
    before = _WORD_BEFORE.search(text[max(0, start - 40) : start])
    # `the vessel Blue Line Ltd chartered`: what the name itself says counts more than the word before it.
    if not proven and before is not None and proven_class(text, start, end) is None:
        proven = _named_by(vocabulary, before.groups())
    if not proven and vocabulary.all_kept:
        group = _FOUND.get(objection(text, [(start, end)], "") or "")
        proven = [own.name for own in vocabulary.own if group in own.keeps]
    return proven[0] if len(proven) == 1 else None


def _named_by(vocabulary: Vocabulary, words: Sequence[str]) -> list[EntityClass]:
    plain = {_plain(word) for word in words}
    return [own.name for own in vocabulary.own if not plain.isdisjoint(map(_plain, own.words))]


def proof_of(text: str, start: int, end: int, vocabulary: Vocabulary) -> EntityClass | None:
    """The class of the deployment that the text proves for the name at `[start, end)`, or None."""
    own = own_class(text, start, end, vocabulary)
    return own if own is not None else _there(proven_class(text, start, end), vocabulary)


def cue_of(text: str, start: int, end: int, vocabulary: Vocabulary) -> EntityClass | None:
    """The class of the deployment that the words beside the name at `[start, end)` speak for, or None."""
    return _there(likely_class(text, start, end), vocabulary)


def _there(entity_class: EntityClass | None, vocabulary: Vocabulary) -> EntityClass | None:
    return entity_class if entity_class in vocabulary.classes else None


def _plain(word: str) -> str:
    return word.strip("\"'“”‘’()[]{}*_.,;:").casefold()

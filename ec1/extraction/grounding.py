"""Trust: which entities of an answer really stand in the text, where, as what, and how sure that is.

Belongs here: locating names, agreement between the chunks of one document, confidence. Does not: what is no name at all
(`filters`), or how the model is asked. Nothing that cannot be located is trusted.

Confidence, from 0 to 1, is computed from the text and not asked of the model. A name that stands in the text: 0.6. It
is spelled exactly so: +0.1. The text proves the class that the model gave: +0.25; it proves another, which is taken
instead: +0.15. Each further chunk in which the name was found adds a third of what is missing to 1. Where chunks gave
different classes, the result is multiplied by the share of the class that won (see `_shares`).
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ec1.documents.chunks import Chunk
from ec1.extraction.filters import LEGAL_SUFFIX, Place, objection, proven_class
from ec1.extraction.folding import Folded, normalised
from ec1.extraction.prompt import PROMPT_NAMES
from ec1.extraction.results import ENTITY_CLASSES, Dropped, EntityClass, Mention
from ec1.extraction.schema import Named

# Raise this when the same answer would give other mentions.
GROUNDING_VERSION = 1

# The least confidence of a mention whose class the text proves, before chunks are compared.
_PROVEN = 0.75
# How many characters on each side of a chunk the filters may look at.
_CONTEXT = 2000
_ENDS = " \t\n\"'“”‘’`*_,;:[]{}<>|#=-–—"
_ABBREVIATED = re.compile(rf"(?:\b\w|\b{LEGAL_SUFFIX}|\b[js]r|\bst)\.$", re.IGNORECASE)
_LEAKS = frozenset(normalised(name) for name in PROMPT_NAMES)


def ground(named: Sequence[Named], chunk: Chunk, text: str) -> tuple[list[Mention], list[Dropped]]:
    """Locate what the model named in one chunk of `text`, and filter it.

    Every place in the chunk where an accepted name stands is a mention, with offsets in `text`; a place inside a longer
    accepted name is not one of the shorter name. What is not accepted is returned with the reason.
    """
    folded = Folded.of(chunk.text)
    first = max(0, chunk.start - _CONTEXT)
    context, shift = text[first : chunk.end + _CONTEXT], chunk.start - first
    dropped: list[Dropped] = []
    taken: dict[Place, tuple[Named, bool]] = {}
    for each in sorted(dict.fromkeys(named), key=lambda each: -len(each.name)):
        found, exact = _locate(each.name, chunk.text, folded)
        places = [(start + shift, end + shift) for start, end in found]
        if not places:
            reason: str | None = "only in the prompt" if normalised(each.name) in _LEAKS else "not in the text"
        elif not (reason := objection(context, places, each.entity_class)):
            free = [place for place in places if not any(_inside(place, longer) for longer in taken)]
            if not free:
                reason = "part of a longer name"
            for place in free:
                taken.setdefault(place, (each, exact))
        if reason:
            dropped.append(Dropped(name=each.name, entity_class=each.entity_class, chunk=chunk.index, reason=reason))
    mentions = []
    for (start, end), (each, exact) in sorted(taken.items()):
        proof = proven_class(context, start, end)
        confidence = 0.6 + 0.1 * exact
        if proof:
            confidence += 0.25 if proof == each.entity_class else 0.15
        mentions.append(
            Mention(
                name=" ".join(context[start:end].split()),
                entity_class=proof or _class(each.entity_class),
                confidence=round(confidence, 3),
                chunk=chunk.index,
                start=start + first,
                end=end + first,
            )
        )
    return mentions, dropped


def settle(mentions: Sequence[Mention], min_confidence: float) -> tuple[list[Mention], list[Dropped]]:
    """Make one document's mentions agree: one mention for each place, one class for each name, confidence over all
    chunks. Returns the mentions in the order of the text, and those below `min_confidence` as dropped."""
    places: dict[Place, Mention] = {}
    reach = -1
    for each in sorted(mentions, key=lambda each: (each.start, -each.end, -each.confidence)):
        # Chunks overlap: the same place may come twice, and a name cut off by a chunk's border lies inside the whole.
        if each.end > reach:
            places[each.start, each.end] = each
            reach = each.end
    shares = _shares(places.values())
    chunks: dict[str, set[int]] = defaultdict(set)
    for each in places.values():
        chunks[normalised(each.name)].add(each.chunk)
    kept: list[Mention] = []
    dropped: list[Dropped] = []
    for each in places.values():
        name = normalised(each.name)
        entity_class, share = shares[name]
        doubt = (1 - each.confidence) * (2 / 3) ** (len(chunks[name]) - 1)
        confidence = round((1 - doubt) * share, 3)
        if confidence < min_confidence:
            dropped.append(
                Dropped(name=each.name, entity_class=entity_class, chunk=each.chunk, reason="low confidence")
            )
        else:
            kept.append(each.model_copy(update={"entity_class": entity_class, "confidence": confidence}))
    return kept, dropped


def _shares(mentions: Iterable[Mention]) -> dict[str, tuple[EntityClass, float]]:
    """The class of each name in one document, and the share of the votes for it.

    A class that the text proves somewhere outvotes all that it does not prove. A single word that nothing is proven
    about takes the class of the full name that begins with it, or of the person whose name ends with it.
    """
    votes: dict[str, Counter[EntityClass]] = defaultdict(Counter)
    proven: dict[str, Counter[EntityClass]] = defaultdict(Counter)
    for each in mentions:
        weight = round(1000 * each.confidence)
        votes[normalised(each.name)][each.entity_class] += weight
        if each.confidence >= _PROVEN:
            proven[normalised(each.name)][each.entity_class] += weight
    shares = {}
    for name, counted in votes.items():
        deciding = proven.get(name, counted)
        winner, weight = deciding.most_common(1)[0]
        shares[name] = (winner, weight / deciding.total())
    full: dict[str, set[EntityClass]] = defaultdict(set)
    for name, (entity_class, _) in shares.items():
        words = name.split()
        if len(words) > 1:
            full[words[0]].add(entity_class)
            if entity_class == "Person":
                full[words[-1]].add(entity_class)
    for name in shares.keys() - proven.keys():
        if len(full.get(name, ())) == 1:
            shares[name] = (next(iter(full[name])), shares[name][1])
    return shares


def _class(name: str) -> EntityClass:
    return next(each for each in ENTITY_CLASSES if each == name)


def _inside(place: Place, other: Place) -> bool:
    return place != other and other[0] <= place[0] and place[1] <= other[1]


def _locate(name: str, text: str, folded: Folded) -> tuple[list[Place], bool]:
    """All places of a name as whole words, and whether it stands there exactly as it was spelled."""
    name = _trimmed(name)
    for candidate in dict.fromkeys((name, name.rstrip("!?"), name.removesuffix("'s").removesuffix("’s"))):
        if places := list(_occurrences(candidate, text)):
            return [_without_genitive(text, place) for place in places], True
        tolerant = [
            (folded.origin[start], _end_of_letter(text, folded.origin[end - 1]))
            for start, end in _occurrences(Folded.of(candidate).text.strip(), folded.text)
        ]
        if tolerant:
            return [_without_genitive(text, place) for place in tolerant], False
    return [], False


def _trimmed(name: str) -> str:
    name = " ".join(name.split()).strip(_ENDS)
    if name.startswith("(") or name.count("(") != name.count(")"):
        name = name.strip("()")
    if not _ABBREVIATED.search(name):
        name = name.rstrip(".")
    return re.sub(r"^(?:the|a|an)\s+(?=\S)", "", name)


def _occurrences(name: str, text: str) -> Iterator[Place]:
    start = text.find(name) if name else -1
    while start >= 0:
        end = start + len(name)
        if _is_border(text[start - 1 : start] if start else "", name[0]) and _is_border(text[end : end + 1], name[-1]):
            yield start, end
        start = text.find(name, start + 1)


def _is_border(outside: str, inside: str) -> bool:
    """True if a word may begin or end between these characters. Scripts without blanks have no such borders."""
    if not outside or unicodedata.category(inside) == "Lo":
        return True
    return not (_in_word(outside) and _in_word(inside))


def _in_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _end_of_letter(text: str, place: int) -> int:
    """The end of the letter at `place`, with its combining marks."""
    end = place + 1
    while end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return end


def _without_genitive(text: str, place: Place) -> Place:
    """A place without the ending of "Alvarez's report"."""
    start, end = place
    if text[end - 2 : end] in ("'s", "’s") and re.match(r"\s+[a-z]", text[end : end + 8]):
        return start, end - 2
    return place

"""Trust: which entities of an answer really stand in the text, where, as what, and how sure that is.

Belongs here: locating names, agreement between the chunks of one document. Does not: what is not a name at all
(`filters`), what the text says about a class (`evidence`), or how the model is asked. Nothing that cannot be located is
trusted.

The confidence computed here is of the text alone, from 0 to 1, and not calibrated. A name that stands in the text: 0.6;
spelled exactly so: +0.05. Its class is proven by the text: +0.3 if it is the class that the model gave, +0.2 if it is
another, which is taken instead. No proof, but a cue beside it: +0.1 if both agree. Neither, and the name is a word
whose capital any word would have there: -0.1. Each further chunk in which the name was found takes away a third of what
is missing to 1. Where chunks gave different classes, the result is multiplied by the winner's share of the votes.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from ec1.documents.chunks import Chunk
from ec1.extraction.folding import Folded, normalised
from ec1.extraction.naming.evidence import LEGAL_SUFFIX, without_title
from ec1.extraction.naming.filters import Place, is_bare_word, objection
from ec1.extraction.naming.own import cue_of, own_class, proof_of
from ec1.extraction.prompt import prompt_names
from ec1.extraction.results import Dropped, EntityClass, Mention
from ec1.extraction.schema import MAX_NAME_CHARACTERS, Named
from ec1.extraction.wordlists import word_list
from ec1.vocabulary import CONTRACT, Vocabulary

# Raise this when the same answer would give other mentions.
GROUNDING_VERSION = 7

# How many characters on each side of a chunk the filters may look at.
_CONTEXT = 5000
_ENDS = " \t\n\"'“”‘’`*_,;:[]{}<>|#=-–—"
_ABBREVIATED = re.compile(rf"(?:\b\w|\b{LEGAL_SUFFIX}|\b[js]r|\bst)\.$", re.IGNORECASE)
# Marks of kana that are letters of their own to Unicode.
_HALF_WIDTH_MARKS = "ﾞﾟ"
# Words that stay small inside a name.
_LINKS = word_list("links")
# Small words that stand before a name, and are not part of it.
_BEFORE_NAMES = frozenset().union(*map(word_list, ("stop", "kin", "roles", "person_roles", "speech_verbs")))


def ground(
    named: Sequence[Named], chunk: Chunk, text: str, vocabulary: Vocabulary = CONTRACT
) -> tuple[list[Mention], list[Dropped]]:
    """Locate what the model named in one chunk of `text`, and filter it.

    Every place in the chunk where an accepted name stands is a mention, with offsets in `text`. A place inside a longer
    accepted name counts only if it may be a separate entity (`_stands_alone`). What is not accepted is returned with
    the reason.
    """
    folded = Folded.of(chunk.text)
    first = max(0, chunk.start - _CONTEXT)
    context, shift = text[first : chunk.end + _CONTEXT], chunk.start - first
    dropped: list[Dropped] = []
    taken: dict[Place, tuple[Named, bool]] = {}
    for each in sorted(dict.fromkeys(named), key=lambda each: -len(each.name)):
        long = len(each.name) > MAX_NAME_CHARACTERS
        found, exact = ([], False) if long else _locate(each.name, chunk.text, folded)
        places = [(start + shift, end + shift) for start, end in found]
        if places and (own := own_class(context, *places[0], vocabulary)) is not None:
            each = replace(each, entity_class=own)
        if not places:
            leaked = normalised(each.name) in _leaks(vocabulary)
            reason: str | None = "only in the prompt" if leaked else "not in the text"
            reason = "too long" if long else reason
        elif not (reason := objection(context, places, each.entity_class, vocabulary.kept(each.entity_class))):
            free = [
                place
                for place in places
                if all(
                    _stands_alone(
                        each.entity_class,
                        other.entity_class,
                        context[longer[0] : place[0]],
                        context[place[1] : longer[1]],
                    )
                    for longer, (other, _) in taken.items()
                    if _inside(place, longer)
                )
            ]
            if not free:
                reason = "part of a longer name"
            for place in free:
                taken.setdefault(place, (each, exact))
        if reason:
            dropped.append(
                Dropped(
                    name=each.name[:MAX_NAME_CHARACTERS],
                    entity_class=each.entity_class,
                    chunk=chunk.index,
                    reason=reason,
                )
            )
    mentions = []
    for (start, end), (each, exact) in sorted(taken.items()):
        if each.entity_class in vocabulary.by_name:
            # Nothing but its own words and filters speaks for or against an own class.
            proof = cue = own_class(context, start, end, vocabulary)
        else:
            proof = proof_of(context, start, end, vocabulary)
            cue = proof or cue_of(context, start, end, vocabulary)
        confidence = 0.6 + 0.05 * exact
        if each.confidence is not None:
            cue, confidence = None, each.confidence
        elif not cue and is_bare_word(context, [place for place, (other, _) in taken.items() if other == each]):
            confidence -= 0.1
        if each.confidence is not None:
            pass
        elif proof:
            confidence += 0.3 if proof == each.entity_class else 0.2
        elif cue == each.entity_class:
            confidence += 0.1
        mentions.append(
            Mention(
                name=" ".join(context[start:end].split()),
                entity_class=cue or each.entity_class,
                confidence=round(confidence, 3),
                chunk=chunk.index,
                start=start + first,
                end=end + first,
                proven=proof is not None,
            )
        )
    return mentions, dropped


@lru_cache(maxsize=16)
def _leaks(vocabulary: Vocabulary) -> frozenset[str]:
    return frozenset(normalised(name) for name in prompt_names(vocabulary))


def _stands_alone(entity_class: str, outer_class: str, before: str, after: str) -> bool:
    """Whether a name inside a longer one is a separate entity, as `Lisbon` is in `University of Lisbon`, and
    `Tennessee` in `Murfreesboro, Tennessee`; and not `Renner` in `Lucas Renner`. `before` and `after` are the rest of
    the longer name."""
    if entity_class != outer_class:
        return True
    if entity_class == "Person":
        return False
    before, after = before.rstrip(" "), after.lstrip(" ")
    return before.endswith(",") or after.startswith(",") or before.rpartition(" ")[2] in _LINKS


def without_rivals(named: Sequence[Named], places: Sequence[Place]) -> list[Named]:
    """Of spans that share characters, those that the model is surest of, and names inside them that stand alone.

    `places` are where the named stand, in any text.
    """
    kept: list[tuple[Named, Place]] = []
    order = sorted(zip(named, places, strict=True), key=lambda each: (-(each[0].confidence or 0.0), each[1]))
    for each, place in order:
        if all(_may_both_stand(each, place, *other) for other in kept):
            kept.append((each, place))
    return [each for each, _ in kept]


def _may_both_stand(each: Named, place: Place, other: Named, taken: Place) -> bool:
    if place[1] <= taken[0] or taken[1] <= place[0]:
        return True
    if not (_inside(place, taken) or _inside(taken, place)):
        return False
    inner, outer, longer = (each, other, taken) if _inside(place, taken) else (other, each, place)
    at = (place if longer is taken else taken)[0] - longer[0]
    return _stands_alone(inner.entity_class, outer.entity_class, outer.name[:at], outer.name[at + len(inner.name) :])


def settle(
    mentions: Sequence[Mention],
    min_confidence: float,
    calibrated: Callable[[float], float] = lambda raw: raw,
) -> tuple[list[Mention], list[Dropped]]:
    """Make one document's mentions agree: one mention for each place, one class for each name, confidence over all
    chunks, `calibrated` last. Returns the mentions in the order of the text, and those below `min_confidence` as
    dropped."""
    places: dict[Place, Mention] = {}
    longer: list[Mention] = []
    # A total order: the result must not depend on which chunk's answer came back first.
    for each in sorted(
        mentions, key=lambda each: (each.start, -each.end, -each.confidence, each.chunk, each.entity_class)
    ):
        # Chunks overlap: the same place may come twice, and a name cut off by a chunk's border lies inside the whole.
        longer = [other for other in longer if other.end > each.start]
        if (each.start, each.end) not in places and all(_is_apart(each, other) for other in longer):
            places[each.start, each.end] = each
            longer.append(each)
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
        confidence = round(calibrated((1 - doubt) * share), 3)
        if confidence < min_confidence:
            dropped.append(
                Dropped(
                    name=each.name,
                    entity_class=entity_class,
                    chunk=each.chunk,
                    reason="low confidence",
                    confidence=confidence,
                )
            )
        else:
            kept.append(each.model_copy(update={"entity_class": entity_class, "confidence": confidence}))
    return kept, dropped


def _is_apart(each: Mention, longer: Mention) -> bool:
    """Whether two mentions that share characters may both stand; `longer` begins first."""
    if each.end > longer.end:
        return False
    first, last = each.start - longer.start, longer.end - each.end
    before, after = longer.name[:first], longer.name[len(longer.name) - last :] if last else ""
    return _stands_alone(each.entity_class, longer.entity_class, before, after)


def _shares(mentions: Iterable[Mention]) -> dict[str, tuple[EntityClass, float]]:
    """The class of each name in one document, and the share of the votes for it.

    A class that the text proves somewhere outvotes all that it does not prove.
    """
    votes: dict[str, Counter[EntityClass]] = defaultdict(Counter)
    proven: dict[str, Counter[EntityClass]] = defaultdict(Counter)
    for each in mentions:
        weight = round(1000 * each.confidence)
        votes[normalised(each.name)][each.entity_class] += weight
        if each.proven:
            proven[normalised(each.name)][each.entity_class] += weight
    shares = {}
    for name, counted in votes.items():
        deciding = proven.get(name, counted)
        winner, weight = deciding.most_common(1)[0]
        shares[name] = (winner, weight / deciding.total())
    return shares


def _inside(place: Place, other: Place) -> bool:
    return place != other and other[0] <= place[0] and place[1] <= other[1]


def _locate(name: str, text: str, folded: Folded) -> tuple[list[Place], bool]:
    """All places of a name as whole words, and whether it stands there exactly as it was spelled."""
    name = trimmed(name)
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


def places_of(name: str, text: str) -> list[Place]:
    """Where a name stands in a text."""
    return _locate(name, text, Folded.of(text))[0]


def trimmed(name: str) -> str:
    """A name without what models put around names: punctuation, articles, titles, pieces of the sentence."""
    name = _core(" ".join(name.split()).strip(_ENDS))
    if name.startswith("(") or name.count("(") != name.count(")"):
        name = name.strip("()")
    if not _ABBREVIATED.search(name):
        name = name.rstrip(".")
    return without_title(re.sub(r"^(?:the|a|an)\s+(?=\S)", "", name))


def _core(phrase: str) -> str:
    """The longest run of words that a name could have of a phrase such as `spoke with Imani Grove about it`.

    A single small word stays at the end (`the Sparrow Hill redevelopment`), unless the name is in the genitive, and at
    the beginning, where Romance languages have their nouns (`mairie de Vichy`), if it is not a word that stands before
    names in a sentence.
    """
    small = [word for word in phrase.split() if _is_small(word) and word.strip(".,'") not in _LINKS]
    runs: list[list[str]] = [[]]
    for word in phrase.split():
        if word in small:
            runs.append([])
            continue
        runs[-1].append(word)
        if word.endswith(("'s", "’s")):
            runs.append([])
    if not small:
        return phrase
    stays = phrase.endswith(small[0]) or (phrase.startswith(small[0]) and small[0] not in _BEFORE_NAMES)
    if len(small) == 1 and stays and not re.search(r"['’]s(?:\s|$)", phrase.removesuffix(small[0])):
        return phrase
    longest: list[str] = []
    for run in map(_without_links, runs):
        longest = run if len(run) >= len(longest) else longest
    return " ".join(longest) or phrase


def _is_small(word: str) -> bool:
    return word[0].isalpha() and word.islower()


def _without_links(run: list[str]) -> list[str]:
    while run and _is_small(run[0]):
        run = run[1:]
    while run and _is_small(run[-1]):
        run = run[:-1]
    return run


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
    while end < len(text) and (unicodedata.category(text[end])[0] == "M" or text[end] in _HALF_WIDTH_MARKS):
        end += 1
    return end


def _without_genitive(text: str, place: Place) -> Place:
    """A place without the ending of "Alvarez's report"."""
    start, end = place
    if text[end - 2 : end] in ("'s", "’s") and re.match(r"\s+[a-z]", text[end : end + 8]):
        return start, end - 2
    return place

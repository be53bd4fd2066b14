"""The base line that every figure of extraction stands beside: names by capital letters, classes by six rules, and by
the words that a deployment gives its own classes.

Belongs here: what can be had without a model, and without our filters, evidence and grounding, so that it stays what it
is when they change. Nothing of it reaches the graph.
"""

import re
from collections.abc import Iterator

from ec1.extraction.folding import normalised
from ec1.vocabulary import CONTRACT, Vocabulary

_WORD = r"[A-Z][\w'’&.-]*\w|[A-Z]"
_RUN = re.compile(rf"(?:{_WORD})(?: (?:(?:of|de|van|von|&) )?(?:{_WORD}))*")
_COMMON = re.compile(
    r"(?:the|a|an|i|we|you|he|she|it|they|this|that|these|those|in|on|at|for|to|from|and|but|or|so|if|when|what|who|how"
    r"|why|where|there|then|as|with|by|of|is|are|was|no|not|yes|our|my|his|her|their|its|all|one|some|after|before"
    r"|however|also|please|thanks|dear)",
    re.IGNORECASE,
)


def names_of(text: str, vocabulary: Vocabulary = CONTRACT) -> frozenset[tuple[str, str]]:
    """What the base line finds in a text: (normalised name, class), each once."""
    found = ((name, _own_class(name, vocabulary) or _class(name)) for name in _runs(text) if len(name) > 1)
    return frozenset((normalised(name), each) for name, each in found if each in vocabulary.classes)


def _runs(text: str) -> Iterator[str]:
    """Runs of words with a capital, without a common word in front; a single word only where it opens no sentence."""
    for line in text.splitlines():
        for found in _RUN.finditer(line):
            words = found[0].split()
            opens = not line[: found.start()].strip(" \"'“‘(*_#>-") or line[: found.start()].rstrip()[-1:] in ".!?:"
            while words and _COMMON.fullmatch(words[0]):
                words, opens = words[1:], False
            if words and not (opens and len(words) == 1):
                yield " ".join(words).removesuffix("'s").removesuffix("’s")


def _own_class(name: str, vocabulary: Vocabulary) -> str | None:
    """The own class that has a word of the name, or whose name is one."""
    words = {word.casefold() for word in name.split()}
    for own in vocabulary.own:
        if not words.isdisjoint(word.casefold() for word in (own.spoken, *own.words)):
            return own.name
    return None


def _class(name: str) -> str:
    if re.search(r"\b(?:Inc|Corp|Co|Ltd|LLC|LLP|GmbH|AG|University|Bank|Institute|Council|Committee)\b", name):
        return "Company"
    if re.search(r"\b(?:Account|Deposit|Escrow|Retainer)\b", name):
        return "Account"
    if re.search(r"\b(?:Project|Programme|Program|Initiative|Operation)\b", name):
        return "Project"
    if re.search(r"\b(?:Street|Road|River|Lake|Island|City|County|Park|Bay|North|South|East|West)\b", name):
        return "Location"
    if name.isupper() and len(name) > 1:
        return "Company"
    return "Person" if 2 <= len(name.split()) <= 3 else "Location"

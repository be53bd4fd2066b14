"""What documents say to a question: the sentences that answer it, word for word and with their source, or none.

Belongs here: which sentences answer. Does not: finding those that share words with a question
(`ec1.graph.sentence_index`). Nothing is worded anew, so nothing can be made up.
`benchmarks.ask_graph` has how often it is right.
"""

import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ec1.errors import DeferredError, InputError, RejectedError
from ec1.extraction.folding import normalised
from ec1.graph.quotes import Quotes
from ec1.graph.reader import GraphReader
from ec1.graph.sentence_index import FoundSentence, SentenceIndex, opened

NOT_IN_THE_GRAPH = "not in the graph"
_CANDIDATES = 60
_ENOUGH = 0.3
"""How much of a question a sentence must say, with what stands around it."""
_SOMETHING = 0.2
"""How much of what is asked about the things that the question names."""
_NEAR = 0.7
_OTHER_KIND = 0.6
_QUANTITY = r"how (?:many|much|long|often|old|far|large|big|high|warm|cold)"
_WANTED = {
    "Person Company": re.compile(r"\b(?:who|whom|whose)\b", re.IGNORECASE),
    "Location": re.compile(r"\bwhere\b", re.IGNORECASE),
    "figures": re.compile(rf"\b(?:when|{_QUANTITY}|what (?:share|price)|costs?|price)\b", re.IGNORECASE),
}
"""What a question wants to hear: somebody, a place, a number."""
_ASKING = re.compile(rf"\b(?:{_QUANTITY}|which|what|who\w*)\b", re.IGNORECASE)


@dataclass(frozen=True)
class AnswerSource:
    """A sentence that answers, word for word, and where it stands. `share` is how much of what was asked it says, from
    0 to 1, rare words for more than common ones."""

    number: int
    sentence: str
    stream: str
    path: str
    title: str
    date: str | None
    page: str
    start: int
    end: int
    share: float


@dataclass(frozen=True)
class Answer:
    """The sentences that answer a question, the best first; without any it is not in the graph."""

    sources: tuple[AnswerSource, ...]
    note: str
    unread: int
    """Documents that could not be read again, so that nothing of them was looked at."""


def ask(reader: GraphReader, quotes: Quotes, question: str, limit: int = 3) -> Answer:
    """The sentences of documents that answer a question, at most `limit`. Raises InputError for a question without a
    word that says what it is about, or a limit below 1."""
    if limit < 1:
        raise InputError(f"limit {limit} is too small: ask for 1 or more")
    with opened(reader, quotes) as index:
        words = index.words_of(_ASKING.sub(" ", question))
        if not words:
            raise InputError("what is the question about? name somebody or something")
        found = index.find(words, _CANDIDATES)
        asked = _Asked.of(question, words, found, index)
        unread = index.unread
    ranked = sorted(((score, each) for each in found if (score := asked.score(each)) >= _ENOUGH), key=lambda it: -it[0])
    sources: dict[str, AnswerSource] = {}
    for score, each in ranked:
        if len(sources) < limit and (source := _source(quotes, each, score)) is not None:
            # What several documents repeat is shown once.
            sources.setdefault(normalised(source.sentence), replace(source, number=len(sources) + 1))
    return Answer(tuple(sources.values()), "" if sources else NOT_IN_THE_GRAPH, unread)


@dataclass(frozen=True)
class _Asked:
    """A question: its words, rare ones with more weight; those of them that only name something; and what is named."""

    weights: Mapping[str, float]
    naming: frozenset[str]
    things: frozenset[str]
    wanted: str

    @classmethod
    def of(cls, question: str, words: Sequence[str], found: Sequence[FoundSentence], index: SentenceIndex) -> "_Asked":
        size = index.size
        weights = {word: math.log((size + 2) / (index.sentences_with(word) + 1)) for word in words}
        named: dict[str, frozenset[str]] = {}
        for thing, names in index.names_of(thing for each in found for thing in each.things).items():
            inside = [name for name in names if name and name <= weights.keys()]
            if inside:
                named[thing] = frozenset().union(*inside)
        wanted = next((kind for kind, sign in _WANTED.items() if sign.search(question)), "")
        return cls(weights, frozenset().union(*named.values()), frozenset(named), wanted)

    def score(self, found: FoundSentence) -> float:
        """How much of the question a sentence says, from 0 to 1; 0 for one that only names what the question names."""
        rest = self.weights.keys() - self.naming
        if rest and self._share(found, rest) < _SOMETHING:
            return 0.0
        return self._share(found, self.weights.keys()) * (1.0 if self._is_of_kind(found) else _OTHER_KIND)

    def _share(self, found: FoundSentence, words: Set[str]) -> float:
        said = sum(self.weights[word] for word in words & found.said)
        near = sum(self.weights[word] for word in words & found.around)
        return (said + _NEAR * near) / sum(self.weights[word] for word in words)

    def _is_of_kind(self, found: FoundSentence) -> bool:
        """Whether a sentence has what the question wants to hear. What the question itself names answers nothing."""
        if found.asks:
            return False
        if self.wanted == "figures":
            return found.figures
        classes = {thing.partition(":")[0] for thing in found.things if thing not in self.things}
        return not self.wanted or not classes.isdisjoint(self.wanted.split())


def _source(quotes: Quotes, found: FoundSentence, score: float) -> AnswerSource | None:
    try:
        document = quotes.document(found.document, found.content_sha256)
    except (DeferredError, RejectedError):
        return None
    return AnswerSource(
        number=0,
        sentence=document.text[found.start : found.end],
        stream=found.document.stream,
        path=found.document.path,
        title=document.title,
        date=document.date,
        page=document.place_at(found.start),
        start=found.start,
        end=found.end,
        share=round(score, 3),
    )

"""One document on its way through an extraction: its chunks, what was answered about them, and the result.

Belongs here: what is read of a document before the model is asked, and what is kept of it afterwards. Does not: asking
(`asking`), the order of work and what is retried (`loop`).
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ec1.documents.chunks import Chunk
from ec1.extraction.defence import instructions
from ec1.extraction.folding import normalised
from ec1.extraction.naming import candidates, grounding, japanese, relations
from ec1.extraction.naming.traits import traits_of
from ec1.extraction.reading import fields
from ec1.extraction.reading.answer_log import AnswerLog, Span
from ec1.extraction.reading.client import Completion
from ec1.extraction.reading.extractor import Extractor, WorkItem
from ec1.extraction.results import ChunkAnswer, Dropped, ExtractionResult, Held, Mention, Trait
from ec1.extraction.schema import Named, ParsedAnswer
from ec1.vocabulary import Vocabulary

_HELD_CHARACTERS = 400
_UNSURE = ("may be worded like one", "the model is unsure of what stands nowhere else")


@dataclass(frozen=True)
class Loaded:
    """A parsed document: its text, its chunks, and the spans that may be names (where the model decides on spans)."""

    path: str
    text: str
    """With `instructions.FILLER` for what is kept from the model."""
    held: Sequence[Held]
    suspect: Sequence[instructions.Suspect]
    """Where sentences stand that may be such, and are read."""
    fields_end: int
    chunks: Sequence[Chunk]
    proposed: Sequence[candidates.Candidate]
    mentions: Sequence[Mention]
    """What a dictionary read."""


def load(item: WorkItem, extractor: Extractor) -> Loaded:
    """Parse a document and cut it. Raises what `item.load` raises, and RejectedError if it has too many chunks."""
    document = item.load()
    text, found = extractor.readable(document.text, item.content_sha256)
    proposed: Sequence[candidates.Candidate] = ()
    if extractor.settings.mode != "answer":
        known = extractor.known
        proposed = candidates.propose(text, known.in_text(text) if known is not None else ())
    chunks = extractor.chunks_to_ask(text)
    return Loaded(
        path=document.key.path,
        text=text,
        held=[
            _held(
                document.text,
                each.start,
                each.end,
                each.reasons,
                instructions.names_in(document.text[each.start : each.end]),
            )
            for each in found.held
        ],
        suspect=found.suspect,
        fields_end=document.fields_end,
        chunks=chunks,
        proposed=proposed,
        mentions=list(_by_dictionary(text, extractor.vocabulary)) if extractor.by_dictionary(text) else [],
    )


def _by_dictionary(text: str, vocabulary: Vocabulary) -> Iterator[Mention]:
    """The names of a Japanese text, of the classes that there are."""
    # What is held back parts what stands on either side of it.
    for start, end, entity_class in japanese.names_in(text.replace(instructions.FILLER, "。")):
        if entity_class in vocabulary.classes:
            yield Mention(
                name=text[start:end],
                entity_class=entity_class,
                confidence=japanese.CONFIDENCE,
                chunk=0,
                start=start,
                end=end,
            )


def _held(
    text: str, start: int, end: int, reasons: tuple[str, ...], names: Sequence[str], *, read: bool = False
) -> Held:
    """What is kept of a sentence that is held back: its beginning, and names in it."""
    sentence = " ".join(text[start:end].split())[:_HELD_CHARACTERS]
    return Held(start=start, end=end, sentence=sentence, reasons=reasons, names=tuple(names), read=read)


@dataclass
class Unit:
    """One document on its way: how many chunks are still out, and what was answered."""

    item: WorkItem
    log: AnswerLog
    known: dict[Span, Completion] = field(default_factory=dict)
    path: str = ""
    text: str = ""
    held: Sequence[Held] = ()
    suspect: Sequence[instructions.Suspect] = ()
    fields_end: int = 0
    proposed: Sequence[candidates.Candidate] = ()
    failed_readings: int = 0
    """How many earlier readings of it ended without an answer that counts to each chunk."""
    open_chunks: int = 0
    problem: str | None = None
    blamed: bool = True
    broken: bool = False
    """Whether something unforeseen happened to it, so that its answers are not to be read again."""
    postponed: bool = False
    answers: list[ChunkAnswer] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    located: list[relations.Located] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    @property
    def given_up(self) -> bool:
        return self.postponed or self.broken

    def blame(self, chunk: Chunk, problem: str, *, blamed: bool) -> None:
        """A chunk has no answer that counts. The first such problem is the document's; `blamed`: the server is not."""
        self.problem = self.problem or f"chunk {chunk.index}: {problem}"
        self.blamed = blamed

    def answered(self, chunk: Chunk, completion: Completion, problem: str | None) -> None:
        """Note how the model answered about a chunk."""
        self.answers.append(
            ChunkAnswer(
                chunk=chunk.index,
                start=chunk.start,
                end=chunk.end,
                finish_reason=completion.finish_reason,
                model=completion.model,
                tier=completion.tier,
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
                attempts=completion.attempts,
                problem=problem,
            )
        )

    def ground(self, answer: ParsedAnswer, named: Sequence[Named], chunk: Chunk, extractor: Extractor) -> None:
        """Locate what was named in a chunk, and what relates to what."""
        mentions, dropped = grounding.ground(named, chunk, self.text, extractor.vocabulary)
        located, apart = relations.locate(answer.relations, answer.entities, mentions, chunk)
        self.mentions += mentions
        self.located += located
        self.dropped += dropped + apart

    def result(
        self, status: Literal["complete", "deferred", "rejected"], reason: str | None, extractor: Extractor
    ) -> ExtractionResult:
        """What is kept of the document. A broken one keeps nothing that was answered."""
        if self.broken:
            self.answers, self.mentions, self.located = [], [], []
        curve = extractor.fitted
        mentions, doubtful = grounding.settle(
            [*self.mentions, *fields.mentions_in(self.text, self.fields_end, extractor.vocabulary)],
            extractor.min_confidence,
            curve.calibrated if curve is not None else lambda raw: raw,
        )
        calibrated = curve is not None and curve.calibrates
        # Confidences that are not calibrated are not shares.
        mentions, apart = self._apart(mentions) if calibrated else (mentions, [])
        mentions, unwanted = _of_classes(mentions, extractor.classes_of(self.item.stream))
        stated, unfit = relations.settle(
            self.located, mentions, self.text, extractor.min_confidence, extractor.vocabulary
        )
        # In an order of their own: answers come back in any.
        dropped = sorted(
            [*self.dropped, *doubtful, *unwanted, *unfit], key=lambda each: (each.chunk, each.name, each.reason)
        )
        # A deferred document keeps what the chunks gave that were answered, until all of them are.
        kept = status in ("complete", "deferred")
        return ExtractionResult(
            content_sha256=self.item.content_sha256,
            stream=self.item.stream,
            fingerprint=extractor.fingerprint(self.item.stream, self.item.content_sha256),
            status=status,
            reason=reason,
            blamed=self.blamed,
            failed_readings=self.failed_readings + (status == "deferred" and self.blamed),
            characters=len(self.text),
            calibrated=calibrated,
            mentions=tuple(mentions) if kept else (),
            relations=stated if kept else (),
            traits=self._traits(mentions, extractor) if kept else (),
            dropped=tuple(dropped) if kept else (),
            held=tuple(
                _without_known(each, mentions) for each in sorted([*self.held, *apart], key=lambda each: each.start)
            ),
            answers=tuple(sorted(self.answers, key=lambda each: each.start)),
        )

    def _apart(self, mentions: list[Mention]) -> tuple[list[Mention], list[Held]]:
        """The mentions but for what stands only where an instruction may be and was found with too little confidence,
        and these sentences."""
        surest: dict[str, float] = {}
        for each in mentions:
            name = normalised(each.name)
            surest[name] = max(each.confidence, surest.get(name, 0.0))
        refused: set[str] = set()
        for needed in {each.needed for each in self.suspect}:
            places = [(each.start, each.end) for each in self.suspect if each.needed >= needed]
            unsure = {
                each.name
                for each in mentions
                if surest[normalised(each.name)] < needed and _place_of(each, places) is not None
            }
            refused |= instructions.only_in(self.text, places, unsure)
        names: dict[Span, list[str]] = {}
        everywhere = [(each.start, each.end) for each in self.suspect]
        for each in mentions:
            if each.name in refused and (place := _place_of(each, everywhere)) is not None:
                names.setdefault(place, []).append(each.name)
        held = [
            _held(self.text, *place, _UNSURE, list(dict.fromkeys(found)), read=True) for place, found in names.items()
        ]
        return [each for each in mentions if each.name not in refused], held

    def _traits(self, mentions: Sequence[Mention], extractor: Extractor) -> tuple[Trait, ...]:
        """What the text and the fields say of persons, and of whom a record is of."""
        stated = fields.traits_in(self.text, self.fields_end, extractor.vocabulary)
        return tuple(dict.fromkeys([*traits_of(self.text, mentions), *stated]))


def _place_of(mention: Mention, places: Sequence[Span]) -> Span | None:
    """Which of these places, in their order, holds a mention."""
    at = bisect_right(places, mention.start, key=lambda place: place[0]) - 1
    return places[at] if at >= 0 and mention.end <= places[at][1] else None


def _without_known(held: Held, mentions: Sequence[Mention]) -> Held:
    known = {normalised(each.name) for each in mentions}
    return held.model_copy(update={"names": tuple(name for name in held.names if normalised(name) not in known)})


def _of_classes(mentions: list[Mention], classes: Collection[str]) -> tuple[list[Mention], list[Dropped]]:
    """The mentions of these classes, all of them where there are none; the others as dropped."""
    kept = [each for each in mentions if not classes or each.entity_class in classes]
    dropped = [
        Dropped(name=each.name, entity_class=each.entity_class, chunk=each.chunk, reason="not a class of its stream")
        for each in mentions
        if classes and each.entity_class not in classes
    ]
    return kept, dropped

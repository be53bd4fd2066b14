"""Asking about one chunk: the model's own answer, its decisions about proposed spans, or both.

Belongs here: which questions a chunk becomes in the extractor's mode, and what the answers name. Does not: the words of
a question (`prompt`, `decision`), the wire (`client`), and what is asked when (`loop`).
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from ec1.documents.chunks import Chunk
from ec1.errors import DeferredError
from ec1.extraction import schema
from ec1.extraction.folding import normalised
from ec1.extraction.naming import candidates, confidence, decision, grounding, trained
from ec1.extraction.naming.filters import Place
from ec1.extraction.reading.client import ChatClient, Completion, ServerFaultError
from ec1.extraction.reading.extractor import Extractor
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.extraction.reading.unit import Unit

_QUESTIONS_A_REQUEST = 64
# Less likely spans are not even weighed against each other.
_LEAST = 0.1


class Asking:
    """Puts chunks to one server. `answered` is called after each answer, when `report` has its tokens."""

    def __init__(
        self,
        extractor: Extractor,
        client: ChatClient,
        deadline: float | None,
        report: ExtractionRecord,
        answered: Callable[[], None],
    ) -> None:
        self.extractor = extractor
        self.client = client
        decides = extractor.settings.mode != "answer"
        self.decider = client.decider() if decides else client
        self.labels = extractor.labels() if decides else {}
        self.deadline = deadline
        self.report = report
        self.typical_seconds = 0.0
        """How long an answer takes, of late; 0 before the first."""
        self._answered = answered

    async def enter(self, stack: AsyncExitStack) -> None:
        """Open the connections; `stack` closes them."""
        await stack.enter_async_context(self.client)
        if self.decider is not self.client:
            await stack.enter_async_context(self.decider)

    @property
    def calls(self) -> int:
        """Requests sent so far, retries included."""
        return self.client.calls + (self.decider.calls if self.decider is not self.client else 0)

    async def answer(self, unit: Unit, chunk: Chunk) -> Completion:
        """What the server says about a chunk, or said before an interruption. Raises as `ChatClient.complete`."""
        if (known := unit.known.get((chunk.start, chunk.end))) is not None:
            return known
        mode = self.extractor.settings.mode
        answer = await self._named(unit, chunk) if mode != "decide" else None
        if mode == "answer" or (answer is not None and answer.problem is not None):
            assert answer is not None
            return answer
        return await self._decided(unit, chunk, answer)

    def read(
        self, unit: Unit, chunk: Chunk, completion: Completion
    ) -> tuple[schema.ParsedAnswer, bool, list[schema.Named]]:
        """What a completion says: the model's own answer, whether that is so full that it may lack something, and the
        names that are to be grounded. Raises DeferredError if it does not count."""
        mode = self.extractor.settings.mode
        if mode == "answer":
            answer, full = self.extractor.read(completion.content, completion.finish_reason)
            return answer, full, answer.entities
        content, decided = decision.decode(completion.content, self.extractor.vocabulary)
        answer, full = schema.ParsedAnswer([], []), False
        if mode == "both":
            answer, full = self.extractor.read(content, completion.finish_reason)
        if self.extractor.weighs:
            return answer, full, self._sure(unit, chunk, answer, decided)
        if self.extractor.adapter is not None:
            return answer, full, [*answer.entities, *_chosen(unit.text, decided)]
        given = {normalised(grounding.trimmed(each.name)): each.entity_class for each in answer.entities}
        named = []
        for each in decided:
            name = normalised(unit.text[each.start : each.end])
            extractor = self.extractor
            named.append(confidence.weigh(each, unit.text, extractor.fitted, given.get(name), extractor.vocabulary))
        likely = [(each, (span.start, span.end)) for each, span in zip(named, decided, strict=True) if _is_likely(each)]
        return answer, full, grounding.without_rivals([each for each, _ in likely], [place for _, place in likely])

    def _sure(
        self, unit: Unit, chunk: Chunk, answer: schema.ParsedAnswer, decided: Sequence[decision.Decided]
    ) -> list[schema.Named]:
        """What a trained extractor names, listed or decided on, each with how sure it is of it. Names that stand
        nowhere in the chunk come last, for grounding to refuse."""
        given: dict[Place, str] = {}
        nowhere = []
        for each in answer.entities:
            if place := first_place(each.name, chunk):
                given.setdefault(place, each.entity_class)
            else:
                nowhere.append(each)
        listed: list[schema.Named] = []
        others: list[schema.Named] = []
        places: list[Place] = []
        for span in decided:
            place = (span.start, span.end)
            answered = given.get(place) if span.source == "answer" else None
            sure = confidence.weigh(span, unit.text, self.extractor.fitted, answered, trained=True)
            if _is_likely(sure) and answered is not None:
                listed.append(sure)
            elif _is_likely(sure):
                others.append(sure)
                places.append(place)
        return [*listed, *grounding.without_rivals(others, places), *nowhere]

    async def _decided(self, unit: Unit, chunk: Chunk, answer: Completion | None) -> Completion:
        """The model's choice of a class for each span of a chunk; `answer` proposes further spans.

        A trained extractor's answer is its choice already: it decides on the spans that this left out, and on the names
        in it only where a curve makes a confidence of that.
        """
        given = self._proposed(chunk, answer)
        spans = decision.spans_of(chunk, [*unit.proposed, *given])
        if self.extractor.adapter is not None:
            answered = ("", "") if answer is None else (answer.content, answer.finish_reason)
            spans = trained.left_out(*answered, chunk.text, spans, chunk.start)
            if self.extractor.weighs:
                spans = [*decision.spans_of(chunk, given), *spans]
        asked = time.monotonic()
        whole = answer or Completion("", "stop", self.extractor.model_id)
        prompts = self.extractor.questions(chunk, [unit.text[span.start : span.end] for span in spans])
        scores: list[list[float]] = []
        for first in range(0, len(prompts), _QUESTIONS_A_REQUEST):
            part = prompts[first : first + _QUESTIONS_A_REQUEST]
            completion = await self.decider.complete(
                [{"role": "user", "content": each} for each in part],
                {"labels": self.labels, "add_special_tokens": self.extractor.adapter is None},
                stream=unit.item.stream,
                deadline=self.deadline,
            )
            if completion.problem is not None:
                raise ServerFaultError(completion.problem)
            scores += decision.scores_in(completion.content, len(part), len(self.labels))
            self._measure(chunk, completion, time.monotonic() - asked)
            whole = replace(
                whole,
                model=completion.model,
                prompt_tokens=whole.prompt_tokens + completion.prompt_tokens,
                completion_tokens=whole.completion_tokens + completion.completion_tokens,
                attempts=max(whole.attempts, completion.attempts),
            )
        self.report.decisions += len(spans)
        return replace(whole, content=decision.encode(answer.content if answer else "", spans, scores))

    def _proposed(self, chunk: Chunk, answer: Completion | None) -> list[candidates.Candidate]:
        """Where the names of the model's own answer stand."""
        if answer is None:
            return []
        with suppress(DeferredError):
            named = self.extractor.read(answer.content, answer.finish_reason)[0].entities
            places = [first_place(each.name, chunk) for each in named]
            return [candidates.Candidate(place[0], place[1], "answer") for place in places if place is not None]
        return []

    async def _named(self, unit: Unit, chunk: Chunk) -> Completion:
        """The model's own answer about a chunk."""
        asked = time.monotonic()
        completion = await self.client.complete(
            self.extractor.messages(chunk.text, unit.item.stream),
            self.extractor.answer_schema,
            stream=unit.item.stream,
            deadline=self.deadline,
            variation=unit.failed_readings,
        )
        self._measure(chunk, completion, time.monotonic() - asked)
        return completion

    def _measure(self, chunk: Chunk, completion: Completion, seconds: float) -> None:
        asked, answered = completion.prompt_tokens, completion.completion_tokens
        if not asked and not answered:
            # A gateway that does not say: what we can count, which is the chunk without the constant beginning.
            asked, answered = self.extractor.counter()([chunk.text, completion.content])
        self.report.prompt_tokens += asked
        self.report.completion_tokens += answered
        self.typical_seconds = seconds if not self.typical_seconds else 0.8 * self.typical_seconds + 0.2 * seconds
        self._answered()


def first_place(name: str, chunk: Chunk) -> Place | None:
    """Where a name stands first in a chunk, in characters of the text that the chunk is of."""
    places = grounding.places_of(name, chunk.text)
    return (chunk.start + places[0][0], chunk.start + places[0][1]) if places else None


def _chosen(text: str, decided: Sequence[decision.Decided]) -> list[schema.Named]:
    """The spans that a trained extractor finds likelier to be of some class than of none; grounding says how sure."""
    return [
        schema.Named(" ".join(text[each.start : each.end].split()), each.best)
        for each in decided
        if each.of(each.best) > each.of(None)
    ]


def _is_likely(named: schema.Named) -> bool:
    return (named.confidence or 0.0) >= _LEAST

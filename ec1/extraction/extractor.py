"""From documents to results in the outbox: chunks of many documents, one server, one limit on what is in flight.

Belongs here: the order of work, what is retried, what counts as done, and what is reported. Does not: the wire
(`client`), the prompt (`prompt`), trust (`grounding`), or whether a server is needed at all (`ec1.night.extraction`).
"""

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.deployment import ExtractionSettings
from ec1.documents.chunks import Chunk, TokenCounter, chunk_text
from ec1.documents.parse import Document
from ec1.errors import DeferredError, InputError, RejectedError, ServiceError
from ec1.extraction import candidates, confidence, decision, grounding, prompt, relations, schema, trained
from ec1.extraction.answer_log import AnswerLog, Span
from ec1.extraction.client import ChatClient, Completion, NoTimeError, ServerFaultError
from ec1.extraction.evidence import Off
from ec1.extraction.folding import normalised
from ec1.extraction.known import KnownNames
from ec1.extraction.outbox import Outbox
from ec1.extraction.results import ENTITY_CLASSES, ChunkAnswer, Dropped, ExtractionResult, Mention
from ec1.extraction.rules import ALL_ON
from ec1.extraction.traits import traits_of
from ec1.files import digest_of
from ec1.streams import STREAMS

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ec1.gpu.engine import ServedAdapter

log = logging.getLogger(__name__)

# Raise this when `ec1/documents` gives another text or other chunks for the same bytes.
PARSER_VERSION = 1
# How often a chunk whose answer was cut off is halved before it is given up for this night.
MAX_SPLITS = 2
PROGRESS_SECONDS = 5.0
_QUESTIONS_A_REQUEST = 64
# Tokens that two halves of a chunk have in common.
_HALVES_SHARE = 10
# Less likely spans are not even weighed against each other.
_LEAST = 0.1
MAX_PROBLEM_ROWS = 200


@dataclass(frozen=True)
class WorkItem:
    """One unit of work. `load` parses the document; it may raise RejectedError or DeferredError."""

    stream: str
    content_sha256: str
    load: Callable[[], Document]


@dataclass(frozen=True)
class Plan:
    """What an extraction would cost. `prompt_tokens` counts each request's own text, not the cached beginning."""

    documents: int = 0
    rejected: int = 0
    chunks: int = 0
    prompt_tokens: int = 0
    max_answer_tokens: int = 0


@dataclass(frozen=True)
class Progress:
    """Where an extraction stands. Rates are over the time since it began."""

    done: int
    total: int
    documents_per_second: float
    tokens_per_second: float

    def __str__(self) -> str:
        return (
            f"extracted {self.done} of {self.total} documents, {self.documents_per_second:.2f} documents/s, "
            f"{self.tokens_per_second:.0f} tokens/s"
        )


@dataclass
class StreamCounts:
    """Units of one stream by how they ended. `postponed` ones were not tried to the end: no time, or no server."""

    complete: int = 0
    deferred: int = 0
    rejected: int = 0
    reused: int = 0
    postponed: int = 0


@dataclass
class ExtractionReport:
    """What one extraction did. `reused` units were in the outbox already and cost nothing."""

    streams: dict[str, StreamCounts] = field(default_factory=lambda: {stream: StreamCounts() for stream in STREAMS})
    dropped: Counter[str] = field(default_factory=Counter)
    llm_calls: int = 0
    decisions: int = 0
    """Spans that the model decided on."""
    chunks: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    stopped: str | None = None
    """Why units were postponed: the deadline came, or the server went."""
    problems: list[dict[str, str]] = field(default_factory=list)
    _entities: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    @property
    def documents(self) -> int:
        """Units that were finished by this extraction."""
        return sum(counts.complete + counts.deferred + counts.rejected for counts in self.streams.values())

    @property
    def documents_per_second(self) -> float:
        return self.documents / self.seconds if self.seconds else 0.0

    @property
    def tokens_per_second(self) -> float:
        """Prompt and answer tokens, those that the server had cached included."""
        return (self.prompt_tokens + self.completion_tokens) / self.seconds if self.seconds else 0.0

    @property
    def entities(self) -> dict[str, int]:
        """Different entities by class, over all documents of this extraction."""
        return _by_class(set().union(*self._entities.values()))

    def entities_of(self, stream: str) -> dict[str, int]:
        """Different entities by class in one stream's documents."""
        return _by_class(self._entities.get(stream, set()))

    def problems_of(self, stream: str) -> list[dict[str, str]]:
        """Units that are not complete, with the reason; the first `MAX_PROBLEM_ROWS` of all streams are kept."""
        return [row for row in self.problems if row["stream"] == stream]

    def record(self) -> dict[str, Any]:
        """All figures as JSON types."""
        return {
            "streams": {stream: asdict(counts) for stream, counts in self.streams.items()},
            "entities": self.entities,
            "entities_by_stream": {stream: self.entities_of(stream) for stream in self.streams},
            "dropped": dict(sorted(self.dropped.items())),
            "llm_calls": self.llm_calls,
            "decisions": self.decisions,
            "chunks": self.chunks,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "seconds": round(self.seconds, 3),
            "documents_per_second": round(self.documents_per_second, 3),
            "tokens_per_second": round(self.tokens_per_second, 1),
            "stopped": self.stopped,
            "problems": self.problems,
        }

    def count(self, result: ExtractionResult) -> None:
        """Add one finished unit."""
        counts = self.streams[result.stream]
        setattr(counts, result.status, getattr(counts, result.status) + 1)
        self.dropped.update(each.reason for each in result.dropped)
        if result.status == "complete":
            found = self._entities.setdefault(result.stream, set())
            found |= {(normalised(each.name), each.entity_class) for each in result.mentions}
        elif len(self.problems) < MAX_PROBLEM_ROWS:
            self.problems.append(
                {
                    "stream": result.stream,
                    "content": result.content_sha256[:12],
                    "status": result.status,
                    "reason": result.reason or "",
                }
            )


def _is_likely(named: schema.Named) -> bool:
    return (named.confidence or 0.0) >= _LEAST


def _by_class(entities: set[tuple[str, str]]) -> dict[str, int]:
    counts = Counter(entity_class for _, entity_class in entities)
    return {entity_class: counts[entity_class] for entity_class in ENTITY_CLASSES}


@dataclass
class _Unit:
    """One document on its way: how many chunks are still out, and what came back."""

    item: WorkItem
    log: AnswerLog
    known: dict[Span, Completion] = field(default_factory=dict)
    text: str = ""
    proposed: list[candidates.Candidate] = field(default_factory=list)
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


class Extractor:
    """Extracts documents with one model under fixed settings. Reads the model's tokenizer only when it must count."""

    def __init__(
        self,
        settings: ExtractionSettings,
        model_id: str,
        revision: str,
        model_folder: Path,
        adapter: "ServedAdapter | None" = None,
    ) -> None:
        self.settings = settings
        self.model_id = model_id
        self.adapter = adapter
        self.revision = revision
        self._tokenizer_file = model_folder / "tokenizer.json"
        self._tokenizer: Tokenizer | None = None
        self._fingerprints: dict[str, str] = {}
        self.fitted = confidence.curve_of(model_id, settings.mode)
        """The curve of confidence of this model in this mode, if one was fitted."""
        self.known: KnownNames | None = None
        """Names that the graph knows, as further candidates. No part of the fingerprint: they change every night, and a
        result without them only says less."""
        self.max_chunks: int | None = None
        """A document of more chunks is rejected."""
        self.off: Off = ALL_ON
        """Rule groups that are switched off, to measure what they are worth."""

    def fingerprint(self, stream: str) -> str:
        """SHA-256 over everything that decides what comes out for given bytes of this stream."""
        if stream not in self._fingerprints:
            self._fingerprints[stream] = self._fingerprint(stream)
        return self._fingerprints[stream]

    def _fingerprint(self, stream: str) -> str:
        return digest_of(
            {
                "stream": stream,
                "parser": PARSER_VERSION,
                "chunks": [self.settings.chunk_tokens, self.settings.overlap_tokens],
                "schema": self._schema,
                "prompt": [
                    prompt.PROMPT_VERSION if self.adapter is None else trained.TRAINED_VERSION,
                    self._messages("", stream),
                ],
                "model": [self.model_id, self.revision, *((self.adapter.digest,) if self.adapter else ())],
                "answer": [self.settings.max_answer_tokens, MAX_SPLITS, *self._thinking],
                "grounding": [grounding.GROUNDING_VERSION, self.settings.min_confidence],
                **self._deciding,
                **({"relations": relations.RELATIONS_VERSION} if self.settings.relations else {}),
            }
        )

    @property
    def _schema(self) -> dict[str, Any]:
        """The shape of an answer, which a server makes a grammar of."""
        return schema.answer_schema(self.settings.relations) if self.adapter is None else trained.SCHEMA

    def _messages(self, chunk_text: str, stream: str) -> list[dict[str, str]]:
        """What the model is asked about a chunk; a model with an adapter was trained to need no examples."""
        if self.adapter is not None:
            return trained.messages(chunk_text)
        return prompt.messages(chunk_text, stream, relations=self.settings.relations)

    def _read(self, content: str, finish_reason: str) -> tuple[schema.Answer, bool]:
        """What an answer holds, and whether it is so full that it may lack something. Raises DeferredError."""
        if self.adapter is not None:
            named, listed = trained.decode(content, finish_reason)
            return schema.Answer(named, []), listed >= trained.MAX_LISTED
        answer = schema.decode_answer(content, finish_reason, relations=self.settings.relations)
        return answer, len(set(answer.entities)) >= schema.MAX_ENTITIES

    @property
    def _deciding(self) -> dict[str, Any]:
        if self.settings.mode == "answer":
            return {}
        curve = self.fitted
        return {
            "decision": [
                self.settings.mode,
                decision.DECISION_VERSION,
                candidates.CANDIDATES_VERSION,
                confidence.CONFIDENCE_VERSION,
                decision.questions(Chunk(0, 0, 0, ""), [""]),
                curve.digest_fields if curve is not None else None,
            ]
        }

    def labels(self) -> dict[int, str]:
        """The first token of each label of a decision. Raises InputError if two labels share it."""
        self.counter()
        assert self._tokenizer is not None
        first = {
            self._tokenizer.encode(word, add_special_tokens=False).ids[0]: word for word in decision.LABELS.values()
        }
        if len(first) != len(decision.LABELS):
            raise InputError(
                f"{self.model_id} writes two class labels with the same first token: set extraction.mode to answer"
            )
        return first

    @property
    def _thinking(self) -> list[int]:
        return [self.settings.reasoning_tokens] if self.settings.reasoning_tokens else []

    def chunks(self, text: str) -> list[Chunk]:
        """The chunks of a text, as they are sent."""
        return chunk_text(
            text,
            self.counter(),
            max_tokens=self.settings.chunk_tokens,
            overlap_tokens=self.settings.overlap_tokens,
        )

    def plan(self, documents: Iterable[WorkItem]) -> Plan:
        """Count what these units would ask of the model."""
        count_tokens = self.counter()
        read = rejected = chunks = tokens = 0
        for item in documents:
            try:
                parts = self.chunks(item.load().text)
            except (RejectedError, DeferredError):
                rejected += 1
                continue
            read += 1
            chunks += len(parts)
            tokens += sum(count_tokens([part.text for part in parts]))
        return Plan(read, rejected, chunks, tokens, chunks * self.settings.max_answer_tokens)

    def extract(
        self,
        work: Sequence[WorkItem],
        client: ChatClient | None,
        outbox: Outbox,
        *,
        deadline: float | None,
        progress: Callable[[Progress], None],
    ) -> ExtractionReport:
        """Extract all units that the outbox has no final result for, each one once; what was answered about them before
        an interruption is not asked again.

        `deadline` is in `time.monotonic` seconds: nothing is asked that is not expected back before it, and what is out
        by then is given up; such units stay without a result. A result lies in the outbox as soon as its document is
        done. `client` may be None if no unit is left to extract. Raises InputError without the model's tokenizer.
        """
        begin = time.monotonic()
        report, waiting = self._sorted(work, outbox)
        if waiting:
            if client is None:
                raise ValueError(f"{len(waiting)} units are not in the outbox and there is no client to ask")
            self.counter()
            run = _Run(self, waiting, client, outbox, deadline, progress, report, begin)
            asyncio.run(run.all())
        report.seconds = time.monotonic() - begin
        return report

    def postpone(self, work: Sequence[WorkItem], outbox: Outbox, reason: str) -> ExtractionReport:
        """The report of an extraction that has no model to ask: `reason` says why."""
        report, waiting = self._sorted(work, outbox)
        report.stopped = reason
        for item in waiting:
            report.streams[item.stream].postponed += 1
        return report

    def _sorted(self, work: Sequence[WorkItem], outbox: Outbox) -> tuple[ExtractionReport, list[WorkItem]]:
        """The units that need the model, each once, and a report in which the others are counted."""
        report = ExtractionReport()
        waiting: list[WorkItem] = []
        seen: set[tuple[str, str]] = set()
        for item in work:
            unit = (item.stream, item.content_sha256)
            known = outbox.get(self.fingerprint(item.stream), item.content_sha256)
            final = known is not None and known.status != "deferred"
            if final:
                # A kill between a result and the end of its log leaves the log.
                outbox.answers(self.fingerprint(item.stream), item.content_sha256).remove()
            if final or unit in seen:
                report.streams[item.stream].reused += 1
            else:
                waiting.append(item)
            seen.add(unit)
        return report, waiting

    def counter(self) -> TokenCounter:
        """Counts tokens as the model does. Raises InputError without the model's tokenizer."""
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            if not self._tokenizer_file.is_file():
                raise InputError(f"{self._tokenizer_file} does not exist: prepare the model {self.model_id} first")
            self._tokenizer = Tokenizer.from_file(str(self._tokenizer_file))
        tokenizer = self._tokenizer

        def count(texts: Sequence[str]) -> list[int]:
            return [len(each.ids) for each in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

        return count


class _Run:
    """One extraction under way: as many workers as requests may be in flight, fed with the chunks of one document after
    the other, so that no more documents are in memory than there are workers."""

    def __init__(
        self,
        extractor: Extractor,
        waiting: Sequence[WorkItem],
        client: ChatClient,
        outbox: Outbox,
        deadline: float | None,
        progress: Callable[[Progress], None],
        report: ExtractionReport,
        begin: float,
    ) -> None:
        self.extractor = extractor
        self.waiting = deque(waiting)
        self.total = len(waiting)
        self.client = client
        decides = extractor.settings.mode != "answer"
        self.decider = client.decider() if decides else client
        self.labels = extractor.labels() if decides else {}
        self.outbox = outbox
        self.deadline = deadline
        self.progress = progress
        self.report = report
        self.begin = begin
        self.told = begin
        self.feed = asyncio.Lock()
        self.chunks: Iterator[Chunk] = iter(())
        self.unit: _Unit | None = None
        self.typical_seconds = 0.0
        self.loading: tuple[WorkItem, asyncio.Task[tuple[str, list[Chunk], list[candidates.Candidate]]]] | None = None

    async def all(self) -> None:
        calls = self._calls()
        workers = self.extractor.settings.max_in_flight
        try:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self.client)
                if self.decider is not self.client:
                    await stack.enter_async_context(self.decider)
                group = await stack.enter_async_context(asyncio.TaskGroup())
                for _ in range(workers):
                    group.create_task(self._work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        if self.loading is not None:
            with suppress(Exception):
                await self.loading[1]
        self.report.llm_calls = self._calls() - calls
        for item in self.waiting:
            self.report.streams[item.stream].postponed += 1
        self._tell(at_once=True)

    def _calls(self) -> int:
        return self.client.calls + (self.decider.calls if self.decider is not self.client else 0)

    async def _work(self) -> None:
        while True:
            async with self.feed:
                job = await self._next()
            if job is None:
                return
            unit, chunk = job
            with self._guarded(unit):
                await self._extract(unit, chunk, MAX_SPLITS)
            await self._close(unit)

    @contextmanager
    def _guarded(self, unit: _Unit) -> Iterator[None]:
        """Whatever goes wrong with one unit defers that unit: no document may end the extraction of the others."""
        try:
            yield
        except Exception as error:
            log.exception("unit %s of stream %s", unit.item.content_sha256[:12], unit.item.stream)
            what = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
            unit.problem = f"it could not be extracted: {' '.join(what.split())[:200]}"
            unit.broken = unit.blamed = True

    async def _next(self) -> tuple[_Unit, Chunk] | None:
        """The next chunk to ask about, of the document at hand or of the next one; None if nothing may be asked."""
        while True:
            if self._out_of_time():
                self.report.stopped = self.report.stopped or "the deadline"
            if self.unit is not None:
                chunk = next(self.chunks, None)
                if chunk is None:
                    unit, self.unit = self.unit, None
                    await self._close(unit)
                    continue
                if self.report.stopped:
                    self.unit.postponed = True
                if self.unit.given_up:
                    continue
                self.unit.open_chunks += 1
                return self.unit, chunk
            if self.report.stopped or not self.waiting:
                return None
            await self._open(self.waiting.popleft())

    def _ahead(self) -> None:
        """Begin to parse the next document, while this one is asked about."""
        if self.waiting and self.loading is None:
            item = self.waiting[0]
            self.loading = (item, asyncio.create_task(asyncio.to_thread(self._load, item)))

    async def _loaded(self, item: WorkItem) -> tuple[str, list[Chunk], list[candidates.Candidate]]:
        loading, self.loading = self.loading, None
        if loading is not None and loading[0] is item:
            return await loading[1]
        return await asyncio.to_thread(self._load, item)

    async def _open(self, item: WorkItem) -> None:
        fingerprint = self.extractor.fingerprint(item.stream)
        unit = _Unit(item, self.outbox.answers(fingerprint, item.content_sha256))
        try:
            unit.text, chunks, unit.proposed = await self._loaded(item)
            unit.known = await asyncio.to_thread(unit.log.read)
        except RejectedError as error:
            await self._keep(unit, "rejected", str(error))
        except DeferredError as error:
            await self._keep(unit, "deferred", str(error))
        except Exception:
            with self._guarded(unit):
                raise
            await self._keep(unit, "deferred", unit.problem)
        else:
            # One more than its chunks: the unit cannot be done before it has been read to the end.
            unit.open_chunks = 1
            self.unit, self.chunks = unit, iter(chunks)
            self.report.chunks += len(chunks)
            self._ahead()

    def _load(self, item: WorkItem) -> tuple[str, list[Chunk], list[candidates.Candidate]]:
        text = item.load().text
        proposed = []
        if self.extractor.settings.mode != "answer":
            known = self.extractor.known
            proposed = candidates.propose(text, known.in_text(text) if known is not None else ())
        chunks = self.extractor.chunks(text)
        most = self.extractor.max_chunks
        if most is not None and len(chunks) > most:
            raise RejectedError(f"{len(chunks):,} chunks, and documents.max_chunks is {most:,}")
        return text, chunks, proposed

    async def _extract(self, unit: _Unit, chunk: Chunk, splits: int) -> None:
        """Ask about one chunk, and about its halves if the answer may lack entities."""
        if unit.given_up:
            return
        try:
            completion = await self._answer(unit, chunk)
        except ServiceError as error:
            self.report.stopped = self.report.stopped or str(error)
            unit.postponed = True
            return
        except DeferredError as error:
            if isinstance(error, NoTimeError) or self._deadline_passed():
                unit.postponed = True
            else:
                unit.problem = unit.problem or f"chunk {chunk.index}: {error}"
                unit.blamed = not isinstance(error, ServerFaultError)
            return
        answer, cut, problem = schema.Answer([], []), False, completion.problem
        named: list[schema.Named] = []
        if problem is None:
            try:
                answer, cut, named = self._read(unit, completion)
            except DeferredError as error:
                cut, problem = True, str(error)
        # An answer that does not count is asked for in halves a few times; a list that is too dense until it fits.
        halves = self._halves(chunk) if cut and (splits or problem is None) else []
        span = (chunk.start, chunk.end)
        if span not in unit.known and (problem is None or halves):
            await asyncio.to_thread(unit.log.append, span, completion)
        if halves:
            for half in halves:
                await self._extract(unit, half, max(0, splits - 1))
            return
        if cut and problem is None:
            problem = f"more than {schema.MAX_ENTITIES} names in {len(chunk.text)} characters that cannot be halved"
        unit.answers.append(
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
        if problem:
            # The other chunks are still asked: what they give counts, and this one is asked again on a later night.
            unit.problem = unit.problem or f"chunk {chunk.index}: {problem}"
            unit.blamed = completion.problem is None
            return
        mentions, dropped = grounding.ground(named, chunk, unit.text, self.extractor.off)
        located, apart = relations.locate(answer.relations, answer.entities, mentions, chunk)
        unit.mentions += mentions
        unit.located += located
        unit.dropped += dropped + apart

    def _read(self, unit: _Unit, completion: Completion) -> tuple[schema.Answer, bool, list[schema.Named]]:
        """What a completion says: the model's own answer, whether that is so full that it may lack something, and the
        names that are to be grounded. Raises DeferredError if it does not count."""
        mode = self.extractor.settings.mode
        if mode == "answer":
            answer, full = self.extractor._read(completion.content, completion.finish_reason)
            return answer, full, answer.entities
        content, decided = decision.decode(completion.content)
        answer, full = schema.Answer([], []), False
        if mode == "both":
            answer, full = self.extractor._read(content, completion.finish_reason)
        given = {normalised(grounding.trimmed(each.name)): each.entity_class for each in answer.entities}
        named = []
        for each in decided:
            name = normalised(unit.text[each.start : each.end])
            named.append(confidence.weigh(each, unit.text, self.extractor.fitted, given.get(name), self.extractor.off))
        likely = [(each, (span.start, span.end)) for each, span in zip(named, decided, strict=True) if _is_likely(each)]
        return answer, full, grounding.without_rivals([each for each, _ in likely], [place for _, place in likely])

    async def _answer(self, unit: _Unit, chunk: Chunk) -> Completion:
        """What the server says about a chunk, or said before an interruption."""
        if (known := unit.known.get((chunk.start, chunk.end))) is not None:
            return known
        mode = self.extractor.settings.mode
        answer = await self._named(unit, chunk) if mode != "decide" else None
        if mode == "answer" or (answer is not None and answer.problem is not None):
            assert answer is not None
            return answer
        return await self._decided(unit, chunk, answer)

    async def _decided(self, unit: _Unit, chunk: Chunk, answer: Completion | None) -> Completion:
        """The model's choice of a class for each span of a chunk; `answer` proposes further spans."""
        spans = decision.spans_of(chunk, [*unit.proposed, *self._proposed(chunk, answer)])
        asked = time.monotonic()
        whole = answer or Completion("", "stop", self.extractor.model_id)
        prompts = decision.questions(chunk, [unit.text[span.start : span.end] for span in spans])
        scores: list[list[float]] = []
        for first in range(0, len(prompts), _QUESTIONS_A_REQUEST):
            part = prompts[first : first + _QUESTIONS_A_REQUEST]
            completion = await self.decider.complete(
                [{"role": "user", "content": each} for each in part],
                {"labels": self.labels},
                stream=unit.item.stream,
                deadline=self.deadline,
            )
            scores += decision.scores_in(completion.content, len(part))
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
            named = self.extractor._read(answer.content, answer.finish_reason)[0].entities
            places = [grounding.place_of(each.name, chunk.text) for each in named]
            return [
                candidates.Candidate(chunk.start + place[0], chunk.start + place[1], "answer")
                for place in places
                if place is not None
            ]
        return []

    async def _named(self, unit: _Unit, chunk: Chunk) -> Completion:
        """The model's own answer about a chunk."""
        asked = time.monotonic()
        completion = await self.client.complete(
            self.extractor._messages(chunk.text, unit.item.stream),
            self.extractor._schema,
            stream=unit.item.stream,
            deadline=self.deadline,
        )
        self._measure(chunk, completion, time.monotonic() - asked)
        return completion

    def _halves(self, chunk: Chunk) -> list[Chunk]:
        count = self.extractor.counter()
        limit = count([chunk.text])[0] // 2 + 1
        with suppress(InputError):
            # An overlap, because the cut may go through a name.
            parts = chunk_text(chunk.text, count, max_tokens=limit, overlap_tokens=min(_HALVES_SHARE, limit // 4))
            if len(parts) > 1:
                return [
                    Chunk(chunk.index, chunk.start + part.start, chunk.start + part.end, part.text) for part in parts
                ]
        return []

    def _measure(self, chunk: Chunk, completion: Completion, seconds: float) -> None:
        asked, answered = completion.prompt_tokens, completion.completion_tokens
        if not asked and not answered:
            # A gateway that does not say: what we can count, which is the chunk without the constant beginning.
            asked, answered = self.extractor.counter()([chunk.text, completion.content])
        self.report.prompt_tokens += asked
        self.report.completion_tokens += answered
        self.typical_seconds = seconds if not self.typical_seconds else 0.8 * self.typical_seconds + 0.2 * seconds
        self._tell()

    async def _close(self, unit: _Unit) -> None:
        """One chunk of a unit came back, or its last was handed out. The last to come keeps the result."""
        unit.open_chunks -= 1
        if unit.open_chunks:
            return
        if unit.problem is not None:
            await self._keep(unit, "deferred", unit.problem)
        elif unit.postponed:
            self.report.streams[unit.item.stream].postponed += 1
        else:
            with self._guarded(unit):
                return await self._keep(unit, "complete")
            await self._keep(unit, "deferred", unit.problem)

    async def _keep(self, unit: _Unit, status: Any, reason: str | None = None) -> None:
        if unit.broken:
            await asyncio.to_thread(unit.log.set_aside)
            unit.answers, unit.mentions, unit.located = [], [], []
        curve = self.extractor.fitted
        mentions, doubtful = grounding.settle(
            unit.mentions,
            self.extractor.settings.min_confidence,
            self.extractor.off,
            curve.calibrated if curve is not None else lambda raw: raw,
        )
        stated, unfit = relations.settle(unit.located, mentions, unit.text, self.extractor.settings.min_confidence)
        # In an order of their own: answers come back in any.
        dropped = sorted([*unit.dropped, *doubtful, *unfit], key=lambda each: (each.chunk, each.name, each.reason))
        # A deferred document keeps what the chunks gave that were answered, until all of them are.
        kept = status in ("complete", "deferred")
        result = ExtractionResult(
            content_sha256=unit.item.content_sha256,
            stream=unit.item.stream,
            fingerprint=self.extractor.fingerprint(unit.item.stream),
            status=status,
            reason=reason,
            blamed=unit.blamed,
            characters=len(unit.text),
            calibrated=curve is not None,
            mentions=tuple(mentions) if kept else (),
            relations=stated if kept else (),
            traits=tuple(traits_of(unit.text, mentions)) if kept else (),
            dropped=tuple(dropped) if kept else (),
            answers=tuple(sorted(unit.answers, key=lambda each: each.start)),
        )
        await asyncio.to_thread(self.outbox.put, result)
        self.report.count(result)
        self._tell()

    def _deadline_passed(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() + self.typical_seconds > self.deadline

    def _tell(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self.told >= PROGRESS_SECONDS:
            self.told = now
            seconds = max(now - self.begin, 1e-9)
            tokens = self.report.prompt_tokens + self.report.completion_tokens
            self.progress(
                Progress(self.report.documents, self.total, self.report.documents / seconds, tokens / seconds)
            )

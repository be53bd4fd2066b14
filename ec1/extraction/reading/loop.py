"""From documents to results in the outbox: chunks of many documents, one server, one limit on what is in flight.

Belongs here: the order of work, what is retried, what is postponed, and what counts as done. Does not: what is asked
about a chunk (`asking`), what is kept of a document (`unit`), or whether a server is needed at all
(`ec1.night.steps.extraction`).
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Literal

from ec1.documents.chunks import Chunk
from ec1.documents.convert import NoConverterError
from ec1.errors import DeferredError, RejectedError, ServiceError
from ec1.extraction.reading.asking import Asking
from ec1.extraction.reading.client import ChatClient, NoTimeError, ServerFaultError
from ec1.extraction.reading.extractor import MAX_SPLITS, Extractor, WorkItem
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.reading.progress import ExtractionRecord, Progress
from ec1.extraction.reading.unit import Loaded, Unit, load
from ec1.extraction.schema import MAX_ENTITIES, Named, ParsedAnswer

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 5.0


def extract(
    extractor: Extractor,
    work: Sequence[WorkItem],
    client: ChatClient | None,
    outbox: Outbox,
    *,
    deadline: float | None,
    progress: Callable[[Progress], None],
) -> ExtractionRecord:
    """Extract all units that the outbox has no final result for, each one once; what was answered about them before
    an interruption is not asked again.

    `deadline` is in `time.monotonic` seconds: nothing is asked that is not expected back before it, and what is out
    by then is given up; such units stay without a result. A result lies in the outbox as soon as its document is
    done. `client` may be None if no unit is left to extract. Raises InputError without the model's tokenizer.
    """
    begin = time.monotonic()
    report, waiting = _sorted(extractor, work, outbox)
    if waiting:
        if client is None:
            raise ValueError(f"{len(waiting)} units are not in the outbox and there is no client to ask")
        extractor.check()
        run = _Run(extractor, waiting, client, outbox, deadline, progress, report, begin)
        asyncio.run(run.all())
        # Where nothing is read there is no speed of reading.
        report.seconds = time.monotonic() - begin
    return report


def postpone(extractor: Extractor, work: Sequence[WorkItem], outbox: Outbox, reason: str) -> ExtractionRecord:
    """The report of an extraction that has no model to ask: `reason` says why."""
    report, waiting = _sorted(extractor, work, outbox)
    report.stopped = reason
    for item in waiting:
        report.streams[item.stream].postponed += 1
    return report


def _sorted(extractor: Extractor, work: Sequence[WorkItem], outbox: Outbox) -> tuple[ExtractionRecord, list[WorkItem]]:
    """The units that need the model, each once, and a report in which the others are counted."""
    report = ExtractionRecord.of(extractor.streams, extractor.vocabulary.classes)
    waiting: list[WorkItem] = []
    seen: set[tuple[str, str]] = set()
    for item in work:
        unit = (item.stream, item.content_sha256)
        fingerprint = extractor.fingerprint(item.stream, item.content_sha256)
        known = outbox.get(fingerprint, item.content_sha256)
        final = known is not None and known.status != "deferred"
        if final:
            # A kill between a result and the end of its log leaves the log.
            outbox.answers(fingerprint, item.content_sha256).remove()
        if final or unit in seen:
            report.streams[item.stream].reused += 1
        else:
            waiting.append(item)
        seen.add(unit)
    return report, waiting


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
        report: ExtractionRecord,
        begin: float,
    ) -> None:
        self.extractor = extractor
        self.waiting = deque(waiting)
        self.total = len(waiting)
        self.outbox = outbox
        self.deadline = deadline
        self.progress = progress
        self.report = report
        self.begin = begin
        self.reported = begin
        self.asking = Asking(extractor, client, deadline, report, self._tell)
        self.feed = asyncio.Lock()
        self.chunks: Iterator[Chunk] = iter(())
        self.unit: Unit | None = None
        self.loading: tuple[WorkItem, asyncio.Task[Loaded]] | None = None

    async def all(self) -> None:
        calls = self.asking.calls
        workers = self.extractor.settings.max_in_flight
        try:
            async with AsyncExitStack() as stack:
                await self.asking.enter(stack)
                group = await stack.enter_async_context(asyncio.TaskGroup())
                for _ in range(workers):
                    group.create_task(self._work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        if self.loading is not None:
            with suppress(Exception):
                await self.loading[1]
        self.report.llm_calls = self.asking.calls - calls
        for item in self.waiting:
            self.report.streams[item.stream].postponed += 1
        self._tell(at_once=True)

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
    def _guarded(self, unit: Unit) -> Iterator[None]:
        """Whatever goes wrong with one unit defers that unit: no document may end the extraction of the others."""
        try:
            yield
        except Exception as error:
            log.exception("unit %s of stream %s", unit.item.content_sha256[:12], unit.item.stream)
            what = f"{type(error).__name__}: {error}".encode(errors="replace").decode()
            unit.problem = f"it could not be extracted: {' '.join(what.split())[:200]}"
            unit.broken = unit.blamed = True

    async def _next(self) -> tuple[Unit, Chunk] | None:
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
            self.loading = (item, asyncio.create_task(asyncio.to_thread(load, item, self.extractor)))

    async def _loaded(self, item: WorkItem) -> Loaded:
        loading, self.loading = self.loading, None
        if loading is not None and loading[0] is item:
            return await loading[1]
        return await asyncio.to_thread(load, item, self.extractor)

    async def _open(self, item: WorkItem) -> None:
        fingerprint = self.extractor.fingerprint(item.stream, item.content_sha256)
        unit = Unit(item, self.outbox.answers(fingerprint, item.content_sha256), path=item.path)
        try:
            loaded = await self._loaded(item)
            unit.path, unit.text, unit.held, unit.suspect = loaded.path, loaded.text, loaded.held, loaded.suspect
            unit.fields_end, unit.proposed = loaded.fields_end, loaded.proposed
            unit.mentions = list(loaded.mentions)
            unit.known = await asyncio.to_thread(unit.log.read)
            earlier = await asyncio.to_thread(self.outbox.get, fingerprint, item.content_sha256)
            unit.failed_readings = earlier.failed_readings if earlier is not None else 0
        except RejectedError as error:
            await self._keep(unit, "rejected", str(error))
        except DeferredError as error:
            unit.blamed = not isinstance(error, NoConverterError)
            await self._keep(unit, "deferred", str(error))
        except Exception:
            with self._guarded(unit):
                raise
            await self._keep(unit, "deferred", unit.problem)
        else:
            # One more than its chunks: the unit cannot be done before it has been read to the end.
            unit.open_chunks = 1
            self.unit, self.chunks = unit, iter(loaded.chunks)
            self.report.chunks += len(loaded.chunks)
            self._ahead()

    async def _extract(self, unit: Unit, chunk: Chunk, splits: int) -> None:
        """Ask about one chunk, and about its halves if the answer may lack entities."""
        if unit.given_up:
            return
        try:
            completion = await self.asking.answer(unit, chunk)
        except ServiceError as error:
            self.report.stopped = self.report.stopped or str(error)
            unit.postponed = True
            return
        except DeferredError as error:
            if isinstance(error, NoTimeError) or self._deadline_passed():
                unit.postponed = True
            else:
                unit.blame(chunk, str(error), blamed=not isinstance(error, ServerFaultError))
            return
        answer, cut, problem = ParsedAnswer([], []), False, completion.problem
        named: list[Named] = []
        if problem is None:
            try:
                answer, cut, named = self.asking.read(unit, chunk, completion)
            except DeferredError as error:
                cut, problem = True, str(error)
        # An answer that does not count is asked for in halves a few times; a list that is too dense until it fits.
        halves = self.extractor.halves(chunk) if cut and (splits or problem is None) else []
        span = (chunk.start, chunk.end)
        if span not in unit.known and (problem is None or halves):
            await asyncio.to_thread(unit.log.append, span, completion)
        if halves:
            for half in halves:
                await self._extract(unit, half, max(0, splits - 1))
            return
        if cut and problem is None:
            problem = f"more than {MAX_ENTITIES} names in {len(chunk.text)} characters that cannot be halved"
        unit.answered(chunk, completion, problem)
        if problem:
            # The other chunks are still asked: what they give counts, and this one is asked again on a later night.
            unit.blame(chunk, problem, blamed=completion.problem is None)
            return
        unit.ground(answer, named, chunk, self.extractor)

    async def _close(self, unit: Unit) -> None:
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

    async def _keep(
        self, unit: Unit, status: Literal["complete", "deferred", "rejected"], reason: str | None = None
    ) -> None:
        if unit.broken:
            await asyncio.to_thread(unit.log.set_aside)
        result = unit.result(status, reason, self.extractor)
        await asyncio.to_thread(self.outbox.put, result)
        self.report.count(result, unit.path)
        self._tell()

    def _deadline_passed(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _out_of_time(self) -> bool:
        return self.deadline is not None and time.monotonic() + self.asking.typical_seconds > self.deadline

    def _tell(self, at_once: bool = False) -> None:
        now = time.monotonic()
        if at_once or now - self.reported >= PROGRESS_SECONDS:
            self.reported = now
            seconds = max(now - self.begin, 1e-9)
            tokens = self.report.prompt_tokens + self.report.completion_tokens
            self.progress(
                Progress(self.report.documents, self.total, self.report.documents / seconds, tokens / seconds)
            )

"""Talking to a chat server: one question, one answer, with retries, a circuit breaker and a deadline.

Belongs here: what all servers have in common. Does not: one server's own words (`openai`, `doorman`), what is asked
(`prompt`, `schema`) and what an answer is worth (`grounding`). Another gateway joins as another `HttpChatClient`.
"""

import asyncio
import datetime as dt
import json
import random
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Protocol, Self, TypedDict

import httpx

from ec1.errors import DeferredError, InputError, ServiceError
from ec1.extraction.reading.flow import Flow
from ec1.extraction.settings import ExtractionSettings
from ec1.http import trusted

Messages = Sequence[Mapping[str, str]]

_MAX_ANSWER_BYTES = 4 * 2**20
_MAX_LABEL_CHARACTERS = 200
_MAX_TOKENS = 10**9
_LONGEST_PAUSE_SECONDS = 20.0
_LONGEST_COOL_DOWN_SECONDS = 60.0
_PATIENCE_SECONDS = 600.0
# What another answer than the likeliest one is drawn with: at 0 a seed changes nothing.
_VARIED_TEMPERATURE = 0.3
_SURROGATE = re.compile("[\ud800-\udfff]")
# Bytes are counted as they come, so they must be what they say: 2 kB of brotli were 3 GB and a minute of CPU.
_PLAIN = {"Accept-Encoding": "identity"}


@dataclass(frozen=True)
class Completion:
    """One answer. `tier` is which size of model a gateway chose, where it says so."""

    content: str
    finish_reason: str
    model: str
    tier: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    attempts: int = 1
    problem: str | None = None
    """Why this answer does not count, whatever it says; None if it may."""


class ChatClient(Protocol):
    """What the extractor needs of a server. It is entered inside the event loop that asks."""

    @property
    def calls(self) -> int:
        """Requests sent so far, retries included."""

    async def complete(
        self, messages: Messages, schema: Mapping[str, Any], *, stream: str, deadline: float | None, variation: int = 0
    ) -> Completion:
        """Ask once, and again for what is transient, until `deadline` (`time.monotonic` seconds).

        `stream` is where the text is from: a gateway may owe different streams different models. `variation`: 0 asks
        for the likeliest answer, each other number for another one, where that one did not count.

        Raises DeferredError if this request has no answer (refused, timed out, failed too often), its kinds
        NoTimeError and ServerFaultError where that says nothing about the request, ServiceError if the server answers
        nobody.
        """

    def decider(self) -> "ChatClient":
        """A client of the same server that answers with log-probabilities (`openai.Decider`). Raises InputError if the
        server gives none."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class NoTimeError(DeferredError):
    """The deadline came before an answer."""


class ServerFaultError(DeferredError):
    """No answer, and the server is at fault: it does not count against what was asked about."""


class FailedOftenError(DeferredError):
    """No answer after as many attempts as the deployment allows. Another server may have one."""


class AgainError(Exception):
    """A failure that may pass. `retry_after` in seconds, where the server said so."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NoRoomError(AgainError):
    """The server is well and has no room now (429): the normal state of a busy gateway."""


class UnavailableError(AgainError):
    """The server says that it cannot answer anybody now (503)."""


class TimedOutError(Exception):
    """No answer in time. Not tried again at once: the server may still be working on it. `gateway`: it was not our
    limit but that of a server in between."""

    def __init__(self, message: str, *, gateway: bool = False) -> None:
        super().__init__(message)
        self.gateway = gateway


class UncountedError(Exception):
    """An answer came that does not count (its `problem` says why), and speaks against the server."""

    def __init__(self, answer: Completion) -> None:
        super().__init__(answer.problem)
        self.answer = answer


class Circuit:
    """Stops asking a server that fails: opens after `threshold` failures in a row, then lets one probe through at a
    time, the first after `cool_down_seconds`, each further one after twice as long, up to a minute. After `rounds`
    failed probes (with the defaults some four minutes) the server is given up, unless it says itself that it is only
    unavailable: then probing continues until the deadline. So does waiting while `why_unwell` gives a reason, asked
    every `poll_seconds`: a server that can be asked how it is need not be probed.
    """

    def __init__(self, threshold: int = 5, cool_down_seconds: float = 5.0, rounds: int = 6) -> None:
        self.why_unwell: Callable[[], Awaitable[str | None]] = _nobody_knows
        self.poll_seconds = 10.0
        self.threshold = threshold
        self.cool_down_seconds = cool_down_seconds
        self.rounds = rounds
        self._failures = 0
        self._failed_probes = 0
        self._open_until = 0.0
        self._probe = asyncio.Lock()
        self._reason = ""
        self._will_be_back = False

    def begin(self) -> None:
        """Serve another event loop; what was learned stays."""
        self._probe = asyncio.Lock()

    def forget(self) -> None:
        """The server has been started anew: what it did before says nothing."""
        self._failures = self._failed_probes = 0

    @property
    def is_open(self) -> bool:
        return self._failures >= self.threshold

    @asynccontextmanager
    async def turn(self, deadline: float | None) -> AsyncIterator[None]:
        """Wrap one request: at once while the server is well, else when it is this one's turn to probe it.

        Raises ServiceError if the server is given up, or does not recover before `deadline`.
        """
        if not self.is_open:
            async with self._counted():
                yield
            return
        await self._probe.acquire()
        try:
            if self.is_open:
                await self._wait(deadline)
                async with self._counted(probe=True):
                    yield
                return
        finally:
            self._probe.release()
        async with self._counted():
            yield

    @asynccontextmanager
    async def _counted(self, probe: bool = False) -> AsyncIterator[None]:
        try:
            yield
        except NoRoomError:
            raise
        except (AgainError, TimedOutError, UncountedError) as error:
            self._failures += 1
            self._failed_probes += probe
            pause = min(self.cool_down_seconds * 2**self._failed_probes, _LONGEST_COOL_DOWN_SECONDS)
            self._open_until = time.monotonic() + pause
            self._reason = str(error)
            self._will_be_back = isinstance(error, UnavailableError)
            raise
        else:
            self._failures = self._failed_probes = 0

    async def _wait(self, deadline: float | None) -> None:
        if self._failed_probes >= self.rounds and not (self._will_be_back and deadline is not None):
            raise ServiceError(f"the model server does not answer: {self._reason}")
        pause = max(0.0, self._open_until - time.monotonic())
        if deadline is not None and time.monotonic() + pause >= deadline:
            raise ServiceError(f"the model server did not answer again before the deadline: {self._reason}")
        await asyncio.sleep(pause)
        while (reason := await self.why_unwell()) is not None:
            if deadline is None or time.monotonic() + self.poll_seconds >= deadline:
                raise ServiceError(f"the model server was not well again before the deadline: {reason}")
            await asyncio.sleep(self.poll_seconds)
            # What it took for a probe says nothing about what comes after the wait.
            self._failed_probes = 0


async def _nobody_knows() -> str | None:
    """A server that says nothing about itself."""
    return None


class Endurance(TypedDict, total=False):
    """What a client puts up with; `HttpChatClient` says what each means, and its default."""

    backoff_seconds: float
    circuit: Circuit | None
    patience_seconds: float
    died: Callable[[], str | None]


class HttpChatClient(ABC):
    """What every server over HTTP has in common; a subclass knows one server's own words.

    `backoff_seconds` scales the random pauses between attempts. `start_in_flight` is how many requests go out before
    anything is known of the server; default: `max_in_flight`. `patience_seconds`: how long a request waits for room
    where there is no deadline. `died` says how the server's process ended if it is ours and no longer runs.
    `calls` counts requests sent.
    """

    def __init__(
        self,
        url: str,
        settings: ExtractionSettings,
        *,
        backoff_seconds: float = 0.5,
        circuit: Circuit | None = None,
        start_in_flight: int | None = None,
        patience_seconds: float = _PATIENCE_SECONDS,
        died: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._url = url
        self._settings = settings
        self._calls = 0
        self._circuit = circuit or Circuit()
        self._backoff_seconds = backoff_seconds
        self._flow = Flow(settings.max_in_flight, start_in_flight or settings.max_in_flight)
        self._patience_seconds = patience_seconds
        self._died = died
        self._http: httpx.AsyncClient | None = None

    @abstractmethod
    def _body(self, messages: Messages, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request's body."""

    def _varied(self, variation: int) -> Mapping[str, Any]:
        """What of the body differs where another answer than the likeliest is asked for."""
        return {"temperature": _VARIED_TEMPERATURE}

    @abstractmethod
    def _headers(self, stream: str) -> Mapping[str, str]:
        """The headers of one request; called anew for each attempt."""

    @abstractmethod
    def _completion(self, data: bytes, stream: str) -> Completion:
        """Read the body of a 200. Raises DeferredError if it is none, UncountedError if it does not count."""

    def decider(self) -> ChatClient:
        raise InputError(f"{self._url} gives no log-probabilities: set extraction.mode to answer")

    @property
    def calls(self) -> int:
        return self._calls

    @property
    def _longest_seconds(self) -> float:
        """How long one request may take."""
        return self._settings.request_timeout_seconds

    async def __aenter__(self) -> Self:
        self._flow.begin()
        self._circuit.begin()
        limits = httpx.Limits(max_connections=self._settings.max_in_flight, max_keepalive_connections=None)
        # Loopback and private servers only: a proxy from the environment has no business here. Each request has its
        # own time limit as a whole, which a server that dribbles cannot stretch.
        self._http = httpx.AsyncClient(limits=limits, timeout=None, trust_env=False, headers=_PLAIN, verify=trusted())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def complete(
        self, messages: Messages, schema: Mapping[str, Any], *, stream: str, deadline: float | None, variation: int = 0
    ) -> Completion:
        body = {**self._body(messages, schema), **(self._varied(variation) if variation else {})}
        begin = time.monotonic()
        attempts = failures = 0
        while True:
            attempts += 1
            try:
                return replace(await self._in_turn(body, stream, deadline), attempts=attempts)
            except UncountedError as error:
                pause = self._backoff(attempts)
                # An answer that a server gives while it is unwell says nothing about this request.
                failures += await self._circuit.why_unwell() is None
                no_time = deadline is None or time.monotonic() + pause >= deadline
                if no_time or failures >= self._settings.max_attempts:
                    return replace(error.answer, attempts=attempts)
                await asyncio.sleep(pause)
            except TimedOutError as error:
                self._check_alive()
                kind = ServerFaultError if error.gateway else DeferredError
                raise kind(str(error)) from None
            except AgainError as error:
                self._check_alive()
                # Where others of ours are being served, the next free place comes when one of them is done.
                served = isinstance(error, NoRoomError) and self._flow.in_flight > 0
                pause = error.retry_after + self._backoff(1 if served else attempts)
                if isinstance(error, NoRoomError | UnavailableError):
                    waits_until = begin + self._patience_seconds if deadline is None else deadline
                    if time.monotonic() + pause >= waits_until:
                        kind = ServerFaultError if deadline is None else NoTimeError
                        raise kind(f"the server had no room for it: {error}") from None
                elif not self._circuit.is_open:
                    # A server that fails everybody is not the fault of this request: the circuit says when it is given
                    # up.
                    failures += 1
                    if failures >= self._settings.max_attempts or pause > self._longest_seconds:
                        raise FailedOftenError(f"no answer after {attempts} attempts: {error}") from None
                    if deadline is not None and time.monotonic() + pause >= deadline:
                        raise NoTimeError(f"no answer before the deadline: {error}") from None
                await asyncio.sleep(pause)

    async def _in_turn(self, body: Mapping[str, Any], stream: str, deadline: float | None) -> Completion:
        """One request, when there is room for it and the server is well. Raises what `_once` raises."""
        try:
            async with asyncio.timeout(None if deadline is None else max(deadline - time.monotonic(), 0.0)) as waiting:
                async with self._flow.turn() as limit:
                    waiting.reschedule(None)
                    try:
                        async with self._circuit.turn(deadline):
                            answer = await self._once(body, stream, deadline)
                    except NoRoomError:
                        self._flow.refused()
                        raise
                    except TimedOutError as error:
                        if not error.gateway and self._flow.late(limit, self._longest_seconds):
                            raise NoRoomError(f"{error}, with up to {limit:.0f} at once") from None
                        raise
                    self._flow.served()
                    return answer
        except TimeoutError:
            raise NoTimeError("the server had no room for it before the deadline") from None

    def _backoff(self, attempt: int) -> float:
        """A random pause in seconds, longer after each attempt."""
        return random.uniform(0.0, min(self._backoff_seconds * 2.0 ** min(attempt, 20), _LONGEST_PAUSE_SECONDS))

    def _check_alive(self) -> None:
        if reason := self._died():
            raise ServiceError(reason)

    async def _once(self, body: Mapping[str, Any], stream: str, deadline: float | None) -> Completion:
        """One request. Raises AgainError, TimedOutError, UncountedError, DeferredError, ServiceError."""
        assert self._http is not None, "enter the client first"
        limit = self._longest_seconds
        if deadline is not None:
            limit = min(limit, max(deadline - time.monotonic(), 0.0))
        self._calls += 1
        begin = time.monotonic()
        try:
            async with (
                asyncio.timeout(limit),
                self._http.stream("POST", self._url, json=body, headers=self._headers(stream)) as response,
            ):
                data = bytearray()
                if (coding := response.headers.get("Content-Encoding", "identity").strip().lower()) != "identity":
                    raise ServerFaultError(f"the answer is encoded as {coding[:20]!r}, which was not asked for")
                async for part in response.aiter_raw():
                    data += part
                    if len(data) > _MAX_ANSWER_BYTES:
                        raise DeferredError(f"the answer has more than {_MAX_ANSWER_BYTES:,} bytes")
        except TimeoutError:
            raise TimedOutError(f"timed out after {limit:.0f} s") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise AgainError(f"{type(error).__name__}: {error}".rstrip(": ")) from None
        self._check_status(response, bytes(data), time.monotonic() - begin)
        return self._completion(bytes(data), stream)

    def _check_status(self, response: httpx.Response, data: bytes, seconds: float) -> None:
        """Raise what an answer other than 200 means; it took `seconds` to come."""
        status = response.status_code
        if status == 200:
            return
        reason = f"status {status}: {error_message(data)}"
        if status == 429:
            raise NoRoomError(reason, retry_after(response))
        if status == 503:
            raise UnavailableError(reason, retry_after(response))
        if status >= 500 or status == 408:
            raise AgainError(reason, retry_after(response))
        if status in (401, 403, 404):
            raise ServiceError(f"{self._url} refuses us: {reason}; check the deployment's inference settings")
        raise DeferredError(f"the server refused the request: {reason}")


def text_of(value: Any) -> str:
    """A text from an answer; half characters, which cannot be encoded, become U+FFFD. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text should be")
    return _SURROGATE.sub("\ufffd", value)


def label_of(value: Any) -> str:
    """A short name from an answer, such as a model's. Raises TypeError, ValueError for a long one."""
    text = text_of(value)
    if len(text) > _MAX_LABEL_CHARACTERS:
        raise ValueError(f"a name of {len(text):,} characters")
    return text


def tokens_of(value: Any) -> int:
    """A number of tokens from an answer; 0 for none. Raises TypeError, ValueError for what counts nothing."""
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} where a number should be")
    if not 0 <= value <= _MAX_TOKENS:  # Infinity and NaN are not in there either.
        raise ValueError("a number of tokens out of range")
    return int(value)


def unreadable(error: Exception) -> str:
    """What is wrong with an answer's body, in one short line that can be encoded."""
    return " ".join(_SURROGATE.sub("\ufffd", f"{type(error).__name__} {error}").split())[:200]


def error_message(data: bytes) -> str:
    """The error message in an answer's body, in one short line that can be encoded."""
    text = data[:2000].decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        text = str(error["message"] if isinstance(error, dict) else error)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return " ".join(_SURROGATE.sub("\ufffd", text).split())[:200]


def retry_after(response: httpx.Response) -> float:
    """Seconds that the `Retry-After` header asks for, as a number or a date; 0 without one, or for what is neither."""
    value = response.headers.get("Retry-After", "").strip()
    # `²` is a digit to Python, and no number.
    if value.isascii() and value.isdigit():
        return float(value) if len(value) < 10 else 1e9
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=dt.UTC)
        return max(0.0, moment.timestamp() - time.time())
    except (ValueError, OverflowError, TypeError, IndexError):
        return 0.0

"""Talking to a chat server: one question, one answer, with retries, a circuit breaker and a deadline.

Belongs here: what all servers have in common. Does not: one server's own words (`openai`, `doorman`), what is asked
(`prompt`, `schema`) and what an answer is worth (`grounding`). Another gateway joins as another `HttpChatClient`.
"""

import asyncio
import datetime as dt
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Protocol, Self

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from ec1.deployment import ExtractionSettings
from ec1.errors import DeferredError, ServiceError

Messages = Sequence[Mapping[str, str]]

_MAX_ANSWER_BYTES = 4 * 2**20
_LONGEST_PAUSE_SECONDS = 20.0


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
        self, messages: Messages, schema: Mapping[str, Any], *, stream: str, deadline: float | None
    ) -> Completion:
        """Ask once, and again for what is transient, until `deadline` (`time.monotonic` seconds).

        `stream` is where the text is from: a gateway may owe different streams different models.

        Raises DeferredError if this request has no answer (refused, timed out, failed too often), ServiceError if the
        server answers nobody.
        """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AgainError(Exception):
    """A failure that may pass. `retry_after` in seconds, where the server said so."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NoRoomError(AgainError):
    """The server is well and has no room now."""


class TimedOutError(Exception):
    """No answer in time. Not tried again at once: the server may still be working on it."""


class UncountedError(Exception):
    """An answer came that does not count (its `problem` says why), and speaks against the server."""

    def __init__(self, answer: Completion) -> None:
        super().__init__(answer.problem)
        self.answer = answer


class Circuit:
    """Stops asking a server that fails: opens after `threshold` failures in a row, then lets one probe through at a
    time, the first after `cool_down_seconds`, each further one after twice as long. After `rounds` failed probes (with
    the defaults some five minutes) the server is given up.
    """

    def __init__(self, threshold: int = 5, cool_down_seconds: float = 5.0, rounds: int = 6) -> None:
        self.threshold = threshold
        self.cool_down_seconds = cool_down_seconds
        self.rounds = rounds
        self._failures = 0
        self._failed_probes = 0
        self._open_until = 0.0
        self._probe = asyncio.Lock()
        self._reason = ""

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
            self._open_until = time.monotonic() + self.cool_down_seconds * 2**self._failed_probes
            self._reason = str(error)
            raise
        else:
            self._failures = self._failed_probes = 0

    async def _wait(self, deadline: float | None) -> None:
        if self._failed_probes >= self.rounds:
            raise ServiceError(f"the model server does not answer: {self._reason}")
        pause = max(0.0, self._open_until - time.monotonic())
        if deadline is not None and time.monotonic() + pause >= deadline:
            raise ServiceError(f"the model server did not answer again before the deadline: {self._reason}")
        await asyncio.sleep(pause)


class HttpChatClient(ABC):
    """What every server over HTTP has in common; a subclass knows one server's own words.

    `backoff_seconds` scales the random pauses between attempts. `calls` counts requests sent.
    """

    def __init__(
        self,
        url: str,
        settings: ExtractionSettings,
        *,
        backoff_seconds: float = 0.5,
        circuit: Circuit | None = None,
    ) -> None:
        self._url = url
        self._settings = settings
        self._calls = 0
        self._circuit = circuit or Circuit()
        self._backoff = wait_random_exponential(multiplier=backoff_seconds, max=_LONGEST_PAUSE_SECONDS)
        self._http: httpx.AsyncClient | None = None

    @abstractmethod
    def _body(self, messages: Messages, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request's body."""

    @abstractmethod
    def _headers(self, stream: str) -> Mapping[str, str]:
        """The headers of one request; called anew for each attempt."""

    @abstractmethod
    def _completion(self, data: bytes, stream: str) -> Completion:
        """Read the body of a 200. Raises DeferredError if it is none, UncountedError if it does not count."""

    @property
    def calls(self) -> int:
        return self._calls

    @property
    def _longest_seconds(self) -> float:
        """How long one request may take."""
        return self._settings.request_timeout_seconds

    async def __aenter__(self) -> Self:
        limits = httpx.Limits(max_connections=self._settings.max_in_flight, max_keepalive_connections=None)
        # Loopback and private servers only: a proxy from the environment has no business here. Each request has its
        # own time limit as a whole, which a server that dribbles cannot stretch.
        self._http = httpx.AsyncClient(limits=limits, timeout=None, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    async def complete(
        self, messages: Messages, schema: Mapping[str, Any], *, stream: str, deadline: float | None
    ) -> Completion:
        body = self._body(messages, schema)

        def pause(state: RetryCallState) -> float:
            error = state.outcome.exception() if state.outcome else None
            asked = error.retry_after if isinstance(error, AgainError) else 0.0
            return asked + self._backoff(state)

        def enough(state: RetryCallState) -> bool:
            if self._circuit.is_open:
                # A server that fails everybody is no fault of this request: the circuit says when it is given up.
                return False
            if state.attempt_number >= self._settings.max_attempts:
                return True
            if state.upcoming_sleep > self._longest_seconds:
                return True
            return deadline is not None and time.monotonic() + state.upcoming_sleep >= deadline

        retrying = AsyncRetrying(retry=retry_if_exception_type(AgainError), wait=pause, stop=enough, reraise=True)
        attempts = 0
        try:
            async for attempt in retrying:
                attempts += 1
                with attempt:
                    async with self._circuit.turn(deadline):
                        answer = await self._once(body, stream, deadline)
        except UncountedError as error:
            answer = error.answer
        except TimedOutError as error:
            raise DeferredError(str(error)) from None
        except AgainError as error:
            raise DeferredError(f"no answer after {attempts} attempts: {error}") from None
        return replace(answer, attempts=attempts)

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
                async for part in response.aiter_bytes():
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
        if status >= 500 or status == 408:
            raise AgainError(reason, retry_after(response))
        if status in (401, 403, 404):
            raise ServiceError(f"{self._url} refuses us: {reason}; check the deployment's inference settings")
        raise DeferredError(f"the server refused the request: {reason}")


def error_message(data: bytes) -> str:
    """The error message in an answer's body, in one short line."""
    text = data[:2000].decode(errors="replace")
    try:
        error = json.loads(text)["error"]
        text = error["message"] if isinstance(error, dict) else str(error)
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return " ".join(str(text).split())[:200]


def retry_after(response: httpx.Response) -> float:
    """Seconds that the `Retry-After` header asks for, as a number or a date; 0 without one."""
    value = response.headers.get("Retry-After", "").strip()
    if not value:
        return 0.0
    if value.isdigit():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0.0, moment.timestamp() - time.time())

"""One request on its way to the engine and back: who may, which version answers, and the engine's bytes as they come.

Belongs here: an exchange from its first byte to its last, and what is counted of it. Does not: routes, feedback and
lists (`gateway.py`), which version answers (`versions.py`), the engine (`backend.py`).
"""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio
import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from ec1.adapters.decisions import ReleaseDecision
from ec1.errors import EC1Error
from ec1.serving.answers import MAX_ANSWER_BYTES, TokenCount, is_refusal
from ec1.serving.backend import Backend, Connection
from ec1.serving.capture import AnswerCapture, Giver, wanted
from ec1.serving.counts import ServingCounts
from ec1.serving.keys import Key
from ec1.serving.metrics import Metrics
from ec1.serving.refusals import refusal
from ec1.serving.request_log import RequestLog
from ec1.serving.versions import RefusedError, ServedVersion, Versions

log = logging.getLogger(__name__)

MODEL_HEADER = "X-EC1-Model"
USER_HEADER = "x-ec1-user"
_GONE = 499
"""What nginx logs for a client that did not wait; nobody is sent it."""


@dataclass
class Exchange:
    """What becomes of one request. `trial`: the trial that the version is an arm of."""

    begin: float = field(default_factory=time.monotonic)
    key: Key | None = None
    counted: bool = False
    """Whether it is one of its key's requests."""
    at_once: bool = False
    """Whether it is one of those without a whole answer yet."""
    asked: str = ""
    user: str | None = None
    version: ServedVersion | None = None
    trial: ReleaseDecision | None = None
    adapter: str = ""
    status: int = 0
    first_byte: float | None = None
    broken: bool = False
    """Whether the engine went away in the answer."""
    tokens: TokenCount | None = None
    kind: str = ""
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    """Bytes of the answer; the `pieces` are kept up to `MAX_ANSWER_BYTES` of them, if anybody reads them."""

    @property
    def content(self) -> bytes | None:
        """The whole answer, None of one that is too long."""
        return b"".join(self.pieces) if self.size <= MAX_ANSWER_BYTES else None


class Host(Protocol):
    """What an exchange needs of the gateway that it is part of."""

    versions: Versions
    backend: Backend
    counts: ServingCounts
    metrics: Metrics
    capture: AnswerCapture | None
    request_log: RequestLog | None

    def key_of(self, authorization: str | None) -> Key | None: ...
    async def body_of(self, request: Request) -> dict[str, Any]: ...
    async def choose(self, key: Key | None, body: dict[str, Any], user: str | None) -> ServedVersion | None: ...
    def in_background(self, work: Any) -> None: ...
    async def keep(
        self, version: ServedVersion, body: dict[str, Any], kind: str, content: bytes, asker: Giver
    ) -> None: ...
    def answered_in_trial(
        self, version: ServedVersion, trial: ReleaseDecision, *, error: bool, refusal: bool
    ) -> None: ...


class Forwarder:
    """Passes one kind of request on. An ASGI application of its own, to see a client leave at any moment."""

    def __init__(self, gateway: Host, path: str) -> None:
        self.gateway = gateway
        self.path = path
        self._chat = path.endswith("/chat/completions")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, exchange = self.gateway, Exchange()
        request = Request(scope, receive)
        try:
            exchange.key = gateway.key_of(request.headers.get("authorization"))
            gateway.counts.enter(exchange.key)
            exchange.counted = exchange.at_once = True
            body = await gateway.body_of(request)
            exchange.asked, exchange.user = str(body.get("model"))[:200], user_of(body, request)
            connection = gateway.backend.enter()
            try:
                await _unless_gone(receive, self._answer(connection, body, exchange, send))
            finally:
                gateway.backend.leave()
        except ClientDisconnect:
            # It left before its request was whole.
            pass
        except EC1Error as error:
            response = refusal(error)
            exchange.status = response.status_code
            await response(scope, receive, send)
        finally:
            self._whole(exchange)
            if exchange.counted:
                gateway.counts.leave(exchange.key, exchange.tokens.tokens if exchange.tokens else 0)
            self._count(exchange)

    def _whole(self, exchange: Exchange) -> None:
        """Called before the last bytes are sent: who has them may ask again at once."""
        if exchange.at_once:
            exchange.at_once = False
            self.gateway.counts.free(exchange.key)

    def _count(self, exchange: Exchange) -> None:
        gateway, now = self.gateway, time.monotonic()
        status = exchange.status or _GONE
        gateway.metrics.requests.labels(exchange.adapter, str(status)).inc()
        if exchange.first_byte is not None:
            gateway.metrics.first_byte.labels(exchange.adapter).observe(exchange.first_byte - exchange.begin)
            gateway.metrics.duration.labels(exchange.adapter).observe(now - exchange.begin)
        if gateway.request_log is not None:
            first = exchange.first_byte and round((exchange.first_byte - exchange.begin) * 1000, 1)
            gateway.request_log.write(
                {
                    "path": self.path,
                    "key": exchange.key.name if exchange.key else None,
                    "asked": exchange.asked,
                    "answered_by": exchange.adapter or None,
                    "status": status,
                    "broken": exchange.broken,
                    "first_byte_ms": first,
                    "ms": round((now - exchange.begin) * 1000, 1),
                    "bytes": exchange.size,
                    "tokens": exchange.tokens.tokens if exchange.tokens else None,
                }
            )
        if exchange.version is not None and exchange.trial is not None and (status < 400 or status >= 500):
            failed = exchange.broken or exchange.status >= 500
            refused = self._refused(exchange)
            gateway.answered_in_trial(exchange.version, exchange.trial, error=failed, refusal=refused)

    def _refused(self, exchange: Exchange) -> bool:
        content = exchange.content if self._chat and exchange.status == 200 else None
        return content is not None and is_refusal(exchange.kind, content)

    async def _answer(self, connection: Connection, body: dict[str, Any], exchange: Exchange, send: Send) -> None:
        gateway = self.gateway
        try:
            version = await gateway.choose(exchange.key, body, exchange.user)
        except RefusedError as error:
            if error.status == 410 and body["model"] in connection.admitted:
                # Withdrawn since the engine loaded it.
                gateway.in_background(connection.unload(body["model"]))
            raise
        exchange.adapter = version.name if version else gateway.versions.base_model
        if version is not None:
            exchange.version = version
            if "@" not in exchange.asked:
                exchange.trial = (await gateway.versions.role(version.tenant, version.role)).trial
            await connection.admit(version)
        asked = version.name if version else connection.endpoint.model
        await self._forward(connection, {**body, "model": asked}, exchange, send)
        content, capture = exchange.content, gateway.capture
        # A copy that a training kept has no number: what is said of it teaches nothing.
        kept = capture is not None and exchange.status == 200 and self._chat and wanted(body)
        if version is not None and version.number and kept:
            asker = Giver(exchange.key.name if exchange.key else "", exchange.user)
            if content is not None:
                gateway.in_background(gateway.keep(version, body, exchange.kind, content, asker))

    async def _forward(self, connection: Connection, body: dict[str, Any], exchange: Exchange, send: Send) -> None:
        # Under an id of ours: the engine names its answer after it, and nobody else can guess or choose it.
        identifier = uuid.uuid4().hex
        counting = exchange.key is not None and exchange.key.limits.tokens_per_day is not None
        hide = False
        if counting and body.get("stream") and not self.path.endswith("/responses"):
            options = body.get("stream_options")
            hide = not (isinstance(options, dict) and options.get("include_usage"))
            body = {**body, "stream_options": {**(options if isinstance(options, dict) else {}), "include_usage": True}}
        upstream = connection.client.build_request(
            "POST",
            self.path,
            content=json.dumps(body, ensure_ascii=False, allow_nan=False).encode(),
            headers={"X-Request-Id": identifier, "Accept-Encoding": "identity", "Content-Type": "application/json"},
        )
        answer = await _sent(connection.client, upstream)
        try:
            exchange.status, exchange.kind = answer.status_code, answer.headers.get("content-type", "")
            if counting or "application/json" in exchange.kind:
                exchange.tokens = TokenCount(exchange.kind, hide=hide)
            headers = _headers(answer, exchange.adapter, identifier)
            await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
            await self._pass_on(answer, exchange, send)
            self._whole(exchange)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except httpx.HTTPError as error:
            # The client sees an answer that was cut off, never one that seems whole: uvicorn closes the connection of
            # an answer without an end.
            exchange.broken = True
            log.warning("the engine went away in an answer of %s: %s", exchange.adapter, type(error).__name__)
        finally:
            with anyio.CancelScope(shield=True):
                # The engine stops writing an answer that nobody reads.
                await answer.aclose()

    async def _pass_on(self, answer: httpx.Response, exchange: Exchange, send: Send) -> None:
        read = self._chat and exchange.version is not None and (self.gateway.capture or exchange.trial)
        length = int(answer.headers.get("content-length", -1))
        async for piece in answer.aiter_raw():
            if exchange.first_byte is None:
                exchange.first_byte = time.monotonic()
            exchange.size += len(piece)
            if exchange.size == length:
                self._whole(exchange)
            if read and exchange.size <= MAX_ANSWER_BYTES:
                exchange.pieces.append(piece)
            shown = piece if exchange.tokens is None else exchange.tokens.passed(piece)
            if shown:
                await send({"type": "http.response.body", "body": shown, "more_body": True})
        if exchange.tokens is not None and (left := exchange.tokens.ended()):
            await send({"type": "http.response.body", "body": left, "more_body": True})


async def _sent(client: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """Send a request until its answer begins. Raises RefusedError.

    Once more if the connection broke before a byte of the answer came: the engine closes idle connections when it
    likes, and a request that meets that is not the client's fault.
    """
    try:
        try:
            return await client.send(request, stream=True)
        except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
            return await client.send(request, stream=True)
    except httpx.HTTPError as error:
        timed_out = isinstance(error, httpx.TimeoutException)
        message = f"the engine does not answer: {type(error).__name__}"
        raise RefusedError(504 if timed_out else 503, message, retry_after=5) from None


def _headers(answer: httpx.Response, adapter: str, identifier: str) -> list[tuple[bytes, bytes]]:
    found = {MODEL_HEADER.lower(): adapter, "x-request-id": identifier}
    # An answer that is counted may be shorter by an event: a stream has no length.
    found |= {name: answer.headers[name] for name in ("content-type", "content-length") if name in answer.headers}
    return [(name.encode(), value.encode()) for name, value in found.items()]


async def _unless_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work until the client leaves: what it asked for is given up then."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        left = not working.done()
        working.cancel()
    try:
        await working
    except asyncio.CancelledError:
        if not left:
            raise


def user_of(body: dict[str, Any], request: Request) -> str | None:
    """Who asks, for a trial that keeps its users: `safety_identifier`, `user` or a header."""
    for value in (body.get("safety_identifier"), body.get("user"), request.headers.get(USER_HEADER)):
        if isinstance(value, str) and value:
            return value
    return None

"""The address that applications use: OpenAI's API in front of the engine, one version chosen for each request.

A thin ASGI application. It checks the key, puts `tenant/role@vN` in place of the name that was asked for, and passes
the engine's bytes on as they come. The engine then says in `model`, and we in `X-EC1-Model`, who answered.

Belongs here: HTTP towards clients. Does not: which version answers (`versions.py`), the engine (`backend.py`,
`keeper.py`), what is kept of an answer (`capture.py`).
"""

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import anyio
import httpx
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ec1.errors import EC1Error
from ec1.serving.backend import Backend, Connection
from ec1.serving.capture import MAX_ANSWER_BYTES, AnswerCapture, Feedback, wanted
from ec1.serving.keys import Key, Keys
from ec1.serving.metrics import Metrics
from ec1.serving.versions import RefusedError, ServedVersion, Versions, parse_name

MODEL_HEADER = "X-EC1-Model"
USER_HEADER = "x-ec1-user"
_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}


@dataclass
class _Exchange:
    """One request on its way."""

    begin: float
    adapter: str = ""
    status: int = 0
    first_byte: float | None = None
    keep: Callable[[str, bytes], None] | None = None
    """Takes the content type and the bytes of the whole answer, if it is to be kept."""


class Gateway:
    """The application. `key_needed`: whether a request without a key is refused."""

    def __init__(
        self,
        versions: Versions,
        backend: Backend,
        keys: Keys,
        *,
        key_needed: bool,
        max_request_bytes: int,
        capture: AnswerCapture | None = None,
    ) -> None:
        self.versions = versions
        self.backend = backend
        self.keys = keys
        self.capture = capture
        self.metrics = Metrics()
        self._key_needed = key_needed
        self._max_request_bytes = max_request_bytes
        self._background: set[asyncio.Task[None]] = set()
        chat, completions = _Forwarder(self, "/v1/chat/completions"), _Forwarder(self, "/v1/completions")
        self.app = Starlette(
            routes=[
                Route(chat.path, chat, methods=["POST"]),
                Route(completions.path, completions, methods=["POST"]),
                Route("/v1/feedback", self._feedback, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/healthz", self._healthz, methods=["GET"]),
                Route("/readyz", self._readyz, methods=["GET"]),
                Route("/metrics", self._metrics, methods=["GET"]),
            ]
        )

    def key_of(self, authorization: str | None) -> Key | None:
        """The request's key; None where none is needed. Raises RefusedError."""
        if not self._key_needed:
            return None
        key = self.keys.find(authorization)
        if key is None:
            raise RefusedError(401, "this server needs an API key: send `Authorization: Bearer …`")
        return key

    async def body_of(self, request: Request) -> dict[str, Any]:
        """The request's JSON object. Raises RefusedError."""
        pieces, size = [], 0
        async for piece in request.stream():
            size += len(piece)
            if size > self._max_request_bytes:
                raise RefusedError(413, f"the request is larger than {self._max_request_bytes / 2**20:g} MiB")
            pieces.append(piece)
        try:
            body = json.loads(b"".join(pieces))
        except (ValueError, RecursionError):
            raise RefusedError(400, "the request is not valid JSON") from None
        if not isinstance(body, dict):
            raise RefusedError(400, "the request is not a JSON object")
        return body

    async def choose(self, key: Key | None, body: dict[str, Any], user: str | None) -> ServedVersion | None:
        """The version that answers; None: the base. Raises RefusedError."""
        name = body.get("model")
        if not isinstance(name, str) or not name:
            raise RefusedError(400, "the request names no model: ask for tenant/role, tenant/role@vN or the base")
        parsed = parse_name(name)
        if key is not None and parsed is not None and not key.allows(parsed[0]):
            raise RefusedError(403, f"the key {key.name!r} is not for tenant {parsed[0]}")
        return await self.versions.resolve(name, user)

    def in_background(self, work: Any) -> None:
        """Run a coroutine that no request waits for."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _feedback(self, request: Request) -> Response:
        try:
            key = self.key_of(request.headers.get("authorization"))
            body = await self.body_of(request)
            if self.capture is None:
                raise RefusedError(403, "answers are not kept here: serving.capture.consent is off")
            try:
                given = Feedback.model_validate(body)
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join(map(str, first["loc"])) or "feedback"
                raise RefusedError(400, f"{where}: {first['msg'].removeprefix('Value error, ')}") from None
            outcome = await self.capture.feedback(given, lambda tenant: key is None or key.allows(tenant))
        except EC1Error as error:
            return refusal(error)
        self.metrics.feedback.labels(outcome.version.name, outcome.verdict).inc()
        return JSONResponse(
            {"model": outcome.version.name, "tuple": outcome.digest, "reason": outcome.reason},
            headers={MODEL_HEADER: outcome.version.name},
        )

    async def keep(self, version: ServedVersion, body: dict[str, Any], kind: str, content: bytes) -> None:
        """Keep an answer for feedback, and count it if that cannot be."""
        assert self.capture is not None
        reason = await self.capture.keep(version, body, kind, content)
        if reason is not None:
            self.metrics.uncaptured.labels(reason).inc()

    async def _models(self, request: Request) -> Response:
        try:
            key = self.key_of(request.headers.get("authorization"))
            names = await asyncio.to_thread(self.versions.listed)
        except EC1Error as error:
            return refusal(error)
        shown = [name for name in names if key is None or (who := parse_name(name)) is None or key.allows(who[0])]
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "ec1"} for name in shown]
        return JSONResponse({"object": "list", "data": models})

    async def _healthz(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:
        state = self.backend.state
        return JSONResponse({"ready": state is None, "state": state or "serving"}, 200 if state is None else 503)

    async def _metrics(self, request: Request) -> Response:
        try:
            self.key_of(request.headers.get("authorization"))
        except EC1Error as error:
            return refusal(error)
        self.metrics.in_flight.set(self.backend.in_flight)
        self.metrics.ready.set(self.backend.state is None)
        return Response(self.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


class _Forwarder:
    """Passes one kind of request on. An ASGI application of its own, to see a client leave at any moment."""

    def __init__(self, gateway: Gateway, path: str) -> None:
        self.gateway = gateway
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway, exchange = self.gateway, _Exchange(time.monotonic())
        request = Request(scope, receive)
        try:
            key = gateway.key_of(request.headers.get("authorization"))
            body = await gateway.body_of(request)
            user = _user_of(body, request)
            connection = gateway.backend.enter()
            try:
                await _unless_gone(receive, self._answer(connection, key, body, user, exchange, send))
            finally:
                gateway.backend.leave()
        except EC1Error as error:
            response = refusal(error)
            exchange.status = response.status_code
            await response(scope, receive, send)
        finally:
            metrics, now = gateway.metrics, time.monotonic()
            metrics.requests.labels(exchange.adapter, str(exchange.status or 499)).inc()
            if exchange.first_byte is not None:
                metrics.first_byte.labels(exchange.adapter).observe(exchange.first_byte - exchange.begin)
                metrics.duration.labels(exchange.adapter).observe(now - exchange.begin)

    async def _answer(
        self,
        connection: Connection,
        key: Key | None,
        body: dict[str, Any],
        user: str | None,
        exchange: _Exchange,
        send: Send,
    ) -> None:
        gateway = self.gateway
        try:
            version = await gateway.choose(key, body, user)
        except RefusedError as error:
            if error.status == 410 and body["model"] in connection.admitted:
                # Withdrawn since the engine loaded it.
                gateway.in_background(connection.unload(body["model"]))
            raise
        if version is not None:
            await connection.admit(version)
            if gateway.capture is not None and self.path.endswith("/chat/completions") and wanted(body):
                exchange.keep = lambda kind, content: gateway.in_background(gateway.keep(version, body, kind, content))
        exchange.adapter = version.name if version else gateway.versions.base_model
        await self._forward(connection, {**body, "model": exchange.adapter}, exchange, send)

    async def _forward(self, connection: Connection, body: dict[str, Any], exchange: _Exchange, send: Send) -> None:
        # Under an id of ours: the engine names its answer after it, and nobody else can guess or choose it.
        identifier = uuid.uuid4().hex
        upstream = connection.client.build_request(
            "POST", self.path, json=body, headers={"X-Request-Id": identifier, "Accept-Encoding": "identity"}
        )
        started = False
        kept, size = [], 0
        try:
            answer = await connection.client.send(upstream, stream=True)
            try:
                headers = [
                    (MODEL_HEADER.lower().encode(), exchange.adapter.encode()),
                    (b"x-request-id", identifier.encode()),
                ]
                for name in ("content-type", "content-length"):
                    if name in answer.headers:
                        headers.append((name.encode(), answer.headers[name].encode()))
                exchange.status = answer.status_code
                await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
                started = True
                async for piece in answer.aiter_raw():
                    if exchange.first_byte is None:
                        exchange.first_byte = time.monotonic()
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                    if exchange.keep is not None and (size := size + len(piece)) <= MAX_ANSWER_BYTES:
                        kept.append(piece)
                if exchange.keep is not None and answer.status_code == 200 and size <= MAX_ANSWER_BYTES:
                    exchange.keep(answer.headers.get("content-type", ""), b"".join(kept))
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                with anyio.CancelScope(shield=True):
                    # The engine stops writing an answer that nobody reads.
                    await answer.aclose()
        except httpx.HTTPError as error:
            if started:
                # The client sees an answer that was cut off, never one that seems whole.
                raise ConnectionAbortedError(f"the engine went away in an answer: {type(error).__name__}") from None
            timed_out = isinstance(error, httpx.TimeoutException)
            message = f"the engine does not answer: {type(error).__name__}"
            raise RefusedError(504 if timed_out else 503, message, retry_after=5) from None


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


def refusal(error: EC1Error) -> JSONResponse:
    """An error as OpenAI's API words it."""
    status = error.status if isinstance(error, RefusedError) else 503
    headers = {}
    if isinstance(error, RefusedError) and error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return JSONResponse(
        {"error": {"message": str(error), "type": kind, "param": None, "code": status}}, status, headers
    )


def _user_of(body: dict[str, Any], request: Request) -> str | None:
    """Who asks, for a trial that keeps its users: `safety_identifier`, `user` or a header."""
    for value in (body.get("safety_identifier"), body.get("user"), request.headers.get(USER_HEADER)):
        if isinstance(value, str) and value:
            return value
    return None

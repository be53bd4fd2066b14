"""The address that applications use: OpenAI's API in front of the engine, one version chosen for each request.

A thin ASGI application. It checks the key, puts `tenant/role@vN` in place of the name that was asked for, and passes
the engine's bytes on as they come. The engine then says in `model`, and we in `X-EC1-Model`, who answered.

Belongs here: routes, keys, lists of models, feedback. Does not: an exchange with the engine (`forwarding.py`), which
version answers (`versions.py`), the engine (`backend.py`, `keeper.py`), what is kept of an answer (`capture.py`).
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ec1.adapters.decisions import ReleaseDecision
from ec1.errors import EC1Error, InputError
from ec1.serving.backend import Backend
from ec1.serving.canary import Canary
from ec1.serving.capture import AnswerCapture, Feedback, Giver
from ec1.serving.counts import ServingCounts
from ec1.serving.forwarding import MODEL_HEADER, USER_HEADER, Forwarder
from ec1.serving.keys import Key, Keys
from ec1.serving.metrics import Metrics
from ec1.serving.refusals import refusal
from ec1.serving.request_log import RequestLog
from ec1.serving.steps import ServedStep, folder_of, kept_steps, parse_step
from ec1.serving.versions import RefusedError, ServedVersion, Versions, parse_name

_ASKED = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
_NOT_SERVED = ("/v1/embeddings", "/v1/moderations", "/v1/audio/{rest:path}", "/v1/images/{rest:path}")
_LOOK_SECONDS = 1.0


class Gateway:
    """The application. `key_needed`: whether a request without a key is refused. `runs`: the log book, if copies that
    trainings kept can be asked."""

    def __init__(
        self,
        versions: Versions,
        backend: Backend,
        keys: Keys,
        *,
        counts: ServingCounts,
        key_needed: bool,
        max_request_bytes: int,
        capture: AnswerCapture | None = None,
        canary: Canary | None = None,
        request_log: RequestLog | None = None,
        runs: Path | None = None,
    ) -> None:
        self.versions = versions
        self.backend = backend
        self.keys = keys
        self.capture = capture
        self.metrics = Metrics()
        self.runs = runs
        self._key_needed = key_needed
        self._max_request_bytes = max_request_bytes
        self._background: set[asyncio.Task[None]] = set()
        self.counts, self.request_log = counts, request_log
        self._canary = canary
        self._looked: dict[tuple[str, str], float] = {}
        self.app = Starlette(
            routes=[
                *(Route(path, Forwarder(self, path), methods=["POST"]) for path in _ASKED),
                *(Route(path, self._not_served, methods=["GET", "POST"]) for path in _NOT_SERVED),
                Route("/v1/feedback", self._feedback, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/models/{name:path}", self._model, methods=["GET"]),
                Route("/healthz", self._healthz, methods=["GET"]),
                Route("/readyz", self._readyz, methods=["GET"]),
                Route("/metrics", self._metrics, methods=["GET"]),
            ],
            exception_handlers={404: _no_route, 405: _no_route, EC1Error: _refused, ClientDisconnect: _left},
        )

    def close(self) -> None:
        """Finish what was begun."""
        if self.capture is not None:
            self.capture.close()
        if self.request_log is not None:
            self.request_log.close()
        self.counts.close()

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
            body = json.loads(b"".join(pieces), parse_constant=_no_constant)
            # Half a surrogate pair and a number beyond all bounds are read without complaint, and cannot be sent on.
            json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            raise RefusedError(400, "the request is not valid JSON: text is UTF-8, numbers are finite") from None
        if not isinstance(body, dict):
            raise RefusedError(400, "the request is not a JSON object")
        return body

    async def choose(self, key: Key | None, body: dict[str, Any], user: str | None) -> ServedVersion | None:
        """The version that answers; None: the base. Raises RefusedError."""
        name = body.get("model")
        if not isinstance(name, str) or not name:
            raise RefusedError(400, "the request names no model: ask for tenant/role, tenant/role@vN or the base")
        tenant = _tenant_of(name)
        if key is not None and tenant is not None and not key.allows(tenant):
            raise RefusedError(403, f"the key {key.name!r} is not for tenant {tenant}")
        if self.runs is not None and (copy := parse_step(name)) is not None:
            await asyncio.to_thread(_checked, self.runs, self.versions.base_model, copy)
            return copy
        return await self.versions.resolve(name, user)

    def in_background(self, work: Any) -> None:
        """Run a coroutine that no request waits for."""
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def answered_in_trial(self, version: ServedVersion, trial: ReleaseDecision, *, error: bool, refusal: bool) -> None:
        """Count an answer of a trial's arm, and look once in a while whether one is worse than the version in use."""
        if self._canary is None:
            return
        self._canary.answered(version, trial, error=error, refusal=refusal)
        role, now = (version.tenant, version.role), time.monotonic()
        if now - self._looked.get(role, -_LOOK_SECONDS) >= _LOOK_SECONDS:
            self._looked[role] = now
            self.in_background(self._look(*role))

    async def _look(self, tenant: str, role: str) -> None:
        try:
            state = await self.versions.role(tenant, role)
        except RefusedError:
            return
        if self._canary is not None and state.trial is not None:
            number = state.in_use.number if state.in_use else None
            for name in await asyncio.to_thread(self._canary.look, tenant, role, state.trial, number):
                self.metrics.rolled_back.labels(name).inc()

    async def _feedback(self, request: Request) -> Response:
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
        giver = Giver(key.name if key else "", request.headers.get(USER_HEADER))
        outcome = await self.capture.feedback(given, giver, lambda tenant: key is None or key.allows(tenant))
        self.metrics.feedback.labels(outcome.version.name, outcome.verdict).inc()
        return JSONResponse(
            {
                "model": outcome.version.name,
                "tuple": outcome.digest,
                "held": outcome.held,
                "reason": outcome.reason,
            },
            headers={MODEL_HEADER: outcome.version.name},
        )

    async def keep(self, version: ServedVersion, body: dict[str, Any], kind: str, content: bytes, asker: Giver) -> None:
        """Keep an answer for feedback, and count it if that cannot be."""
        assert self.capture is not None
        reason = await self.capture.keep(version, body, kind, content, asker)
        if reason is not None:
            self.metrics.uncaptured.labels(reason).inc()

    async def _models(self, request: Request) -> Response:
        key = self.key_of(request.headers.get("authorization"))
        names = await asyncio.to_thread(self.versions.listed)
        if self.runs is not None:
            names += await asyncio.to_thread(kept_steps, self.runs, self.versions.base_model)
        shown = [name for name in names if key is None or (who := _tenant_of(name)) is None or key.allows(who)]
        return JSONResponse({"object": "list", "data": [_described(name) for name in shown]})

    async def _model(self, request: Request) -> Response:
        key, name = self.key_of(request.headers.get("authorization")), request.path_params["name"]
        await self.choose(key, {"model": name}, None)
        return JSONResponse(_described(name))

    async def _not_served(self, request: Request) -> Response:
        self.key_of(request.headers.get("authorization"))
        raise RefusedError(400, f"{request.url.path} is not served: the models here write text; ask one of {_ASKED}")

    async def _healthz(self, request: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:
        state = self.backend.state or await self.backend.silent()
        return JSONResponse({"ready": state is None, "state": state or "serving"}, 200 if state is None else 503)

    async def _metrics(self, request: Request) -> Response:
        self.key_of(request.headers.get("authorization"))
        self.metrics.in_flight.set(self.backend.in_flight)
        self.metrics.ready.set(self.backend.state is None)
        return Response(self.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _tenant_of(name: str) -> str | None:
    found = parse_name(name)
    if found is not None:
        return found[0]
    copy = parse_step(name)
    return None if copy is None else copy.tenant


def _checked(runs: Path, base_model: str, copy: ServedStep) -> None:
    """Raises RefusedError for a copy that is not there, or not whole."""
    try:
        folder_of(runs, base_model, copy)
    except InputError as error:
        raise RefusedError(404, str(error)) from None


def _described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "ec1"}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


async def _no_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = "is not served here" if status == 404 else f"takes no {request.method}"
    return refusal(RefusedError(status, f"{request.url.path[:200]} {what}"))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, EC1Error)
    return refusal(error)


async def _left(request: Request, error: Exception) -> Response:
    # Nobody reads it.
    return Response(status_code=400)

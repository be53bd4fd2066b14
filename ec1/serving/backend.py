"""The engine as the gateway sees it: there or not and why, how many requests run on it, which versions it really has.

Belongs here: what the thread that keeps the engine (`keeper.py`) and the gateway's event loop share, and the check that
an adapter has an effect. Does not: starting and stopping (`keeper.py`), and HTTP towards clients (`gateway.py`).
"""

import asyncio
import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from ec1.gpu.engine import Endpoint
from ec1.http import authorization, trusted
from ec1.serving.versions import RefusedError, ServedVersion

PROBES = (
    "The minutes of the meeting were approved, and the next step is",
    "def add(a, b):\n    return",
)
# Engines close what was idle for 5 s (uvicorn's default), we before that.
_IDLE_SECONDS = 2.0
_HEALTH_SECONDS = 1.0
# Two runs of the same weights agree far better than this.
_SAME_NATS = 1e-4


@dataclass
class Connection:
    """One running engine: its client, and the versions that were seen to change its answers."""

    endpoint: Endpoint
    client: httpx.AsyncClient
    admitted: set[str] = field(default_factory=set)
    refused: dict[str, RefusedError] = field(default_factory=dict)
    _base: list[list[float]] | None = None
    _locks: dict[str, asyncio.Lock] = field(default_factory=dict)

    async def admit(self, version: ServedVersion) -> None:
        """Make sure that the engine answers as this version, by loading it if need be. Raises RefusedError.

        Its answers must differ from the base's: tensors that do not fit are dropped silently, and the base would
        answer in the adapter's name.
        """
        name = version.name
        if name in self.admitted:
            return
        # Not on behalf of the one request that came first: if its client leaves, the others still wait for this.
        await asyncio.shield(asyncio.ensure_future(self._admit(name)))

    async def _admit(self, name: str) -> None:
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name in self.admitted:
                return
            if name in self.refused:
                raise self.refused[name]
            if self._base is None:
                self._base = [await self._logprobs(self.endpoint.model, probe) for probe in PROBES]
            after = [await self._logprobs(name, probe) for probe in PROBES]
            pairs = zip(self._base, after, strict=True)
            changes = [abs(x - y) for one, other in pairs for x, y in zip(one, other, strict=True)]
            if max(changes) < _SAME_NATS:
                await self.unload(name)
                self.refused[name] = RefusedError(
                    502, f"{name} changes no answer of {self.endpoint.model}: the engine dropped its tensors"
                )
                raise self.refused[name]
            self.admitted.add(name)

    async def unload(self, name: str) -> None:
        """Take a version out of the engine; nothing happens if it does not have it."""
        self.admitted.discard(name)
        await self._post("/v1/unload_lora_adapter", {"lora_name": name})

    async def _logprobs(self, model: str, prompt: str) -> list[float]:
        """Log-probability of each token of the prompt but the first."""
        request = {"model": model, "prompt": prompt, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        answer = await self._post("/v1/completions", request)
        if answer.status_code in (400, 404):
            # Not remembered: what was damaged may be mended.
            raise RefusedError(502, f"the engine does not take {model}; its log says why")
        try:
            places = answer.json()["choices"][0]["prompt_logprobs"][1:]
            return [next(iter(place.values()))["logprob"] for place in places]
        except (ValueError, KeyError, IndexError, TypeError, StopIteration, AttributeError):
            raise RefusedError(
                502, f"the engine gave no log-probabilities for {model} (status {answer.status_code}): is it a vLLM?"
            ) from None

    async def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        try:
            return await self.client.post(path, json=body)
        except httpx.HTTPError as error:
            raise RefusedError(503, f"the engine does not answer: {type(error).__name__}", retry_after=5) from None


class Backend:
    """Whether there is an engine now. Opened and closed by the keeper's thread, used by the gateway's event loop."""

    def __init__(self, *, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._lock = threading.Lock()
        self._endpoint: Endpoint | None = None
        self._why = "the engine is starting"
        self._retry_after = 30
        self._in_flight = 0
        self._connection: Connection | None = None
        self._looked = (-math.inf, True)

    def open(self, endpoint: Endpoint) -> None:
        """From now on requests go to this engine."""
        with self._lock:
            self._endpoint = endpoint

    def close(self, why: str, *, retry_after: int = 30) -> None:
        """From now on no request is taken; those that run go on. `why` and `retry_after` seconds are what clients are
        told."""
        with self._lock:
            self._endpoint, self._why, self._retry_after = None, why, retry_after

    @property
    def state(self) -> str | None:
        """Why nothing is answered now; None if requests are."""
        with self._lock:
            return None if self._endpoint else self._why

    async def silent(self) -> str | None:
        """Why the engine, which should be there, does not answer; None if it does. Asked at most once a second."""
        at, answers = self._looked
        if time.monotonic() - at >= _HEALTH_SECONDS:
            try:
                connection = self.enter()
            except RefusedError as error:
                return str(error)
            try:
                answer = await connection.client.get("/v1/models", timeout=5)
                answers = answer.status_code < 500
            except httpx.HTTPError:
                answers = False
            finally:
                self.leave()
            self._looked = (time.monotonic(), answers)
        return None if answers else "the engine does not answer"

    @property
    def in_flight(self) -> int:
        with self._lock:
            return self._in_flight

    def enter(self) -> Connection:
        """Count a request in; `leave` must follow. Raises RefusedError if there is no engine now.

        One step under the lock, so that who has closed and sees nothing in flight may stop the engine.
        """
        with self._lock:
            if self._endpoint is None:
                raise RefusedError(503, self._why, retry_after=self._retry_after)
            if self._connection is None or self._connection.endpoint is not self._endpoint:
                if self._connection is not None:
                    self._closing = asyncio.ensure_future(self._connection.client.aclose())
                self._connection = Connection(self._endpoint, self._client(self._endpoint))
            self._in_flight += 1
            return self._connection

    def leave(self) -> None:
        """Count a request out."""
        with self._lock:
            self._in_flight -= 1

    def _client(self, endpoint: Endpoint) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=endpoint.base_url,
            headers=authorization(endpoint.api_key),
            timeout=httpx.Timeout(self._timeout, connect=5),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE_SECONDS),
            # Not through a proxy of the environment: the engine is on this machine.
            trust_env=False,
            verify=trusted(),
        )

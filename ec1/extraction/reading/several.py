"""One model behind several addresses: each request goes to the server that has the fewest, and past one that fails.

A server that fails is left out for seconds, then for longer, up to two minutes; then it is asked whether it serves the
model (`/v1/models`), and comes back if it does. So servers that are restarted one after the other lose nothing. Belongs
here: the choice, the next one, and who is in. Does not: how one server is asked (`client.py`).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from ec1.errors import DeferredError, ServiceError
from ec1.extraction.reading.client import (
    ChatClient,
    Circuit,
    Completion,
    FailedOftenError,
    Messages,
    NoTimeError,
    ServerFaultError,
)
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.settings import ExtractionSettings, ServerSettings

log = logging.getLogger(__name__)

COOL_DOWN_SECONDS = 0.5
ROUNDS = 3
FIRST_PAUSE_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 120.0
ALONE_PAUSE_SECONDS = 5.0
"""Between two looks at a server while none is in."""
PATIENCE_SECONDS = 240.0
"""How long none may be in before the extraction ends; one server alone is given up after as long (`Circuit`)."""
_LOOK_SECONDS = 0.05
_JOIN_SECONDS = 1.0


def server_client(
    server: ServerSettings, settings: ExtractionSettings, *, patience_seconds: float = PATIENCE_SECONDS
) -> ChatClient:
    """A client of a server that somebody else keeps running, and of its replicas. Raises InputError as `key`."""
    key = server.key()
    if not server.replicas:
        return OpenAIClient(server.base_url, server.served_name, settings, api_key=key, answers_as=server.answers_as)

    def client_of(address: str, circuit: Circuit) -> OpenAIClient:
        return OpenAIClient(
            address, server.served_name, settings, api_key=key, answers_as=server.answers_as, circuit=circuit
        )

    addresses = (server.base_url, *server.replicas)
    return SeveralClients(Servers(lambda: addresses, client_of, settings.max_attempts), patience_seconds)


class Servers:
    """The servers at the addresses that there are by now, each once, however often it is asked."""

    def __init__(
        self,
        addresses: Callable[[], Iterable[str]],
        client_of: Callable[[str, Circuit], OpenAIClient],
        max_attempts: int,
    ) -> None:
        self._addresses = addresses
        self._client_of = client_of
        self._max_attempts = max_attempts
        self._known: dict[str, Replica] = {}

    def __call__(self) -> "list[Replica]":
        for each in self._addresses():
            if each not in self._known:
                circuit = circuit_of_one(self._max_attempts)
                self._known[each] = Replica(each, self._client_of(each, circuit), circuit)
        return list(self._known.values())


def circuit_of_one(max_attempts: int) -> Circuit:
    """Gives a server up within seconds, as there are others, and before a request has used up its attempts."""
    return Circuit(max(1, min(3, max_attempts - 1)), cool_down_seconds=COOL_DOWN_SECONDS, rounds=ROUNDS)


class Replica:
    """One of the servers. It is out at first: it has not said yet that it serves the model."""

    def __init__(self, name: str, client: OpenAIClient, circuit: Circuit) -> None:
        self.name = name
        self.client = client
        self.in_flight = 0
        self.stays = 0
        """How often it came in. A failure of a request that went out before counts once."""
        self.is_in = False
        self.reason = ""
        self._circuit = circuit
        self._failures = 0
        self._out_until = 0.0
        self.is_asked = False
        """Whether it is being asked just now if it serves the model."""

    def answered(self) -> None:
        """It gave an answer that counts."""
        self._failures = 0

    def leave(self, reason: str) -> None:
        """It is out from now on, for longer each time, until it gives an answer that counts."""
        if not self.reason:
            log.warning("%s is left out until it serves the model: %s", self.name, reason)
        self.is_in, self.reason = False, reason
        self._out_until = time.monotonic() + min(FIRST_PAUSE_SECONDS * 2**self._failures, LONGEST_PAUSE_SECONDS)
        self._failures += 1

    def hurry(self) -> None:
        """Nobody else is in."""
        self._out_until = min(self._out_until, time.monotonic() + ALONE_PAUSE_SECONDS)

    @property
    def is_due(self) -> bool:
        """Whether it is time to ask it how it is."""
        return not self.is_in and not self.is_asked and time.monotonic() >= self._out_until

    async def come_back(self) -> None:
        """Ask whether it serves the model; it is in if it does."""
        self.is_asked = True
        try:
            if reason := await self.client.why_not_served():
                self.leave(reason)
                return
        finally:
            self.is_asked = False
        if self.reason:
            log.warning("%s serves the model again", self.name)
        self._circuit.forget()
        self.is_in, self.reason = True, ""
        self.stays += 1


class SeveralClients:
    """A `ChatClient` of servers that serve the same model. With `decides`, of their log-probabilities.

    While none is in, requests wait for `patience_seconds`, as far as the deadline lets them.
    """

    def __init__(self, servers: Servers, patience_seconds: float, *, decides: bool = False) -> None:
        """`servers` are asked about every second for those that were not there before."""
        self._servers = servers
        self._patience_seconds = patience_seconds
        self._decides = decides
        self._looked = float("-inf")
        self._replicas: list[Replica] = []
        self._clients: dict[str, ChatClient] = {}
        self._alone_since: float | None = None
        self._stack = AsyncExitStack()

    @property
    def calls(self) -> int:
        return sum(client.calls for client in self._clients.values())

    def decider(self) -> ChatClient:
        return SeveralClients(self._servers, self._patience_seconds, decides=True)

    async def complete(
        self, messages: Messages, schema: Mapping[str, Any], *, stream: str, deadline: float | None, variation: int = 0
    ) -> Completion:
        tried: set[str] = set()
        fault: DeferredError | None = None
        uncounted: Completion | None = None
        while (chosen := await self._next(tried, deadline)) is not None:
            stay = chosen.stays
            chosen.in_flight += 1
            try:
                answer = await self._clients[chosen.name].complete(
                    messages, schema, stream=stream, deadline=deadline, variation=variation
                )
            except ServiceError as error:
                if chosen.is_in and chosen.stays == stay:
                    chosen.leave(str(error))
                continue
            except (ServerFaultError, FailedOftenError) as error:
                fault = error
            else:
                if answer.problem is None:
                    chosen.answered()
                    return answer
                uncounted = answer
            finally:
                chosen.in_flight -= 1
            tried.add(chosen.name)
        # Where some serve, and none of them this one, it is deferred, and the others go on.
        if uncounted is not None:
            return uncounted
        assert fault is not None
        raise fault

    async def _next(self, tried: Collection[str], deadline: float | None) -> Replica | None:
        """The server that is in and has the fewest requests; None if all that are in were tried.

        Raises ServiceError if none comes back in time, NoTimeError if the deadline passes before.
        """
        while True:
            await self._let_join()
            for each in self._replicas:
                if each.is_due:
                    await each.come_back()
            here = [each for each in self._replicas if each.is_in]
            left = [each for each in here if each.name not in tried]
            if here:
                self._alone_since = None
                if left:
                    return min(left, key=lambda each: each.in_flight)
                if not any(each.is_asked for each in self._replicas if each.name not in tried):
                    return None
            now = time.monotonic()
            if not here:
                self._alone_since = self._alone_since or now
            if deadline is not None and now >= deadline:
                raise NoTimeError("no server answered before the deadline")
            if self._alone_since is not None and now - self._alone_since > self._patience_seconds:
                raise ServiceError(f"no server answers: {'; '.join(sorted({each.reason for each in self._replicas}))}")
            if not here:
                for each in self._replicas:
                    each.hurry()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _let_join(self) -> None:
        now = time.monotonic()
        if now - self._looked < _JOIN_SECONDS:
            return
        self._looked = now
        for new in self._servers():
            if new.name not in self._clients:
                client = new.client.decider() if self._decides else new.client
                self._clients[new.name] = await self._stack.enter_async_context(client)
                self._replicas.append(new)

    async def __aenter__(self) -> Self:
        await self._let_join()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

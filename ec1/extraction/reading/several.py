"""One model behind several addresses: each request goes to the server that has the fewest, and past one that fails.

Belongs here: the choice, and the next one. Does not: how one server is asked (`client.py`).
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from ec1.errors import ServiceError
from ec1.extraction.reading.client import ChatClient, Circuit, Completion, Messages, ServerFaultError
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.settings import ExtractionSettings, ServerSettings

log = logging.getLogger(__name__)

COOL_DOWN_SECONDS = 0.5
ROUNDS = 3


def server_client(server: ServerSettings, settings: ExtractionSettings) -> ChatClient:
    """A client of a server that somebody else keeps running, and of its replicas."""
    if not server.replicas:
        return OpenAIClient(server.base_url, server.model, settings)
    addresses = list(dict.fromkeys([server.base_url, *server.replicas]))
    clients = [
        OpenAIClient(each, server.model, settings, circuit=circuit_of_one(settings.max_attempts)) for each in addresses
    ]
    return SeveralClients(clients, addresses)


def circuit_of_one(max_attempts: int) -> Circuit:
    """Gives a server up within seconds, as there are others, and before a request has used up its attempts."""
    return Circuit(max(1, min(3, max_attempts - 1)), cool_down_seconds=COOL_DOWN_SECONDS, rounds=ROUNDS)


class SeveralClients:
    """A `ChatClient` of servers that serve the same model. A server that is given up stays so until the end of the run.

    `names` are the addresses, for messages.
    """

    def __init__(self, clients: Sequence[ChatClient], names: Sequence[str]) -> None:
        self._clients = clients
        self._names = names
        self._in_flight = [0] * len(clients)
        self._given_up: dict[int, str] = {}
        self._stack = AsyncExitStack()

    @property
    def calls(self) -> int:
        return sum(client.calls for client in self._clients)

    def decider(self) -> ChatClient:
        return SeveralClients([client.decider() for client in self._clients], self._names)

    async def complete(
        self, messages: Messages, schema: Mapping[str, Any], *, stream: str, deadline: float | None, variation: int = 0
    ) -> Completion:
        tried: set[int] = set()
        fault: ServerFaultError | None = None
        while True:
            left = [each for each in range(len(self._clients)) if each not in tried and each not in self._given_up]
            if not left:
                # Where some serve, and none of them this one, it is deferred, and the others go on.
                raise fault or ServiceError(f"no server answers: {'; '.join(sorted(set(self._given_up.values())))}")
            chosen = min(left, key=lambda each: self._in_flight[each])
            self._in_flight[chosen] += 1
            try:
                return await self._clients[chosen].complete(
                    messages, schema, stream=stream, deadline=deadline, variation=variation
                )
            except ServiceError as error:
                if chosen not in self._given_up:
                    log.warning("%s is left out from now on: %s", self._names[chosen], error)
                self._given_up[chosen] = str(error)
            except ServerFaultError as error:
                fault = error
            finally:
                self._in_flight[chosen] -= 1
            tried.add(chosen)

    async def __aenter__(self) -> Self:
        for client in self._clients:
            await self._stack.enter_async_context(client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

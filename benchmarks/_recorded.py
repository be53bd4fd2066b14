"""A client that remembers every answer in a file, so that what a model said once can be measured in many ways.

The questions and answers are the real ones, made and read by the very code of phase 1; only the server is not asked
again. No benchmark itself.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ec1.errors import ServiceError
from ec1.extraction.reading.client import ChatClient, Completion, Messages


class Recorded:
    """Wraps `client`; without one, only what the file holds is answered."""

    def __init__(self, path: Path, client: ChatClient | None) -> None:
        self._path = path
        self._client = client
        self._known: dict[str, Completion] = {}
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                value = json.loads(line)
                self._known[value["key"]] = Completion(**value["answer"])

    @property
    def calls(self) -> int:
        return self._client.calls if self._client is not None else 0

    def decider(self) -> "Recorded":
        return Recorded(self._path.with_suffix(".decided"), self._client.decider() if self._client else None)

    async def complete(
        self, messages: Messages, schema: Mapping[str, Any], *, stream: str, deadline: float | None, variation: int = 0
    ) -> Completion:
        if "labels" in schema:
            return await self._decided(messages, schema, stream, deadline)
        key = _key(messages, schema)
        if key not in self._known:
            self._keep(key, await self._asked(messages, schema, stream, deadline))
        return self._known[key]

    async def _decided(
        self, messages: Messages, schema: Mapping[str, Any], stream: str, deadline: float | None
    ) -> Completion:
        """Decisions are kept one by one, so that the same ones in another request are not new ones."""
        keys = [_key([message], schema) for message in messages]
        missing = [at for at, key in enumerate(keys) if key not in self._known]
        if missing:
            answer = await self._asked([messages[at] for at in missing], schema, stream, deadline)
            for at, row in zip(missing, json.loads(answer.content), strict=True):
                self._keep(keys[at], replace(answer, content=json.dumps(row)))
        found = [self._known[key] for key in keys]
        return replace(found[0], content=json.dumps([json.loads(each.content) for each in found]))

    async def _asked(
        self, messages: Messages, schema: Mapping[str, Any], stream: str, deadline: float | None
    ) -> Completion:
        if self._client is None:
            raise ServiceError(f"{self._path} does not hold this answer: measure with the engine first")
        return await self._client.complete(messages, schema, stream=stream, deadline=deadline)

    def _keep(self, key: str, answer: Completion) -> None:
        self._known[key] = answer
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, "answer": asdict(answer)}) + "\n")

    async def __aenter__(self) -> Self:
        if self._client is not None:
            await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)


def _key(messages: Messages, schema: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([list(messages), schema], sort_keys=True).encode()).hexdigest()

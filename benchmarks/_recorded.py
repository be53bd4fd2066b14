"""A client that remembers every answer in a file, so that what a model said once can be measured in many ways.

The questions and answers are the real ones, made and read by the very code of phase 1; only the server is not asked
again. No benchmark itself.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ec1.errors import ServiceError
from ec1.extraction.client import ChatClient, Completion, Messages


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
        self, messages: Messages, schema: Mapping[str, Any], *, stream: str, deadline: float | None
    ) -> Completion:
        key = hashlib.sha256(json.dumps([list(messages), schema], sort_keys=True).encode()).hexdigest()
        if key not in self._known:
            if self._client is None:
                raise ServiceError(f"{self._path} does not hold this answer: measure with the engine first")
            self._known[key] = await self._client.complete(messages, schema, stream=stream, deadline=deadline)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "answer": asdict(self._known[key])}) + "\n")
        return self._known[key]

    async def __aenter__(self) -> Self:
        if self._client is not None:
            await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.__aexit__(kind, error, trace)

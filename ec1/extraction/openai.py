"""An OpenAI-compatible server, such as vLLM, in its own words.

https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from ec1.deployment import ExtractionSettings
from ec1.extraction.client import (
    Circuit,
    Completion,
    HttpChatClient,
    Messages,
    ServerFaultError,
    label_of,
    text_of,
    tokens_of,
    unreadable,
)


class OpenAIClient(HttpChatClient):
    """A client of the server at `base_url` (without `/v1`); `model` is the id under which it serves the model."""

    def __init__(
        self,
        base_url: str,
        model: str,
        settings: ExtractionSettings,
        *,
        backoff_seconds: float = 0.5,
        circuit: Circuit | None = None,
        patience_seconds: float = 600.0,
        died: Callable[[], str | None] = lambda: None,
    ) -> None:
        super().__init__(
            f"{base_url.rstrip('/')}/v1/chat/completions",
            settings,
            backoff_seconds=backoff_seconds,
            circuit=circuit,
            patience_seconds=patience_seconds,
            died=died,
        )
        self._model = model

    def _body(self, messages: Messages, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": list(messages),
            "max_tokens": self._settings.max_answer_tokens,
            "temperature": 0,
            "seed": 0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "entities", "strict": True, "schema": schema},
            },
        }
        if self._settings.reasoning_tokens:
            # vLLM's own: without it the thoughts may take what the answer needs.
            body["thinking_token_budget"] = self._settings.reasoning_tokens
        return body

    def _headers(self, stream: str) -> Mapping[str, str]:
        return {}

    def _completion(self, data: bytes, stream: str) -> Completion:
        try:
            value = json.loads(data)
            choice = value["choices"][0]
            usage = value.get("usage") or {}
            return Completion(
                content=text_of(choice["message"].get("content") or ""),
                finish_reason=label_of(choice.get("finish_reason") or "none"),
                model=label_of(value.get("model", self._model)),
                prompt_tokens=tokens_of(usage.get("prompt_tokens")),
                completion_tokens=tokens_of(usage.get("completion_tokens")),
            )
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise ServerFaultError(f"the server's answer is no chat completion: {unreadable(error)}") from None

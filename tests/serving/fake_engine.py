"""An engine for tests: real HTTP that speaks as vLLM does, with answers that say which adapter was asked for.

It resolves names by the real resolver function, keeps what it loaded as vLLM does, and can be slow.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ec1.adapters.registry import AdapterRegistry
from ec1.errors import EC1Error
from ec1.home import Home
from ec1.serving.resolver import VARIABLE, ResolverSettings, checked_folder
from ec1.storage.directory import DirectoryStore

USAGE = {"prompt_tokens": 7, "completion_tokens": 18, "total_tokens": 25}


class FakeEngine:
    """`loaded`: names that it has. `without_effect`: names that answer as the base does. `failing`, `refusing`: the
    name that fails or refuses. `delay`: seconds an answer."""

    TEXT = "An answer by {model} that is long enough to be one side of a pair: it has more than 80 characters."

    def __init__(self, registry: AdapterRegistry, base_model: str, *, api_key: str | None = None) -> None:
        self.registry = registry
        self.base_model = self.served_as = base_model
        self.api_key = api_key
        self.loaded: dict[str, Path] = {}
        self.runs: Path | None = None
        self.without_effect: set[str] = set()
        self.failing = self.refusing = ""
        self.delay = 0.0
        self.text = self.TEXT
        self.settings: dict[str, Any] = {}
        """Of the server that it runs on."""
        self.requests: list[dict[str, Any]] = []
        self.cancelled = 0
        self.app = Starlette(
            routes=[
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/responses", self._responses, methods=["POST"]),
                Route("/v1/completions", self._completions, methods=["POST"]),
                Route("/v1/unload_lora_adapter", self._unload, methods=["POST"]),
            ]
        )

    def _known(self, request: Request) -> bool:
        return not self.api_key or request.headers.get("authorization") == f"Bearer {self.api_key}"

    async def _models(self, request: Request) -> Response:
        known = self._known(request)
        return JSONResponse({"data": [{"id": self.served_as}] if known else []}, 200 if known else 401)

    async def _body(self, request: Request) -> dict[str, Any] | Response:
        if not self._known(request):
            return JSONResponse({"error": "Unauthorized"}, 401)
        body: dict[str, Any] = await request.json()
        name = body.get("model", "")
        if name and name != self.served_as and name not in self.loaded:
            try:
                self.loaded[name] = await asyncio.to_thread(
                    checked_folder, self.registry, self.base_model, name, self.runs
                )
            except EC1Error:
                error = {"message": f"The model `{name}` does not exist.", "type": "NotFoundError", "code": 404}
                return JSONResponse({"error": error}, 404)
        return body

    async def _chat(self, request: Request) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        self.requests.append(body)
        model = body["model"]
        identifier = "chatcmpl-" + request.headers.get("x-request-id", "none")
        words = self.text.format(model=model).split(" ")
        if not body.get("stream"):
            await self._think()
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": " ".join(words)},
                "finish_reason": "stop",
            }
            if self.failing == model:
                return JSONResponse({"error": {"message": "an illegal memory access was encountered"}}, 500)
            if self.refusing == model:
                choice["message"] = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
            answer = {"id": identifier, "object": "chat.completion", "model": model, "choices": [choice]}
            return JSONResponse(answer | {"usage": USAGE})

        async def events() -> Any:
            for place, word in enumerate(words):
                await self._think()
                delta = {"role": "assistant", "content": word} if place == 0 else {"content": " " + word}
                yield self._event(identifier, model, delta, None)
            yield self._event(identifier, model, {}, "stop")
            if (body.get("stream_options") or {}).get("include_usage"):
                last = {"id": identifier, "object": "chat.completion.chunk", "model": model, "choices": []}
                yield b"data: " + json.dumps(last | {"usage": USAGE}).encode() + b"\n\n"
            yield b"data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    def _event(self, identifier: str, model: str, delta: dict[str, Any], finish: str | None) -> bytes:
        chunk = {
            "id": identifier,
            "object": "chat.completion.chunk",
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        return b"data: " + json.dumps(chunk).encode() + b"\n\n"

    async def _think(self) -> None:
        try:
            await asyncio.sleep(self.delay)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def _responses(self, request: Request) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        part = {"type": "output_text", "text": self.text.format(model=body["model"]), "annotations": []}
        message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
        usage = {"input_tokens": 5, "output_tokens": 20, "total_tokens": 25}
        answer = {"id": "resp-1", "object": "response", "model": body["model"], "output": [message], "usage": usage}
        return JSONResponse(answer)

    async def _completions(self, request: Request) -> Response:
        body = await self._body(request)
        if isinstance(body, Response):
            return body
        model = body["model"]
        shift = 0.0 if model == self.served_as or model in self.without_effect else -0.5
        places = [None] + [{"7": {"logprob": -1.0 - place / 10 + shift}} for place in range(4)]
        return JSONResponse(
            {"id": "cmpl-1", "model": model, "choices": [{"text": f"by {model}", "prompt_logprobs": places}]}
        )

    async def _unload(self, request: Request) -> Response:
        body = await request.json()
        return JSONResponse({}) if self.loaded.pop(body["lora_name"], None) else JSONResponse({}, 404)


def main(port: int) -> None:
    """Run as a process in vLLM's place, told by the same variables."""
    settings = ResolverSettings.model_validate_json(os.environ[VARIABLE])
    registry = AdapterRegistry(DirectoryStore(settings.home), Home(settings.home).adapters)
    engine = FakeEngine(registry, settings.base_model, api_key=os.environ["VLLM_API_KEY"])
    engine.delay = 0.1
    uvicorn.run(engine.app, host="127.0.0.1", port=port, log_level="warning", lifespan="off")


if __name__ == "__main__":
    main(int(sys.argv[1]))

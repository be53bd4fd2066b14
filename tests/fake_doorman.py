"""A small Doorman for tests: the gateway's wire as it is agreed, over real HTTP; misbehaves as `fake_openai` does.

Marks of its own: `[[local]]` (a smaller tier answered), `[[choices]]` (the answer stands there only), `[[reasoned]]`
(thoughts apart). `ready` is what `/readyz` says about the graph endpoint.
"""

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fake_openai import FakeServer, Handler, fake_server

MODULE_ID = re.compile(r"[a-z0-9-]{1,64}")
READY = {"health_up": True, "circuit": "closed"}


class DoormanHandler(Handler):
    def do_GET(self) -> None:
        if self.path == "/healthz":
            return self._send(200, b"ok")
        # 200 as soon as a tier is configured, whether it is up or not.
        ready = getattr(self.state, "ready", READY)
        ready = ready.pop(0) if isinstance(ready, list) else ready
        return self._send(200, json.dumps({"tier_a": {"health_up": True}, "tier_b": {"graph": ready}}).encode())

    def refusal(self, body: dict[str, Any]) -> str | None:
        if not MODULE_ID.fullmatch(self.headers.get("X-Foundry-Module-ID", "")):
            return "bad X-Foundry-Module-ID"
        if self.headers.get("X-Foundry-Complexity") not in ("low", "medium", "high"):
            return "bad X-Foundry-Complexity"
        if self.headers.get("X-Foundry-Yoyo-Label") not in ("graph", "trainer", "default"):
            return "bad X-Foundry-Yoyo-Label"
        try:
            uuid.UUID(self.headers.get("X-Foundry-Request-ID", str(uuid.uuid4())))
        except ValueError:
            return "bad X-Foundry-Request-ID"
        grammar = body.get("grammar", {})
        if grammar.get("type") != "json-schema" or not isinstance(grammar.get("value"), dict):
            return "bad grammar"
        return None if body.get("messages") and self.path == "/v1/chat/completions" else "no messages"

    def reply(self, content: str, finish: str, text: str) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "request_id": self.headers.get("X-Foundry-Request-ID"),
            "tier_used": "local" if self.state.acts("local", text) else "yoyo",
            "model": "fake",
            "content": content,
            "reasoning_content": "Let me see." if "[[reasoned]]" in text else None,
            "inference_ms": 1,
            "cost_usd": 0.0,
        }
        if "[[choices]]" in text:
            del answer["content"]
            answer["choices"] = [{"message": {"role": "assistant", "content": content}}]
        return answer


@contextmanager
def fake_doorman() -> Iterator[FakeServer]:
    """Run the gateway on a free port of loopback until the block ends."""
    with fake_server(DoormanHandler) as state:
        yield state

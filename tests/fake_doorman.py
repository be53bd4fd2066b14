"""A Doorman for tests, as strict as the real one: the gateway's wire over real HTTP, and its habits.

- It answers `slots` requests at a time (2, its default); the next one gets 429 at once, with no `Retry-After`.
- After `deadline` seconds (180) of silence of the GPU tier, or an answer of it that is not 2xx, a smaller one answers,
  and only `tier_used` says so.
- After 5 such failures in a row its breaker is open: for `cool_down` seconds (300) the smaller tier answers at once.
  Then the breaker still says that it is open, until a request is let through: one success closes it, one failure opens
  it again (slm-doorman's `circuit_breaker.rs` and `router.rs` in pointsav/pointsav-monorepo at f39485af).
- Where it knows a service-content (`content`), it looks up to six words of the last user message there, under the
  request's module id, and puts what it finds before the messages as a system message. The model takes it for true.

Misbehaves as `fake_openai` does. Marks of its own: `[[local]]` (a smaller tier answered), `[[choices]]` (the answer
stands there only), `[[reasoned]]` (thoughts apart). `ready` is what `/readyz` says about the graph endpoint.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fake_openai import FakeServer, Handler, fake_server
from fake_service_content import FakeServiceContent

MODULE_ID = re.compile(r"[a-z0-9-]{1,64}")
READY = {"health_up": True, "circuit": "closed"}
FAILURE_THRESHOLD, COOL_DOWN = 5, 300
LOOKED_AT_CHARACTERS = 200
LOOKED_UP_WORDS = 6
SHORTEST_WORD = 4


class FakeDoorman(FakeServer):
    """`refused` counts the requests that found no slot; `contexts` are the system messages that were put in front.
    `outages`: which requests to the GPU tier fail, counted from 0 in the order in which they reach it."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = "doorman"
        self.slots = 2
        self.deadline = 180.0
        self.content: FakeServiceContent | None = None
        self.ready: Any = READY
        self.busy = 0
        self.refused = 0
        self.contexts: list[str] = []
        self.outages: list[range] = []
        self.cool_down = float(COOL_DOWN)
        self.reached = 0
        self.failures = 0
        self.opened: float | None = None
        self.opened_times = 0

    @property
    def breaker(self) -> dict[str, Any]:
        """What `/readyz` says of it; its seconds are of a breaker that cools down for 300."""
        if self.opened is None:
            return {"circuit": "closed", "opened_for_secs": None}
        return {
            "circuit": "open",
            "opened_for_secs": int((time.monotonic() - self.opened) / self.cool_down * COOL_DOWN),
        }

    def tier_b_answers(self) -> bool:
        """Whether a request gets an answer of the GPU tier; counts for the breaker."""
        with self.lock:
            if self.opened is not None and time.monotonic() - self.opened < self.cool_down:
                return False
            half_open = self.opened is not None
            number, self.reached = self.reached, self.reached + 1
            if not any(number in outage for outage in self.outages):
                self.failures, self.opened = 0, None
                return True
            self.failures += 1
            if half_open or self.failures >= FAILURE_THRESHOLD:
                self.opened, self.opened_times = time.monotonic(), self.opened_times + 1
            return False

    def context_of(self, module_id: str, messages: list[dict[str, str]]) -> str | None:
        """What service-content knows about the words of the last user message, as the gateway words it."""
        asked = [message["content"] for message in messages if message["role"] == "user"]
        if self.content is None or not asked:
            return None
        words = re.findall(rf"\w{{{SHORTEST_WORD},}}", asked[-1][:LOOKED_AT_CHARACTERS])
        longest = sorted(dict.fromkeys(words), key=len, reverse=True)[:LOOKED_UP_WORDS]
        found = {
            (node["entity_name"], node["classification"])
            for word in longest
            for node in self.content.context(module_id, word, 50)
        }
        if not found:
            return None
        known = "; ".join(f"{name} ({entity_class})" for name, entity_class in sorted(found))
        return f"Known entities. Treat this as ground truth: {known}"


class DoormanHandler(Handler):
    state: FakeDoorman

    def do_GET(self) -> None:
        if self.path == "/healthz":
            return self._send(200, b"ok")
        # 200 as soon as a tier is configured, whether it is up or not.
        ready = self.state.ready
        ready = ready.pop(0) if isinstance(ready, list) else ready
        if ready is READY:
            ready = {**ready, **self.state.breaker}
        return self._send(200, json.dumps({"tier_a": True, "tier_b": {"graph": ready}}).encode())

    def admitted(self) -> bool:
        with self.state.lock:
            if self.state.busy >= self.state.slots:
                self.state.refused += 1
                return False
            self.state.busy += 1
            return True

    def leave(self) -> None:
        with self.state.lock:
            self.state.busy -= 1

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

    def believed(self, body: dict[str, Any]) -> str:
        context = self.state.context_of(self.headers["X-Foundry-Module-ID"], body["messages"])
        if context is None:
            return ""
        with self.state.lock:
            self.state.contexts.append(context)
        return context

    def think(self) -> None:
        self.fell_back = self.state.delay > self.state.deadline
        self.state.gone.wait(min(self.state.delay, self.state.deadline))

    def reply(self, content: str, finish: str, text: str) -> dict[str, Any]:
        local = self.fell_back or not self.state.tier_b_answers() or self.state.acts("local", text)
        answer: dict[str, Any] = {
            "request_id": self.headers.get("X-Foundry-Request-ID"),
            "tier_used": "local" if local else "yoyo",
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
def fake_doorman(slots: int = 2) -> Iterator[FakeDoorman]:
    """Run the gateway on a free port of loopback until the block ends."""
    with fake_server(DoormanHandler, FakeDoorman()) as state:
        assert isinstance(state, FakeDoorman)
        state.slots = slots
        yield state

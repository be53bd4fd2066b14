"""A small OpenAI-compatible server for tests: real HTTP, deterministic answers, and misbehaviour on request.

What stands in a chunk decides what happens: `[[cut]]`, `[[array]]`, … A behaviour may be limited to the first `times`
requests that carry its mark.
"""

import json
import re
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from loopback_server import send, serving

from ec1.extraction.schema import MAX_ENTITIES, Named, Stated, encode

NAME = re.compile(r"\b[A-Z][a-z]+ [A-Z][a-z]+\b")
STATED = re.compile(r"([A-Z][a-z]+ [A-Z][a-z]+) (works_at|located_in|attends) ([A-Z][a-z]+ [A-Z][a-z]+)")


class FakeServer:
    """What the server has seen. `times[mark]` limits a behaviour; `delay` is how long each answer takes, in seconds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.times: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self.calls = 0
        self.open: set[socket.socket] = set()
        self.max_in_flight = 0
        self.delay = 0.0
        self.queue: threading.Semaphore | None = None
        """So many answers are worked on at once, and the others wait for them, or for their clients to leave."""
        self.sharing = False
        """Whether all answers are worked on at once, each the more slowly."""
        self.key: str | None = None
        """What it asks for; all else is answered with 401."""
        self.retry_after: str | None = None
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.moments: list[float] = []
        self.gone = threading.Event()
        self.url = ""
        self.kind = "openai"
        self.models = ["m", "some/model"]
        """What it lists."""
        self.answers = self.stray_every = 0
        """Each so many answers, one is of another model; 0: none."""

    def acts(self, mark: str, text: str) -> bool:
        if f"[[{mark}]]" not in text:
            return False
        with self.lock:
            self.seen[mark] += 1
            return self.seen[mark] <= self.times.get(mark, 10**9)

    @property
    def in_flight(self) -> int:
        """Requests without an answer yet whose client is still there."""
        return sum(not left(connection) for connection in self.open)


def left(connection: socket.socket) -> bool:
    """Whether the other side has closed."""
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def entities_of(text: str) -> list[Named]:
    """What the fake model finds: every pair of capitalised words."""
    return [Named(name, "Person") for name in dict.fromkeys(NAME.findall(text))]


def stated_in(text: str) -> list[Stated]:
    """What the fake model takes for stated: `Alma Reyes works_at Cobalt Labs`."""
    return [Stated(*found) for found in STATED.findall(text)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16  # Headers and body in one packet: two cost 40 ms for the delayed acknowledgement.
    state: FakeServer

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        # A client that was killed resets its connections: that is not the fault of this server's.
        with suppress(ConnectionResetError):
            super().handle()

    def do_POST(self) -> None:
        state = self.state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with state.lock:
            state.calls += 1
            state.requests.append(body)
            state.headers.append(dict(self.headers))
            state.moments.append(time.monotonic())
            state.open.add(self.connection)
            state.max_in_flight = max(state.max_in_flight, state.in_flight)
        form = body.get("response_format") or body.get("grammar")
        self.wants_relations = '"relations"' in json.dumps(form)
        self.model = body.get("model", "fake")
        self.wants_list = '"prefixItems"' in json.dumps(form)
        try:
            if not self.knows_the_key():
                return
            if refusal := self.refusal(body):
                self._send(400, json.dumps({"error": {"message": refusal}}).encode())
            elif not self.admitted():
                # No `Retry-After`, whatever a test has set: there is none on this one.
                send(self, 429, json.dumps({"error": {"message": "slots full"}}).encode(), None)
            else:
                try:
                    if "prompt" in body:
                        self._decide(body)
                    else:
                        self._answer(body["messages"][-1]["content"], self.believed(body))
                finally:
                    self.leave()
        except (BrokenPipeError, ConnectionResetError):
            pass
        finally:
            with state.lock:
                state.open.discard(self.connection)

    def do_GET(self) -> None:
        listed = {"data": [{"id": name} for name in self.state.models]}
        if not self.knows_the_key():
            return
        self._send(200 if self.path == "/v1/models" else 404, json.dumps(listed).encode())

    def knows_the_key(self) -> bool:
        """Whether the client does; it is told if not."""
        knows = self.state.key is None or self.headers.get("Authorization") == f"Bearer {self.state.key}"
        if not knows:
            self._send(401, json.dumps({"error": {"message": "wrong key"}}).encode())
        return knows

    def answering(self) -> str:
        """The model that an answer names: the one that was asked for, as a server of it does."""
        state = self.state
        with state.lock:
            state.answers += 1
            strays = state.stray_every and state.answers % state.stray_every == 0
        return "another/model" if strays else self.model

    def admitted(self) -> bool:
        """Whether there is room for one more request; `leave` gives its place back."""
        return True

    def leave(self) -> None:
        """A request that was admitted is done."""

    def believed(self, body: dict[str, Any]) -> str:
        """What the model is told to be true before it reads the messages."""
        return ""

    def think(self) -> None:
        """Take as long as an answer takes."""
        state = self.state
        with state.queue or nullcontext():
            if state.queue is None or not left(self.connection):
                work = state.delay
                while state.sharing and work > 0 and not left(self.connection) and not state.gone.wait(0.02):
                    work -= 0.02 / max(1, state.in_flight)
                if not state.sharing:
                    state.gone.wait(state.delay)

    def refusal(self, body: dict[str, Any]) -> str | None:
        """Why a request is a bad one."""
        if self.path == "/v1/completions":
            good = body.get("prompt") and body.get("logprob_token_ids") and body.get("model")
            return None if good else "no request for log-probabilities"
        form = body.get("response_format", {})
        good = self.path == "/v1/chat/completions" and form.get("type") == "json_schema" and body.get("model")
        return None if good else "no request for a chat completion under a schema"

    def reply(self, content: str, finish: str, text: str) -> dict[str, Any]:
        """A whole answer's body."""
        return {
            "model": self.answering(),
            "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5},
        }

    def _wait_for_the_client_to_leave(self) -> None:
        for _ in range(600):
            if self.state.gone.is_set() or (select.select([self.connection], [], [], 0.1)[0] and left(self.connection)):
                break
        self.close_connection = True

    def _decide(self, body: dict[str, Any]) -> None:
        """Log-probabilities as vLLM gives them: two capitalised words are a person, all else is none."""
        prompts, tokens = body["prompt"], body["logprob_token_ids"]
        if self._misbehaves(prompts[0].rpartition("Text: ")[2]):
            return
        choices = []
        for index, prompt in enumerate(prompts):
            # A trained extractor's question ends in its answer's beginning: `[["Alma Reyes","`.
            begun = prompt.rpartition('[["')[2].removesuffix('","')
            name = begun if prompt.endswith('","') else prompt.rpartition("\n")[2].removesuffix(" =")
            right = tokens[0] if NAME.fullmatch(name) else tokens[-1]
            top = {f"token_id:{token}": -0.05 if token == right else -5.0 for token in tokens}
            choices.append(
                {"index": index, "text": "?", "logprobs": {"top_logprobs": [top]}, "finish_reason": "length"}
            )
        if self.state.acts("few", prompts[0]):
            choices = choices[:-1]
        usage = {"prompt_tokens": 10 * len(prompts), "completion_tokens": len(prompts)}
        self._send(200, json.dumps({"model": self.answering(), "choices": choices, "usage": usage}).encode())

    def _misbehaves(self, text: str) -> bool:
        """Take the time that an answer takes, and give one that is none if the text asks for it."""
        state = self.state
        self.think()
        for status in (400, 404, 429, 500, 502, 503):
            if state.acts(str(status), text):
                self._send(status, json.dumps({"error": {"message": f"a {status} on purpose"}}).encode())
                return True
        if state.acts("hang", text):
            self._wait_for_the_client_to_leave()
            return True
        if state.acts("dribble", text):
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            while not state.gone.wait(0.05):
                self.wfile.write(b" ")
                self.wfile.flush()
            return True
        if state.acts("die", text):
            self.send_response(200)
            self.send_header("Content-Length", "5000")
            self.end_headers()
            self.wfile.write(b'{"choices": [')
            self.wfile.flush()
            self.close_connection = True
            return True
        if state.acts("odd", text):
            self._send(200, b'{"choices": 7}')
            return True
        if state.acts("flood", text):
            self._send(200, b" " * (5 * 2**20))
            return True
        return False

    def _answer(self, text: str, believed: str = "") -> None:
        state = self.state
        if self._misbehaves(text):
            return None
        # The grammar ends a list, whatever else there is to name.
        found = entities_of(f"{text} {believed}")[:MAX_ENTITIES]
        if state.acts("first", text):
            found = found[:1]
        if state.acts("invent", text):
            found.append(Named("Nadir Holm", "Person"))
        content, finish = encode(found, stated_in(text) if self.wants_relations else None), "stop"
        if self.wants_list:
            content = json.dumps([[each.name, each.entity_class] for each in found], separators=(",", ":"))
        if state.acts("cut", text):
            content, finish = content[:-5], "length"
        elif state.acts("array", text):
            content = "[]"
        elif state.acts("object", text):
            content = '{"entities":{"name":"Alma Reyes","class":"Person"}}'
        elif state.acts("many", text):
            content = encode([Named(f"Alma Reyes {i}", "Person") for i in range(10_000)])
        elif state.acts("prose", text):
            content = "Here are the entities: none."
        elif state.acts("think", text):
            content = "<think>Let me see. " + content
        elif state.acts("blanks", text):
            content, finish = '{"entities":[' + " " * 5000, "length"
        elif state.acts("empty", text):
            content = ""
        elif state.acts("filter", text):
            content, finish = encode([]), "content_filter"
        elif "[[thought]]" in text:
            content = f"<think>Is it {{}}?</think>\n{content}"
        return self._send(200, json.dumps(self.reply(content, finish, text)).encode())

    def _send(self, status: int, data: bytes) -> None:
        send(self, status, data, self.state.retry_after)


@contextmanager
def fake_server(kind: type[Handler] = Handler, state: FakeServer | None = None, port: int = 0) -> Iterator[FakeServer]:
    """Run the server on a port of loopback, by default a free one, until the block ends."""
    state = state or FakeServer()
    handler = type("OneServersHandler", (kind,), {"state": state})
    with serving(handler, port) as state.url:
        try:
            yield state
        finally:
            state.gone.set()

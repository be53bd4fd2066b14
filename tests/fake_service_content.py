"""A service-content for tests over real HTTP, with the real one's rules (`service_content_rules`).

- Names collapse to keys without a class; the last write wins even if it is worse, but the first source stays; nothing
  is validated.
- Within one request what is nearly alike becomes one identity for good, with which `/context` answers for all of it.
- `/context` takes the first 150 matches in no order before it ranks.

`fail` holds what becomes of the next mutations: a status, or `drop` (the connection is cut), or `late` (it is done, and
the answer is lost).
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import service_content_rules as rules
from loopback_server import send, serving


class FakeServiceContent:
    """`nodes` by `<module>__<key>`; `writes` are all requests that were taken, in order; `aliases` maps a node to the
    one that answers in its place."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.aliases: dict[str, str] = {}
        self.writes: list[dict[str, Any]] = []
        self.fail: list[int | str] = []
        self.always: int | None = None
        self.retry_after: str | None = None
        self.calls = 0
        self.lock = threading.Lock()
        self.url = ""

    def key(self, module_id: str, name: str) -> str:
        return f"{module_id}__{rules.key_of(name)}"

    def take(self, module_id: str, entities: list[dict[str, Any]]) -> None:
        """Write one request's entities, then settle which of them are one identity."""
        for each in entities:
            key = self.key(module_id, each["entity_name"])
            first = self.nodes.get(key, each)["source_doc"]
            self.nodes[key] = {**each, "source_doc": first or each["source_doc"]}
        found = rules.aliases_in([(each["entity_name"], each["classification"]) for each in entities])
        self.aliases.update({f"{module_id}__{one}": f"{module_id}__{other}" for one, other in found.items()})

    def context(self, module_id: str, asked: str, limit: int) -> list[dict[str, Any]]:
        """What `/context` answers."""
        mine = [key for key in self.nodes if key.startswith(f"{module_id}__")]
        # In no order that anybody could rely on, and the same one each time.
        mine.sort(key=lambda key: hashlib.sha1(key.encode()).digest())
        names = {key: str(self.nodes[key]["entity_name"]) for key in mine}
        return [self.nodes[key] for key in rules.context(names, self.aliases, asked, limit)]

    def of(self, module_id: str) -> dict[str, tuple[str, str, float]]:
        """What a tenant has: key -> name, class, confidence."""
        return {
            key.removeprefix(f"{module_id}__"): (node["entity_name"], node["classification"], node["confidence"])
            for key, node in self.nodes.items()
            if key.startswith(f"{module_id}__")
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 2**16  # Headers and body in one packet: two cost 40 ms for the delayed acknowledgement.
    state: FakeServiceContent

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        prefix = f"{query.get('module_id')}__"
        mine = [node for key, node in self.state.nodes.items() if key.startswith(prefix)]
        if url.path == "/healthz":
            return self._send(200, {"status": "ok", "entity_count": len(self.state.nodes)})
        if url.path == "/v1/graph/cleanup" and query.get("dry_run") == "true":
            gone = sum(rules.is_cleaned(node["entity_name"], node["classification"]) for node in mine)
            report = {"module_id": query["module_id"], "scanned": len(mine), "flagged": gone, "deleted": 0}
            return self._send(200, {**report, "dry_run": True, "samples": []})
        if url.path == "/v1/graph/context":
            return self._send(200, self.state.context(query["module_id"], query["q"], int(query["limit"])))
        return self._send(404, {"error": "no such route"})

    def do_POST(self) -> None:
        state = self.state
        data = self.rfile.read(int(self.headers["Content-Length"]))
        with state.lock:
            state.calls += 1
            fails = state.always or (state.fail.pop(0) if state.fail else None)
            if isinstance(fails, int):
                return self._send(fails, {"error": "on purpose"})
            if fails == "drop":
                self.close_connection = True
                return None
            try:
                body = json.loads(data)
            except ValueError:
                return self._send(400, {"error": "malformed"})
            entities = body.get("entities")
            needed = ("entity_name", "classification", "confidence", "module_id", "source_doc")
            if "module_id" not in body or any(name not in each for each in entities for name in needed):
                return self._send(422, {"error": "missing field"})
            state.take(body["module_id"], entities)
            state.writes.append(body)
            if fails == "late":
                self.close_connection = True
                return None
            return self._send(200, {"upserted": len(entities)})

    def _send(self, status: int, value: Any) -> None:
        send(self, status, json.dumps(value).encode(), self.state.retry_after)


@contextmanager
def fake_service_content() -> Iterator[FakeServiceContent]:
    """Run the service on a free port of loopback until the block ends."""
    state = FakeServiceContent()
    handler = type("Handler", (_Handler,), {"state": state})
    with serving(handler) as state.url:
        yield state

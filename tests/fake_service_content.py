"""A service-content for tests, as strict as the real one, over real HTTP.

- Names collapse to keys without a class; the last write wins even if it is worse; nothing is validated.
- Within one request, two entities of one class whose names share the first three letters and are at least 0.95 alike
  become one identity for good: `/context` answers with the first one where the second was asked for.
- `/context` takes the first 150 matches in no order before it ranks.

`fail` holds what becomes of the next mutations: a status, or `drop` (the connection is cut), or `late` (it is done, and
the answer is lost).
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from loopback_server import send, serving
from rapidfuzz.distance import JaroWinkler

SUFFIXES = ("incorporated", "inc", "corporation", "corp", "company", "limited", "ltd", "llc", "gmbh", "plc")
ALIKE = 0.95
SHARED_LETTERS = 3
CONTEXT_CANDIDATES = 150


def alike(one: str, other: str) -> bool:
    """Whether the service would take two names of one class for one identity."""
    one, other = one.lower(), other.lower()
    return one[:SHARED_LETTERS] == other[:SHARED_LETTERS] and JaroWinkler.similarity(one, other) >= ALIKE


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
        key = re.sub(r"\s+", " ", name).strip()
        while key and key[-1] in ".,;:™®© ":
            key = key[:-1]
        key = key.lower()
        for suffix in SUFFIXES:
            if key.endswith(" " + suffix):
                key = key[: -len(suffix)]
                while key and key[-1] in " .,":
                    key = key[:-1]
                break
        return f"{module_id}__{key.replace(' ', '_')}"

    def take(self, entities: list[dict[str, Any]]) -> None:
        """Write one request's entities, then settle which of them are one identity."""
        keys = [self.key(each["module_id"], each["entity_name"]) for each in entities]
        self.nodes.update(zip(keys, entities, strict=True))
        blocks: dict[tuple[str, str], list[int]] = {}
        for at, each in enumerate(entities):
            block = blocks.setdefault((each["classification"], each["entity_name"][:SHARED_LETTERS].lower()), [])
            for earlier in block:
                if keys[earlier] != keys[at] and alike(entities[earlier]["entity_name"], each["entity_name"]):
                    self.aliases.setdefault(keys[at], keys[earlier])
            block.append(at)

    def context(self, module_id: str, asked: str, limit: int) -> list[dict[str, Any]]:
        """What `/context` answers."""
        prefix = f"{module_id}__"
        matching = [
            key
            for key, node in self.nodes.items()
            if key.startswith(prefix) and asked.lower() in node["entity_name"].lower()
        ]
        # In no order that anybody could rely on, and the same one each time.
        matching.sort(key=lambda key: hashlib.sha1(key.encode()).digest())
        found = {self.aliases.get(key, key): None for key in matching[:CONTEXT_CANDIDATES]}
        ranked = sorted((self.nodes[key] for key in found), key=lambda node: -node["confidence"])
        return ranked[:limit]

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
            return self._send(200, {"scanned": len(mine), "would_remove": 0})
        if url.path == "/v1/graph/context":
            if int(query["limit"]) > 50:
                return self._send(400, {"error": "limit"})
            found = self.state.context(query["module_id"], query["q"], int(query["limit"]))
            return self._send(200, {"entities": found})
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
            state.take(entities)
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

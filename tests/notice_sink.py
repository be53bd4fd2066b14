"""A server on loopback that takes notices and pings, and counts them."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

from loopback_server import send, serving


class Sink:
    """What came in: titles of notices by path, and the pings' paths."""

    def __init__(self) -> None:
        self.titles: list[str] = []
        self.pings: list[str] = []
        self.bodies: list[str] = []
        self.down = False
        self.url = ""

    def of(self, word: str) -> int:
        return sum(word in title for title in self.titles)

    @property
    def target(self) -> str:
        return self.url.replace("http://", "json://")


@contextlib.contextmanager
def notice_sink() -> Iterator[Sink]:
    """Titles and bodies of what came, while the block runs."""
    sink, lock = Sink(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                if not sink.down:
                    sink.titles.append(value["title"])
                    sink.bodies.append(value["message"])
            send(self, 503 if sink.down else 200, b"", None)

        def do_GET(self) -> None:
            with lock:
                sink.pings.append(self.path)
            send(self, 200, b"", None)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with serving(Handler) as url:
        sink.url = url
        yield sink

"""A server that answers every request with the bytes that a test gives it, well-formed HTTP or not."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class RawServer:
    """`answer` is what each request gets, from the status line on; the connection is closed after it."""

    def __init__(self) -> None:
        self.answer = b""
        self.calls = 0
        self.headers = b""
        self.url = ""


def http_answer(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer; header names are given with `_` for `-`."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def raw_server() -> Iterator[RawServer]:
    """Run the server on a free port of loopback until the block ends."""
    state = RawServer()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                data = b""
                while b"\r\n\r\n" not in data:
                    if not (part := self.request.recv(2**16)):
                        return
                    data += part
                head, _, body = data.partition(b"\r\n\r\n")
                length = next(
                    (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-l")),
                    0,
                )
                while len(body) < length and (part := self.request.recv(2**16)):
                    body += part
                state.calls += 1
                state.headers = head
                self.request.sendall(state.answer)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()

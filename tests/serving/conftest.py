"""A registry with two versions, a fake engine that speaks HTTP, and the real gateway in front of it, on real ports."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fake_engine import FakeEngine
from published import BASE, publish

from ec1.adapters.registry import AdapterRegistry
from ec1.deployment import Deployment, ServerSettings
from ec1.gpu.engine import Endpoint
from ec1.home import Home
from ec1.serving.backend import Backend
from ec1.serving.gateway import Gateway
from ec1.serving.server import build_gateway
from ec1.storage.directory import DirectoryStore


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Run an ASGI application on a free port until the block ends; yields its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def registry(home: Home, tmp_path: Path) -> AdapterRegistry:
    """`fernhollow/engineering` with v1 and v2, the second one in use."""
    registry = AdapterRegistry(DirectoryStore(home.root), home.adapters)
    for seed in (1, 2):
        publish(registry, tmp_path, seed)
    return registry


@pytest.fixture
def engine(registry: AdapterRegistry) -> FakeEngine:
    return FakeEngine(registry, BASE, api_key="engine's own")


class Served:
    """A gateway that listens at `url`, and its parts."""

    def __init__(self, url: str, gateway: Gateway, backend: Backend, endpoint: Endpoint) -> None:
        self.url = url
        self.gateway = gateway
        self.backend = backend
        self.endpoint = endpoint


Serve = Callable[..., Any]


@pytest.fixture
def serve(registry: AdapterRegistry, engine: FakeEngine, home: Home, embedded: Deployment) -> Serve:
    """`with serve(refresh_seconds=…) as served`: settings are those of the deployment's `serving`."""

    @contextmanager
    def run(*, host: str = "127.0.0.1", **settings: Any) -> Iterator[Served]:
        values = {"refresh_seconds": 0.02, **settings}
        server = ServerSettings(kind="server", base_url="http://127.0.0.1:1", model=BASE)
        serving = embedded.serving.model_copy(update={"engine": server, **values})
        deployment = embedded.model_copy(update={"serving": serving})
        backend = Backend(timeout_seconds=20)
        gateway = build_gateway(deployment, home, registry, backend, host)
        with listening(engine.app) as address, listening(gateway.app) as url:
            endpoint = Endpoint(address, BASE, api_key="engine's own")
            backend.open(endpoint)
            yield Served(url, gateway, backend, endpoint)

    return run

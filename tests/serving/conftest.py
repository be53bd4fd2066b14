"""A registry with two versions, a fake engine that speaks HTTP, and the real gateway in front of it, on real ports."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from listening import Serve, Served, listening
from published import BASE, publish

from ec1.adapters.registry import AdapterRegistry
from ec1.deployment import Deployment
from ec1.extraction.settings import ServerSettings
from ec1.gpu.engine import Endpoint
from ec1.home import Home
from ec1.serving.backend import Backend
from ec1.serving.server import build_gateway
from ec1.storage.directory import DirectoryStore


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
        told: list[tuple[str, str, str]] = []
        gateway = build_gateway(deployment, home, registry, backend, host, lambda *notice: told.append(notice))
        with listening(engine.app, **engine.settings) as address, listening(gateway.app) as url:
            endpoint = Endpoint(address, BASE, api_key="engine's own")
            backend.open(endpoint)
            yield Served(url, gateway, backend, endpoint, told)
        gateway.close()

    return run

"""Loading a published version into a real vLLM, and what must be refused before it is asked."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ec1.adapters.manifest import AdapterManifest
from ec1.adapters.registry import AdapterRegistry
from ec1.adapters.serving import AdapterServer
from ec1.deployment import Deployment
from ec1.errors import InputError, PermanentError, ServiceError
from ec1.gpu.engine import VllmEngine
from ec1.gpu.lease import GpuLease
from ec1.storage.directory import DirectoryStore

WHO = ("fernhollow", "engineering")


@pytest.fixture
def registry(tmp_path: Path) -> AdapterRegistry:
    return AdapterRegistry(DirectoryStore(tmp_path / "home"), tmp_path / "home" / "adapters")


@pytest.mark.slow
def test_versions_come_and_go_in_a_running_engine(
    registry: AdapterRegistry,
    adapters: dict[str, Path],
    manifest: Callable[..., AdapterManifest],
    embedded: Deployment,
    small_model: Path,
    tmp_path: Path,
) -> None:
    pytest.importorskip("vllm")
    registry.publish(adapters["trained"], manifest())
    registry.publish(adapters["damaged"], manifest())
    settings = embedded.inference.model_copy(update={"max_model_len": 256, "max_num_seqs": 2, "kv_cache_gib": 1})
    engine = VllmEngine(settings, small_model, settings.model, "cpu")
    lease = GpuLease(tmp_path / "gpu.lock", device="cpu", min_free_gib=2)
    environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    with (
        lease.hold("inference", night="2026-06-01", holder="test", wait_seconds=60) as grant,
        engine.serve(
            grant, log=tmp_path / "vllm.log", progress=lambda _: None, environment=environment, lora=True
        ) as endpoint,
    ):
        server = AdapterServer(endpoint.base_url, registry)
        assert server.loaded() == {}
        assert server.load(*WHO, 1) == "fernhollow/engineering@v1"
        assert server.load(*WHO, 1) == "fernhollow/engineering@v1"
        assert server.loaded() == {"fernhollow/engineering@v1": str(registry.fetch(*WHO, 1).resolve())}
        server.load(*WHO, 2)
        server.unload(*WHO, 1)
        server.unload(*WHO, 1)
        assert list(server.loaded()) == ["fernhollow/engineering@v2"]
        server.unload(*WHO, 2)
        # Damaged after it was published: the path that is loaded is always a checked one.
        (registry.fetch(*WHO, 1) / "adapter_config.json").write_text("{}")
        with pytest.raises(PermanentError, match="damaged in the store"):
            server.load(*WHO, 1)
        registry.withdraw(*WHO, 2, "leaks a name")
        with pytest.raises(InputError, match="leaks a name"):
            server.load(*WHO, 2)
        assert server.loaded() == {}
    with pytest.raises(ServiceError, match="does not answer"):
        server.loaded()


@pytest.mark.parametrize("url", ["http://10.1.2.3:8000", "http://example.com", "ftp://127.0.0.1", "127.0.0.1:8000"])
def test_only_a_server_on_this_machine_is_spoken_to(registry: AdapterRegistry, url: str) -> None:
    with pytest.raises(InputError, match="not on this machine"):
        AdapterServer(url, registry)

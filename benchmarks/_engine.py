"""The sample deployment's real engine and model, for the benchmarks that need them. No benchmark itself."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from ec1.adapters.merged import merged_model
from ec1.deployment import Deployment, load_deployment
from ec1.gpu.engine import Endpoint, ServedAdapter, VllmEngine
from ec1.gpu.lease import GpuLease
from ec1.gpu.settings import VllmSettings
from ec1.home import CHECKOUT, Home
from ec1.models import prepare_model


def embedded() -> tuple[Deployment, VllmSettings]:
    """The deployment that `make night` runs, and its engine's settings."""
    deployment = load_deployment("embedded", CHECKOUT)
    assert isinstance(deployment.inference, VllmSettings)
    return deployment, deployment.inference


def model_of(deployment: Deployment, scratch: Path) -> Path:
    """The model's folder: the one that a night in this checkout made, else made now in `scratch`."""
    ready = Home(CHECKOUT / ".ec1").models
    models = ready if ready.is_dir() else scratch / "models"
    return prepare_model(deployment.inference.model, deployment.inference.revision, deployment.models, models)


@contextmanager
def serving(
    deployment: Deployment, settings: VllmSettings, model: Path, adapter: ServedAdapter | None = None
) -> Iterator[Endpoint]:
    """Start the engine as a night does; its cache of prompts can be emptied (`forget`)."""
    with tempfile.TemporaryDirectory() as folder:
        if adapter is not None and deployment.extraction.merge_adapter:
            model = merged_model(model, adapter, Path(folder))
            engine = VllmEngine(settings, model, adapter.name, deployment.gpu.device)
        else:
            engine = VllmEngine(settings, model, settings.model, deployment.gpu.device, adapter)
        lease = GpuLease(Path(folder) / "lock", device=deployment.gpu.device, min_free_gib=deployment.gpu.min_free_gib)
        with (
            lease.hold("inference", night="2026-06-01", holder="benchmark", wait_seconds=0) as grant,
            engine.serve(
                grant,
                log=Path(folder) / "log",
                progress=lambda state: print(state, file=sys.stderr, flush=True),
                environment={**os.environ, "VLLM_SERVER_DEV_MODE": "1"},
            ) as endpoint,
        ):
            yield endpoint


def forget(endpoint: Endpoint) -> None:
    """Empty the engine's cache of prompts, so that what ran before gives nothing to what runs next."""
    httpx.post(f"{endpoint.base_url}/reset_prefix_cache", trust_env=False, timeout=60).raise_for_status()

"""`ec1 serve` put together: gateway, engine and lease of one deployment, from the start to the last answer.

Belongs here: what is wired to what. Does not: any of the parts.
"""

import signal
import socket
from collections.abc import Callable, Mapping

import uvicorn

from ec1.adapters.decisions import ArmResult
from ec1.adapters.registry import AdapterRegistry
from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.extraction.settings import ServerSettings
from ec1.gpu.cards import cards_of, names_in
from ec1.gpu.engine import Endpoint, VllmEngine
from ec1.gpu.lease import GpuLease
from ec1.gpu.settings import VllmSettings
from ec1.home import Home
from ec1.launch.process import inherited
from ec1.models import prepare_model
from ec1.night.report.metrics import NightCollector
from ec1.night.report.notices import tell_of_trial
from ec1.night.stores import open_registry
from ec1.serving.backend import Backend
from ec1.serving.canary import Canary, results
from ec1.serving.capture import AnswerCapture
from ec1.serving.counts import ServingCounts
from ec1.serving.gateway import Gateway
from ec1.serving.keeper import FixedServer, Keeper
from ec1.serving.keys import Keys
from ec1.serving.request_log import RequestLog
from ec1.serving.resolver import ResolverSettings
from ec1.serving.versions import ServedVersion, Versions
from ec1.serving_settings import ServingSettings
from ec1.storage.loopback import checked_loopback


def keys_of(home: Home) -> Keys:
    """The API keys of a home."""
    return Keys(home.serving / "keys.json")


def open_capture(deployment: Deployment, home: Home, registry: AdapterRegistry | None = None) -> AnswerCapture:
    """The answers that wait for feedback. Who takes feedback on what versions wrote needs their `registry`."""

    def labels_of(version: ServedVersion) -> tuple[str, ...]:
        return registry.read(version.tenant, version.role, version.number).labels if registry is not None else ()

    return AnswerCapture(
        home.serving / "answers.sqlite",
        deployment.corpus_root(home),
        **deployment.serving.capture.model_dump(exclude={"consent"}),
        labels_of=labels_of,
    )


def open_counts(home: Home) -> ServingCounts:
    """What the gateway has counted."""
    return ServingCounts(home.served / "counts.sqlite")


def trial_results(
    deployment: Deployment, home: Home, registry: AdapterRegistry, tenant: str, role: str
) -> dict[str, ArmResult]:
    """What the arms of the trial that runs came to on this machine; empty if none runs."""
    trial, incumbent = registry.state(tenant, role).trial, registry.incumbent(tenant, role)
    if trial is None or not home.served.is_dir():
        return {}
    capture = open_capture(deployment, home) if deployment.serving.capture.consent else None
    counts = open_counts(home)
    try:
        return results(trial, incumbent.version if incumbent else None, tenant, role, counts, capture)
    finally:
        counts.close()
        if capture is not None:
            capture.close()


def engine_settings(deployment: Deployment) -> VllmSettings | ServerSettings:
    """What answers. Raises InputError if the deployment names nothing that can."""
    if deployment.machine is not None and deployment.serving.engine is None:
        raise InputError(f"deployment {deployment.name!r}: its machine is for nights only; name serving.engine")
    chosen = deployment.serving.engine or deployment.inference
    if isinstance(chosen, VllmSettings | ServerSettings):
        return chosen
    raise InputError(
        f"deployment {deployment.name!r}: inference is {chosen.kind}; name the adapters' base model in serving.engine"
    )


def build_versions(deployment: Deployment, registry: AdapterRegistry) -> Versions:
    """The registry's versions of the deployment's served base model."""
    return Versions(
        registry,
        engine_settings(deployment).model,
        refresh_seconds=deployment.serving.refresh_seconds,
        stale_seconds=deployment.serving.stale_seconds,
    )


def build_gateway(
    deployment: Deployment,
    home: Home,
    registry: AdapterRegistry,
    backend: Backend,
    host: str,
    tell: Callable[[str, str, str], None] | None = None,
) -> Gateway:
    """The gateway of a deployment, to listen on `host`; `tell` is the canary's.

    Raises InputError: another address than this machine's own, and no API key.
    """
    settings, keys = deployment.serving, keys_of(home)
    if not _is_loopback(host) and not keys:
        raise InputError(f"{host} can be reached from elsewhere: make an API key first (`ec1 serve key add NAME`)")
    capture = open_capture(deployment, home, registry) if settings.capture.consent else None
    counts = open_counts(home)
    gateway = Gateway(
        build_versions(deployment, registry),
        backend,
        keys,
        counts=counts,
        # Decided once: an emptied file of keys must not open a server that had some.
        key_needed=bool(keys) or not _is_loopback(host),
        max_request_bytes=int(settings.max_request_mib * 2**20),
        capture=capture,
        canary=Canary(registry, counts, capture, tell or (lambda *_: None)),
        request_log=RequestLog(home.served, settings.request_log_days) if settings.request_log_days else None,
        runs=home.runs if settings.training_steps else None,
    )
    gateway.metrics.registry.register(NightCollector(home))
    return gateway


def serve(
    deployment: Deployment,
    home: Home,
    environment: Mapping[str, str],
    *,
    host: str,
    port: int,
    progress: Callable[[str], None],
) -> None:
    """Serve until a signal. Raises InputError before anything is started, ServiceError if the engine cannot run."""
    settings = deployment.serving
    registry = open_registry(deployment, home)
    backend = Backend(timeout_seconds=settings.request_timeout_seconds)

    def tell(role: str, title: str, text: str) -> None:
        progress(f"{title}: {text}")
        tell_of_trial(deployment, home, environment, role, title, text)

    gateway = build_gateway(deployment, home, registry, backend, host, tell)
    listener = _listen(host, port)
    with listener:
        if gateway.capture is not None:
            gateway.capture.warm()
        config = uvicorn.Config(
            gateway.app,
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=int(settings.drain_seconds) + 1,
        )
        server = uvicorn.Server(config)

        def ended() -> None:
            server.should_exit = True

        keeper = _keeper(deployment, home, environment, backend, progress, ended)
        # uvicorn raises a termination again when it has shut down, and the engine would not be stopped by us.
        previous = signal.signal(signal.SIGTERM, lambda *_: None)
        keeper.start()
        try:
            progress(f"listening on http://{host}:{listener.getsockname()[1]}/v1")
            server.run(sockets=[listener])
        finally:
            keeper.stop()
            gateway.close()
            signal.signal(signal.SIGTERM, previous)
    if keeper.failure:
        raise keeper.failure


def _keeper(
    deployment: Deployment,
    home: Home,
    environment: Mapping[str, str],
    backend: Backend,
    progress: Callable[[str], None],
    ended: Callable[[], None],
) -> Keeper | FixedServer:
    settings, engine = deployment.serving, engine_settings(deployment)
    if isinstance(engine, ServerSettings):
        return FixedServer(Endpoint(engine.base_url, engine.served_name, api_key=engine.key()), backend)
    folder = prepare_model(engine.model, engine.revision, deployment.models, home.models)
    resolver = ResolverSettings(
        store=deployment.store, home=home.root, base_model=engine.model, training_steps=settings.training_steps
    )
    ours = resolver.environment()
    return Keeper(
        VllmEngine(engine, folder, engine.model, deployment.gpu.device),
        _lease(settings, deployment, home),
        backend,
        environment={**inherited(environment), **ours},
        log=home.logs / "serving.log",
        drain_seconds=settings.drain_seconds,
        return_seconds=settings.return_seconds,
        progress=progress,
        ended=ended,
    )


def _lease(settings: ServingSettings, deployment: Deployment, home: Home) -> GpuLease:
    """That of the card that serves: the night's, or one of its own."""
    gpu = deployment.gpu
    cards = names_in(settings.visible_devices or "") or cards_of(gpu, 1)
    if settings.lock is None:
        return deployment.gpu_lease(home, cards=cards)
    return GpuLease(settings.lock, device=gpu.device, min_free_gib=gpu.min_free_gib, cards=cards)


def _is_loopback(host: str) -> bool:
    try:
        checked_loopback(f"http://[{host}]" if ":" in host else f"http://{host}")
    except InputError:
        return False
    return True


def _listen(host: str, port: int) -> socket.socket:
    """Bind before anything heavy is started. Raises InputError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise InputError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
    return listener

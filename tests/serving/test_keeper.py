"""Serving on the night's own card: it gives way to a night, finishes what it began, and comes back. Real processes."""

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_engine
import httpx
import psutil
import pytest
from listening import listening
from patience import until
from published import BASE, NAME

from ec1.adapters.registry import AdapterRegistry
from ec1.deployment import Deployment
from ec1.gpu.engine import LOOPBACK, VllmEngine
from ec1.gpu.lease import GpuLease, marked_processes
from ec1.gpu.settings import VllmSettings
from ec1.home import Home
from ec1.launch.process import inherited
from ec1.serving.backend import Backend
from ec1.serving.keeper import Keeper
from ec1.serving.resolver import ResolverSettings
from ec1.serving.server import build_gateway

HTTP = httpx.Client(trust_env=False, timeout=30)
ASK = {"model": NAME, "messages": [{"role": "user", "content": "Where are the keys?"}]}


class StandIn(VllmEngine):
    """The engine with a small server in vLLM's place."""

    def command(self, port: int, *, lora: bool = False, host: str = LOOPBACK) -> list[str]:
        return [sys.executable, fake_engine.__file__, str(port)]


class Serving:
    """What `ec1 serve` puts together, with the stand-in."""

    def __init__(self, lock: Path, home: Home, registry: AdapterRegistry, deployment: Deployment) -> None:
        self.lease = GpuLease(lock, device="cpu", min_free_gib=0)
        self.backend = Backend(timeout_seconds=20)
        self.gateway = build_gateway(deployment, home, registry, self.backend, "127.0.0.1")
        self.said: list[str] = []
        import os

        resolver = ResolverSettings(home=home.root, base_model=BASE)
        settings = VllmSettings(kind="vllm", model=BASE, ready_timeout_seconds=60)
        self.keeper = Keeper(
            StandIn(settings, home.models, BASE, "cpu"),
            self.lease,
            self.backend,
            environment={**inherited(os.environ), **resolver.environment()},
            log=home.logs / "serving.log",
            drain_seconds=20,
            return_seconds=0.5,
            progress=self.said.append,
            ended=lambda: self.said.append("ended"),
        )
        self.url = ""

    @property
    def ready(self) -> bool:
        return self.backend.state is None

    def ask(self, **body: Any) -> httpx.Response:
        return HTTP.post(f"{self.url}/v1/chat/completions", json={**ASK, **body})


@pytest.fixture
def serving(tmp_path: Path, home: Home, registry: AdapterRegistry, embedded: Deployment) -> Iterator[Serving]:
    lock = tmp_path / "gpu.lock"
    serving = Serving(lock, home, registry, embedded)
    with listening(serving.gateway.app) as serving.url:
        serving.keeper.start()
        try:
            until(lambda: serving.ready)
            yield serving
        finally:
            serving.keeper.stop()
    assert marked_processes(lock) == []
    assert serving.lease.holder() is None


def test_a_night_gets_the_card_answers_are_finished_and_serving_comes_back(serving: Serving) -> None:
    assert serving.ask().headers["X-EC1-Model"] == f"{NAME}@v2"
    holder = serving.lease.holder()
    assert holder is not None and (holder.phase, str(holder)[:19]) == ("serving", "ec1 serve (serving,")
    answers: list[httpx.Response] = []
    # About two seconds of stream.
    slow = threading.Thread(target=lambda: answers.append(serving.ask(stream=True)))
    slow.start()
    until(lambda: serving.backend.in_flight == 1)
    with serving.lease.hold("inference", night="2026-06-01", holder="run 1", wait_seconds=60) as grant:
        assert grant.swept == ()
        slow.join()
        assert answers[0].status_code == 200 and answers[0].text.endswith("data: [DONE]\n\n")
        refused = serving.ask()
        assert refused.status_code == 503 and "Retry-After" in refused.headers
        assert marked_processes(serving.lease.lock) == []
        until(lambda: "run 1 (inference of night 2026-06-01" in str(serving.backend.state))
    # A night lets go between two phases; serving does not snatch the card there.
    with serving.lease.hold("training", night="2026-06-01", holder="run 1", wait_seconds=0):
        assert not serving.ready
    until(lambda: serving.ready)
    assert serving.ask().status_code == 200


def test_a_dead_engine_is_started_again(serving: Serving) -> None:
    assert serving.ask().status_code == 200
    for process in marked_processes(serving.lease.lock):
        if fake_engine.__file__ in process.cmdline() and "warden" not in " ".join(process.cmdline()):
            process.kill()
    until(lambda: not serving.ready)
    until(lambda: serving.ready)
    assert serving.ask().status_code == 200
    assert psutil.pid_exists(serving.lease.holder().pid)


def test_only_the_gateway_may_talk_to_the_engine(serving: Serving) -> None:
    endpoint = serving.backend.enter().endpoint
    serving.backend.leave()
    body = {"lora_name": NAME, "lora_path": "/tmp"}
    assert HTTP.post(f"{endpoint.base_url}/v1/chat/completions", json=body).status_code == 401
    assert endpoint.api_key and endpoint.api_key not in repr(endpoint)

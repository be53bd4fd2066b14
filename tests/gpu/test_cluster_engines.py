"""Phase 1's engine on the nodes of a real Ray cluster, with the stand-in for vLLM."""

import asyncio
import json
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from debian import program
from gcs_emulator import bucket, gcs_server
from light import light_project
from loopback_server import free_port
from patience import until
from ray_cluster import RayCluster, running

from ec1.errors import DeferredError, InputError, ServiceError
from ec1.extraction.reading.client import Circuit
from ec1.extraction.reading.openai import OpenAIClient
from ec1.extraction.reading.several import Servers, SeveralClients
from ec1.extraction.settings import ExtractionSettings
from ec1.gpu.cluster_engines import FILES, ORDER, ClusterEngines, engines_on_cluster
from ec1.gpu.engine import VllmEngine
from ec1.gpu.settings import ClusterSettings, VllmSettings
from ec1.launch.device import GpuSettings
from ec1.storage.settings import DirectoryStoreSettings, GcsStoreSettings, StoreSettings

pytest.importorskip("ray", reason="run `make install`")
pytestmark = pytest.mark.slow
MODEL = "acme/reader"
SETTINGS = ExtractionSettings(max_in_flight=8, request_timeout_seconds=5, max_attempts=3)
QUESTIONS = 4000
__all__ = ["bucket", "gcs_server"]


@pytest.fixture(scope="module")
def cluster(project: Path) -> Iterator[RayCluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(project / "tests" / "e2e" / "fake_engine"))
        with RayCluster() as started:
            for _ in range(2):
                started.add_node()
            yield started


def engine(folder: Path, cluster: dict[str, Any], **settings: object) -> VllmEngine:
    asked = ClusterSettings.model_validate({**cluster, "engines": 2, **settings})
    return VllmEngine(VllmSettings(kind="vllm", model=MODEL, cluster=asked), folder, MODEL, "cpu")


def start(
    wanted: VllmEngine,
    folder: Path,
    wait_seconds: float = 120,
    held: Callable[[float], None] = lambda _: None,
    store: StoreSettings | None = None,
) -> AbstractContextManager[ClusterEngines]:
    gpu = GpuSettings(device="cpu", lock_dir=folder, min_free_gib=0.1)
    return engines_on_cluster(
        wanted,
        gpu,
        folder=folder / "engines",
        store=store or DirectoryStoreSettings(),
        logs=folder / "log",
        wait_seconds=wait_seconds,
        progress=lambda _: None,
        held=held,
    )


def servers(folder: Path) -> list[psutil.Process]:
    """What looks like vLLM and was started for the model in this folder."""
    return running("vllm.entrypoints.openai.api_server", str(folder))


async def ask(engines: ClusterEngines, count: int) -> int:
    """How many of so many questions are answered."""

    def client_of(address: str, circuit: Circuit) -> OpenAIClient:
        return OpenAIClient(address, MODEL, SETTINGS, circuit=circuit, api_key=engines.key, answers_as=())

    servers = Servers(engines.addresses, client_of, SETTINGS.max_attempts)
    left = asyncio.Semaphore(SETTINGS.max_in_flight)

    async def one(number: int) -> bool:
        async with left:
            messages = [{"role": "user", "content": f"Alma Reyes came {number} times."}]
            answer = await client.complete(messages, {}, stream="meeting", deadline=None)
            return "Alma Reyes" in answer.content

    async with SeveralClients(servers, 60) as client:
        return sum(await asyncio.gather(*map(one, range(count))))


@pytest.mark.system
def test_an_engine_on_each_node_answers_and_one_that_is_killed_comes_back(cluster: RayCluster, tmp_path: Path) -> None:
    held: list[float] = []
    began = time.monotonic()
    # Three are asked for, and two have a node.
    with start(engine(tmp_path, cluster.settings, engines=3), tmp_path, held=held.append) as engines:
        until(lambda: len(engines.addresses()) == 2)
        before = set(engines.addresses())
        (order,) = (tmp_path / "engines").glob(f"*/{ORDER}")
        assert stat.S_IMODE(order.parent.stat().st_mode) == 0o700 and engines.key in order.read_text()
        refused = httpx.get(f"{engines.addresses()[0]}/v1/models", trust_env=False)
        assert refused.status_code == 401, "only who has the key may ask"
        victim = servers(tmp_path)[0]
        threading.Timer(0.3, victim.kill).start()
        assert asyncio.run(ask(engines, QUESTIONS)) == QUESTIONS
        until(lambda: len(engines.addresses()) == 2 and set(engines.addresses()) != before)
        assert asyncio.run(ask(engines, 100)) == 100
    (card_seconds,) = held
    assert 0 < card_seconds < 2 * (time.monotonic() - began), "an engine that never had a card costs nothing"
    assert servers(tmp_path) == [] and not (tmp_path / "engines").exists()


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    nowhere = engine(tmp_path, {"address": f"http://127.0.0.1:{free_port()}"})
    with pytest.raises(ServiceError, match="does not answer"), start(nowhere, tmp_path):
        pass
    assert not (tmp_path / "engines").exists(), "no key is left"


@pytest.mark.soak
def test_a_cluster_without_room_says_what_it_lacks(cluster: RayCluster, tmp_path: Path) -> None:
    large = engine(tmp_path, cluster.settings, cpus=3)
    held: list[float] = []
    with (
        pytest.raises(DeferredError, match=r"an engine needs a node with 3 CPU, the nodes have .*1 CPU"),
        start(large, tmp_path, wait_seconds=5, held=held.append),
    ):
        pass
    assert held == [0.0]


ASKER = """
import sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from test_cluster_engines import engine, start
folder = Path({folder!r})
with start(engine(folder, {cluster!r}), folder) as engines:
    time.sleep(600)
"""


@pytest.mark.soak
def test_engines_end_when_who_asked_for_them_is_killed(cluster: RayCluster, tmp_path: Path, project: Path) -> None:
    paths = [str(project / "tests" / room) for room in ("gpu", "", "training", "e2e")]
    program = ASKER.format(
        paths=paths, folder=str(tmp_path), cluster={key: str(value) for key, value in cluster.settings.items()}
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=project) as asker:
        until(lambda: len(servers(tmp_path)) == 2)
        asker.send_signal(signal.SIGKILL)
    until(lambda: servers(tmp_path) == [], 150)


@pytest.mark.soak
def test_an_engine_of_a_lost_node_comes_back_on_another(cluster: RayCluster, tmp_path: Path) -> None:
    with start(engine(tmp_path, cluster.settings), tmp_path) as engines:
        until(lambda: len(engines.addresses()) == 2)
        before = set(engines.addresses())
        node = cluster.node_of(servers(tmp_path)[0])
        assert node is not None
        cluster.lose(node)
        cluster.add_node()
        assert asyncio.run(ask(engines, QUESTIONS)) == QUESTIONS
        until(lambda: len(set(engines.addresses()) - before) == 1, 240)


@pytest.mark.soak
def test_a_night_reads_its_documents_with_engines_of_the_cluster(
    cluster: RayCluster, tmp_path: Path, project: Path, tiny_model: Path
) -> None:
    ec1 = light_project(tmp_path, project, tiny_model, train=False)
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    asked = json.dumps({**{key: str(value) for key, value in cluster.settings.items()}, "engines": 2})
    deployment.write_text(
        deployment.read_text().replace("max_model_len: 2048}", f"max_model_len: 2048, cluster: {asked}}}")
    )
    done = ec1.run("night", "--date", "2026-06-05", timeout=400)
    assert done.returncode == 0 and "26 read, 0 deferred" in done.stdout, done.stdout
    assert "of 2 engines answer after" in done.stdout
    assert servers(tmp_path) == [] and not list(ec1.home.root.rglob(ORDER))


@pytest.mark.soak
def test_an_engine_on_a_node_that_does_not_see_the_home(
    project: Path, tmp_path_factory: pytest.TempPathFactory, gcs_server: Any, bucket: str, tiny_model: Path
) -> None:
    """Model and key come through the bucket, the address goes back through it, and nothing is left there but files."""
    bwrap, folder = program("bwrap"), tmp_path_factory.mktemp("far")
    hidden, own = folder / "hidden", folder / "home-of-the-node"
    hidden.mkdir()
    own.mkdir()
    store = GcsStoreSettings(kind="gcs", bucket=bucket, endpoint=gcs_server.url)
    shutil.copytree(tiny_model, hidden / "model")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(project / "tests" / "e2e" / "fake_engine"))
        with RayCluster() as cluster:
            cluster.add_node(bwrap, "--dev-bind", "/", "/", "--tmpfs", hidden, "--setenv", "HOME", own)
            asked = {**cluster.settings, "engines": 1, "files": "store", "python": sys.executable}
            settings = VllmSettings(kind="vllm", model=MODEL, cluster=ClusterSettings.model_validate(asked))
            wanted = VllmEngine(settings, hidden / "model", MODEL, "cpu")
            with pytest.raises(InputError, match="a store that the nodes reach"), start(wanted, hidden):
                pass
            for _ in range(2):
                with start(wanted, hidden, store=store) as engines:
                    assert asyncio.run(ask(engines, 100)) == 100
                    (place,) = own.glob(".cache/ec1/engines/*/model")
                    (server,) = running("vllm.entrypoints.openai.api_server", str(place))
                assert not server.is_running()
    left = [item.key for item in store.open(folder).list("")]
    assert left and all(key.startswith(FILES) for key in left), "no key is left"

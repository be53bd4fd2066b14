"""`launcher: ray` with `files: store`: a real Ray cluster whose nodes see neither the night's home nor each other's;
all travels through a bucket."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from debian import program
from gcs_emulator import bucket, gcs_server
from loopback_server import free_port
from patience import until
from ray_cluster import RayCluster
from small_trainings import losses
from tls import certificates_in, tls_before

from ec1.deployment import Deployment, load_deployment
from ec1.errors import BusyError, PermanentError
from ec1.home import Home
from ec1.launch.launcher import Subject
from ec1.night.health.ray_nodes import examine_nodes
from ec1.night.launchers import open_launcher
from ec1.night.steps.candidate import run_training
from ec1.training.spec import TrainingResult, TrainingSpec

pytest.importorskip("ray", reason="run `make install`")
pytestmark = pytest.mark.slow
__all__ = ["bucket", "gcs_server"]
SLOW_STEPS = {"epochs": 30, "checkpoint_minutes": 1e-6, "keep_checkpoints": 3}


class Night:
    """A night's machine, with a project whose deployment names a cluster, and what the cluster's nodes cannot see."""

    def __init__(self, folder: Path, cluster: RayCluster, store: dict[str, str], **launcher: object) -> None:
        self.root = folder / "hidden"
        self.home = Home(self.root / "home")
        self.cluster = cluster
        reached = {key: str(value) for key, value in cluster.settings.items()}
        settings = {
            "tenant": "acme",
            "recipes": ["recipes"],
            "models": {},
            "inference": {"kind": "server", "model": "none", "base_url": "http://127.0.0.1:9"},
            "gpu": {"device": "cpu", "min_free_gib": 0.1, "name": "CPU", "memory_gib": 8, "tokens_per_second": 100},
            "schedule": {"enabled": False, "first_night": "2026-06-01"},
            "store": store,
            "worker": {"beat_seconds": 1, "expire_seconds": 10, "poll_seconds": 1},
            "launcher": {
                "kind": "ray",
                "files": "store",
                **reached,
                "python": sys.executable,
                "project": ".",
                # The deployment travels as Ray's own users send theirs.
                "runtime_env": {"working_dir": str(self.root / "project")},
                "follow_seconds": 0.2,
                **launcher,
            },
        }
        (self.root / "project" / "configs" / "deployments").mkdir(parents=True, exist_ok=True)
        (self.root / "project" / "recipes").mkdir(exist_ok=True)
        (self.root / "project" / "configs" / "deployments" / "far.yaml").write_text(json.dumps(settings))

    @property
    def deployment(self) -> Deployment:
        return load_deployment("far", self.root / "project")

    def train(self, spec: TrainingSpec) -> TrainingResult:
        def no_lease() -> None:
            raise AssertionError("nothing runs here")

        launcher = open_launcher(self.deployment, self.home, no_lease)  # type: ignore[arg-type]
        spec.output.mkdir(parents=True)
        return run_training(spec, Subject("acme", "editor", "2026-06-01"), launcher, {}, spec.output / "log")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("far")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[RayCluster]:
    program("bwrap")
    with RayCluster() as started:
        for name in ("one", "other"):
            add_node(started, folder, name)
        yield started


def add_node(cluster: RayCluster, folder: Path, name: str) -> int:
    """One whose home directory is its own, and to which the night's folder is empty."""
    (folder / "hidden").mkdir(exist_ok=True)
    own = folder / f"home-of-{name}"
    own.mkdir()
    return cluster.add_node("bwrap", "--dev-bind", "/", "/", "--tmpfs", folder / "hidden", "--setenv", "HOME", own)


@pytest.fixture
def store(bucket: str, gcs_server: object) -> dict[str, str]:
    return {"kind": "gcs", "bucket": bucket, "endpoint": gcs_server.url}  # type: ignore[attr-defined]


def trainer(folder: Path) -> psutil.Process | None:
    """What trains in the home of a node."""
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if words[1:3] == ["-m", "ec1.training"] and any(str(folder / "home-of-") in word for word in words):
            return process
    return None


def steps_sent(night: Night) -> int:
    """Of the newest checkpoint in the store."""
    store = night.deployment.store.open(night.home.root)
    found = [item.key for item in store.list("work/kept/") if item.key.count("/") == 2]
    return max((json.loads(store.get_bytes(key))["number"] for key in found), default=-1)


@pytest.mark.system
def test_a_node_that_dies_in_the_middle_costs_no_weight(
    cluster: RayCluster, folder: Path, store: dict[str, str], make: Callable[..., TrainingSpec]
) -> None:
    night = Night(folder, cluster, store)
    undisturbed = make("engineering", night.home.root / "undisturbed", optimisation=SLOW_STEPS)
    assert night.train(undisturbed).status == "finished"
    assert "step" in (undisturbed.output / "log").read_text(), "what the trainer printed there is here"
    spec = make("engineering", night.home.root / "disturbed", optimisation=SLOW_STEPS)
    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(night.train(spec))
        except Exception as error:  # noqa: BLE001  looked at by the test
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    until(lambda: trainer(folder) is not None or bool(ended), 240)
    first = trainer(folder)
    assert first is not None, ended
    until(lambda: bool(list(folder.glob("home-of-*/**/checkpoint-5/sealed.json"))))
    # Checkpoints are sent once a minute.
    first.suspend()
    until(lambda: steps_sent(night) >= 5, 120)
    node = cluster.node_of(first)
    assert node is not None
    cluster.lose(node)
    thread.join(400)
    assert ended and isinstance(ended[0], TrainingResult), ended
    assert ended[0].status == "finished" and (ended[0].resumed_from or 0) >= 5
    assert losses(spec) == losses(undisturbed)


@pytest.mark.system
def test_the_doctor_asks_every_node(cluster: RayCluster, folder: Path, store: dict[str, str]) -> None:
    if cluster.nodes < 2:
        add_node(cluster, folder, "third")
    night = Night(folder, cluster, store)
    found = examine_nodes(night.deployment, night.home, night.root / "project")
    assert [each.level for each in found] == ["ok", "ok"], found
    assert len({each.detail.split(": ")[0] for each in found}) == 2, "each node by its own name"
    assert all("the store answers" in each.detail and "GiB free" in each.detail for each in found)
    elsewhere = Night(folder, cluster, {**store, "endpoint": f"http://127.0.0.1:{free_port()}"}, deployment="near")
    found = examine_nodes(elsewhere.deployment, night.home, night.root / "project")
    assert [each.level for each in found] == ["problem", "problem"]
    assert all("near" in each.detail for each in found), found


@pytest.mark.soak
def test_a_training_that_fails_and_one_without_room(
    cluster: RayCluster, folder: Path, store: dict[str, str], make: Callable[..., TrainingSpec]
) -> None:
    night = Night(folder, cluster, store)
    wrong = make("engineering", night.home.root / "wrong", lora={"target_modules": ["query_key_value"]})
    with pytest.raises(PermanentError, match="has no module query_key_value"):
        night.train(wrong)
    large = Night(folder, cluster, store, cpus=3, memory_gib=1, wait_seconds=15)
    began = time.monotonic()
    with pytest.raises(BusyError, match=r"the training needs a node with 3 CPU and 1.0 GiB, the nodes have .*1 CPU"):
        large.train(make("engineering", night.home.root / "large"))
    assert time.monotonic() - began < 120
    assert not cluster.jobs("PENDING", "RUNNING")


@pytest.mark.soak
def test_a_cluster_that_speaks_tls(folder: Path, store: dict[str, str], tmp_path: Path) -> None:
    """Among its nodes, which is Ray's own work, and towards those who ask."""
    made = certificates_in(tmp_path)
    environment = {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(made.certificate),
        "RAY_TLS_SERVER_KEY": str(made.key),
        "RAY_TLS_CA_CERT": str(made.authority),
    }
    with RayCluster(environment) as cluster, tls_before(cluster.address, made) as address:
        cluster.add_node()

        def seen(**settings: object) -> str:
            night = Night(folder, cluster, store, address=address, **settings)
            (node,) = examine_nodes(night.deployment, night.home, night.root / "project")
            return f"{node.level} {node.detail}"

        assert seen(ca_file=str(made.authority)).startswith("ok ")
        assert "certificate" in seen(), "one that nobody vouches for is refused"
        assert "no-such.pem, cannot be read" in seen(ca_file=str(tmp_path / "no-such.pem"))

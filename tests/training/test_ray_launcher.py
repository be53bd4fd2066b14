"""Trainings as jobs of a real Ray cluster on this machine: the same result, also when a node dies in the middle."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest
import torch
from loopback_server import free_port
from patience import until
from ray_cluster import RayCluster, running
from safetensors.torch import load_file
from small_trainings import losses
from small_trainings import run as run_here

from ec1.errors import InputError, PermanentError, ServiceError
from ec1.launch.device import GpuSettings
from ec1.launch.launcher import DeviceWork, Subject
from ec1.launch.ranks import RANK
from ec1.launch.ray_launcher import RayLauncher, RayLauncherSettings
from ec1.training.spec import TrainingResult, TrainingSpec, check_result
from resources.pipes import PipesResource

pytest.importorskip("ray", reason="run `make install`")
SLOW_STEPS = {"epochs": 10, "checkpoint_minutes": 1e-6, "keep_checkpoints": 3}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster() as started:
        started.add_node()
        yield started


def launcher(cluster: RayCluster, folder: Path) -> RayLauncher:
    gpu = GpuSettings(device="cpu", lock_dir=folder, min_free_gib=0.1)
    return RayLauncher(RayLauncherSettings(**cluster.settings), gpu, wait_seconds=300)


def work(spec: TrainingSpec) -> DeviceWork:
    path = spec.output / "spec.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(spec.model_dump_json())
    subject = Subject("acme", "editor", "2026-06-01")
    return DeviceWork("the training", "ec1.training", path, "cpu", subject, (), spec.output, processes=spec.processes)


def train(cluster: RayCluster, spec: TrainingSpec, folder: Path) -> TrainingResult:
    launcher(cluster, folder).run(work(spec), {}, spec.output / "log")
    return check_result(spec)


def trainers_of(spec: TrainingSpec) -> list[psutil.Process]:
    """The processes that train as specified."""
    return running("ec1.training", str(spec.output / "spec.json"))


def trainer_of(spec: TrainingSpec) -> psutil.Process | None:
    return next(iter(trainers_of(spec)), None)


def same_weights(one: TrainingSpec, other: TrainingSpec) -> bool:
    left, right = (load_file(each.output / "adapter" / "adapter_model.safetensors") for each in (one, other))
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def in_background(cluster: RayCluster, spec: TrainingSpec, folder: Path) -> tuple[threading.Thread, list[object]]:
    ended: list[object] = []

    def run() -> None:
        try:
            ended.append(train(cluster, spec, folder))
        except Exception as error:  # noqa: BLE001  looked at by the test
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, ended


def test_a_cluster_that_is_not_there(tmp_path: Path, make: Callable[..., TrainingSpec]) -> None:
    settings = RayLauncherSettings(address=f"http://127.0.0.1:{free_port()}")
    nowhere = RayLauncher(settings, GpuSettings(device="cpu"), wait_seconds=1)
    with pytest.raises(ServiceError, match="does not answer") as error:
        nowhere.run(work(make("engineering", tmp_path)), {}, tmp_path / "log")
    assert "\n" not in str(error.value)


@pytest.mark.soak
def test_a_step_of_dagster_trains_on_the_cluster(
    cluster: RayCluster, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    """What the trainer reports reaches the run; what it refuses is the step's error, and not tried again."""
    spec, where = make("engineering", tmp_path / "one"), launcher(cluster, tmp_path)

    @dg.asset
    def candidate(context: dg.AssetExecutionContext, pipes: PipesResource) -> dg.MaterializeResult:
        log = spec.output / "log"
        _, report = pipes.run(context, lambda env: where.run(work(spec), env, log), required=["status", "steps"])
        return dg.MaterializeResult(metadata={"steps": report["steps"], "status": report["status"]})

    done = dg.materialize([candidate], resources={"pipes": PipesResource()})
    metadata = done.asset_materializations_for_node("candidate")[0].metadata
    assert (metadata["status"].value, metadata["steps"].value) == ("finished", check_result(spec).steps)
    wrong = make("engineering", tmp_path / "two", model=tmp_path / "no-model")
    with pytest.raises(PermanentError, match="ended with status 1") as error:
        train(cluster, wrong, tmp_path)
    assert str(error.value).count("holds no model") == 1


@pytest.mark.soak
def test_a_node_that_dies_in_the_middle_costs_no_weight(
    cluster: RayCluster, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    undisturbed = make("engineering", tmp_path / "undisturbed", optimisation=SLOW_STEPS)
    train(cluster, undisturbed, tmp_path)
    spec = make("engineering", tmp_path / "disturbed", optimisation=SLOW_STEPS)
    thread, ended = in_background(cluster, spec, tmp_path)
    until(lambda: (spec.checkpoints / "checkpoint-5" / "sealed.json").is_file())
    first = trainer_of(spec)
    assert first is not None
    node = cluster.node_of(first)
    assert node is not None
    cluster.lose(node)
    lost = time.monotonic()
    until(lambda: not first.is_running() or first.status() == psutil.STATUS_ZOMBIE, 20)
    cluster.add_node()
    thread.join(400)
    assert ended and isinstance(ended[0], TrainingResult), ended
    assert ended[0].status == "finished" and (ended[0].resumed_from or 0) >= 5
    assert same_weights(spec, undisturbed)
    sys.stderr.write(
        f"resumed after step {ended[0].resumed_from}, done {time.monotonic() - lost:.0f} s after the loss\n"
    )


@pytest.mark.soak
def test_two_nodes_share_one_training_and_one_of_them_dies(
    cluster: RayCluster, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    """One process on each, each with a part of the model; the curve is that of one process. A third node is idle."""
    steps = {**SLOW_STEPS, "max_steps": 20}
    plain = {"method": "lora", "quantization": None, "lora": {"dropout": 0.0}, "optimisation": steps}
    undisturbed = make("engineering", tmp_path / "undisturbed", **plain)
    run_here(undisturbed)
    while cluster.nodes < 3:
        cluster.add_node()
    spec = make("engineering", tmp_path / "shared", processes=2, fsdp=True, **plain)
    thread, ended = in_background(cluster, spec, tmp_path)
    until(lambda: (spec.checkpoints / "checkpoint-5" / "sealed.json").is_file() or bool(ended), 400)
    assert not ended, ended
    ranks = trainers_of(spec)
    nodes = {cluster.node_of(process) for process in ranks}
    assert len(ranks) == len(nodes) == 2 and None not in nodes, "each has a node of its own"
    other = next(each for each in ranks if each.environ()[RANK] == "1")
    node = cluster.node_of(other)
    assert node is not None
    cluster.lose(node)
    thread.join(600)
    assert ended and isinstance(ended[0], TrainingResult), ended
    assert (ended[0].status, ended[0].processes, ended[0].fsdp) == ("finished", 2, True)
    assert (ended[0].resumed_from or 0) >= 5
    # Sums in another order differ in the last bits of bfloat16.
    assert losses(spec) == pytest.approx(losses(undisturbed), rel=1e-3)
    assert not trainers_of(spec)


@pytest.mark.soak
def test_what_several_refuse_is_the_step_s_error(
    cluster: RayCluster, make: Callable[..., TrainingSpec], tmp_path: Path
) -> None:
    while cluster.nodes < 2:
        cluster.add_node()
    wrong = make("engineering", tmp_path, processes=2, lora={"target_modules": ["query_key_value"]})
    with pytest.raises(PermanentError, match="has no module query_key_value"):
        train(cluster, wrong, tmp_path)


@pytest.mark.soak
def test_two_nodes_train_side_by_side(cluster: RayCluster, make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    while cluster.nodes < 2:
        cluster.add_node()
    specs = [make("engineering", tmp_path / name, optimisation=SLOW_STEPS) for name in ("one", "other")]
    running = [in_background(cluster, spec, tmp_path) for spec in specs]
    until(lambda: all(trainer_of(spec) is not None for spec in specs))
    nodes = {cluster.node_of(process) for spec in specs if (process := trainer_of(spec)) is not None}
    assert len(nodes) == 2, "each has a node of its own"
    for thread, _ in running:
        thread.join(400)
    assert all(isinstance(ended[0], TrainingResult) for _, ended in running), running
    assert same_weights(*specs)


ALONE = """
import sys
from pathlib import Path
from ec1.launch.device import GpuSettings
from ec1.launch.ray_launcher import RayLauncherSettings
from ec1.launch.launcher import DeviceWork, Subject
from ec1.launch.ray_launcher import RayLauncher
address, token_file, spec, folder = sys.argv[1:]
gpu = GpuSettings(device="cpu", lock_dir=Path(folder), min_free_gib=0.1)
subject = Subject("acme", "editor", "2026-06-01")
work = DeviceWork("the training", "ec1.training", Path(spec), "cpu", subject, (), Path(spec).parent)
settings = RayLauncherSettings(address=address, token_file=token_file)
RayLauncher(settings, gpu, wait_seconds=300).run(work, {}, Path(spec).with_name("log"))
"""


@pytest.mark.soak
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_the_one_who_asked_ends(
    cluster: RayCluster, make: Callable[..., TrainingSpec], tmp_path: Path, ending: signal.Signals
) -> None:
    """Interrupted, it ends the job, with a checkpoint. Killed, it cannot: who asks again follows the same job."""
    # Several times as long as an interrupt may take to reach the cluster.
    spec = make("engineering", tmp_path / "asked", optimisation={**SLOW_STEPS, "epochs": 40})
    asked = work(spec)
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            ALONE,
            cluster.address,
            str(cluster.token_file),
            str(asked.specification),
            str(tmp_path),
        ],
        stderr=subprocess.DEVNULL,
    ) as process:
        until(lambda: (spec.checkpoints / "checkpoint-3" / "sealed.json").is_file())
        first = trainer_of(spec)
        process.send_signal(ending)
        process.wait(120)
    assert first is not None
    if ending == signal.SIGINT:
        until(lambda: not first.is_running(), 90)
        assert not (spec.output / "summary.json").exists()
    else:
        assert first.is_running()
    result = train(cluster, spec, tmp_path)
    assert result.status == "finished" and (result.resumed_from is None) == (ending == signal.SIGKILL)


def test_ray_is_an_extra(tmp_path: Path, make: Callable[..., TrainingSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(InputError, match="pip install"):
        RayLauncher(RayLauncherSettings(), GpuSettings(device="cpu"), 1).run(
            work(make("engineering", tmp_path)), {}, tmp_path / "log"
        )

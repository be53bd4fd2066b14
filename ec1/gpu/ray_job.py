"""A Ray job of `launcher: ray`: `python -m ec1.gpu.ray_job ORDER.json`, started by the cluster.

The job asks Ray for a node with what the work needs, and for another one when that is lost; on the node the work is a
supervised process under the lease of the node's card, as everywhere. Several processes that share a training are the
workers of a `TorchTrainer` (https://docs.ray.io/en/latest/train/getting-started-pytorch.html), each on a card of its
own, and all are started again when one is lost. An entry point, so it may look at the environment.
"""

import os
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ec1.errors import BusyError, EC1Error, PermanentError, ServiceError, one_line
from ec1.files import read_json, write_json
from ec1.gpu.cards import CardName, names_in
from ec1.gpu.lease import GpuLease, Phase, card_lock, shared_lock_folder
from ec1.launch.by_spec import run_by_spec
from ec1.launch.launcher import NOBODY, DeviceWork, LocalLauncher
from ec1.launch.local import free_port
from ec1.launch.process import inherited
from ec1.launch.ranks import rank_environment
from ec1.launch.ray_launcher import JOB, RayOrder, RayResult
from ec1.launch.reporting import imported_session


def carry_out(order: RayOrder) -> None:
    """Have a node do the work, again on another one where a node or process was lost, and write down how it ended."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    # Under its real name, not that of a script: nodes import it.
    from ec1.gpu import ray_job

    ray.init(address="auto", log_to_driver=False)
    if order.need.places > 1:
        _carry_out_by_several(order)
        return
    task = ray.remote(ray_job.on_a_node).options(
        **order.need.options,
        max_retries=order.retries,
        # A process that was killed can go on too, and another card may be free. Whatever else went wrong would go
        # wrong again.
        retry_exceptions=[ServiceError, BusyError],
        name=order.what,
    )
    result = RayResult()
    try:
        result = RayResult(card_seconds=ray.get(task.remote(order.model_dump(mode="json"))))
    except RayTaskError as error:
        if not isinstance(error.cause, EC1Error):
            raise
        result = RayResult(error=type(error.cause).__name__, message=str(error.cause))
    except RayError as error:
        lost = f"{order.what} lost its node or its process {order.retries + 1} times and can go on"
        result = RayResult(error="ServiceError", message=f"{lost}: {one_line(error)}")
    write_json(order.result, result.model_dump(mode="json"))


def _carry_out_by_several(order: RayOrder) -> None:
    """Have a process on each of several cards do the work together, all again where one was lost."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.train.v2.api.exceptions import TrainingFailedError

    from ec1.gpu import ray_job

    # A node that has been idle may take long to load what a worker needs; by default Ray begins again after a minute.
    os.environ.setdefault("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "600")
    # Ray keeps its own books there; checkpoints are the trainer's, and no part of them.
    books = order.result.with_suffix(".books")
    trainer = TorchTrainer(
        ray_job.on_each,
        train_loop_config=order.model_dump(mode="json"),
        # For what they tell each other before they train; the trainers choose their own.
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=order.need.places,
            use_gpu=order.device == "cuda",
            resources_per_worker={name: amount for name, amount in order.need.resources.items() if amount},
        ),
        run_config=RunConfig(
            name="train", storage_path=str(books), failure_config=FailureConfig(max_failures=order.retries)
        ),
    )
    try:
        began = time.monotonic()
        trainer.fit()
        taken = (time.monotonic() - began) * order.need.places
        write_json(order.result, RayResult(card_seconds=round(taken, 1)).model_dump(mode="json"))
    except TrainingFailedError as error:
        if not order.result.is_file():
            lost = f"{order.what} lost a node or a process {order.retries + 1} times and can go on"
            result = RayResult(error="ServiceError", message=f"{lost}: {one_line(error)}")
            write_json(order.result, result.model_dump(mode="json"))
    finally:
        shutil.rmtree(books, ignore_errors=True)


def on_each(order_values: dict[str, Any]) -> None:
    """Do the work here as one of several, who find each other through Ray. Raises as `Launcher.run`."""
    from ray.train import get_context
    from ray.train.collective import broadcast_from_rank_zero
    from ray.util import get_node_ip_address

    order = RayOrder.model_validate(order_values)
    if order.result.is_file():
        # Ray starts all of them again whatever was wrong. This would go wrong again.
        raise PermanentError(RayResult.model_validate(read_json(order.result)).message)
    context = get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    here = None
    if rank == 0:
        here = (get_node_ip_address(), free_port(""))
    host, port = broadcast_from_rank_zero(here)
    local_rank, local_size = context.get_local_rank(), context.get_local_world_size()
    place = rank_environment(rank, local_rank, size, local_size, host, port)
    log = order.log if rank == 0 else order.log.with_suffix(f".rank-{rank}.log")
    try:
        _work(order, place, log, local_rank)
    except (ServiceError, BusyError):
        raise
    except EC1Error as error:
        write_json(order.result, RayResult(error=type(error).__name__, message=str(error)).model_dump(mode="json"))
        raise


def on_a_node(order_values: dict[str, Any]) -> float | None:
    """Do the work here, under the lease of this node's card. Returns and raises as `Launcher.run`."""
    order = RayOrder.model_validate(order_values)
    return _work(order, {}, order.log, 0)


def _work(order: RayOrder, place: Mapping[str, str], log: Path, local_rank: int) -> float | None:
    order.begun.touch()
    phase: Phase = "evaluation" if "evaluation" in order.module else "training"
    card, lock = card_given(order.what, order.device, order.lock_dir, local_rank)
    lease = GpuLease(
        lock,
        device=order.device,
        min_free_gib=order.min_free_gib,
        cards=(card,),
        # Processes that train together see all of their node's cards, each under its own local rank.
        pins=order.need.places == 1,
    )
    holder = f"Ray job of {order.what} {order.specification}"
    env = inherited(os.environ) | dict(place)
    if order.session is not None:
        env |= imported_session(order.session, order.messages)
    # What it reads and writes is of use only to who sends files.
    folder = order.specification.parent
    work = DeviceWork(
        order.what, order.module, order.specification, order.device, NOBODY, (), folder, environment=order.environment
    )
    launcher = LocalLauncher(lambda: lease.hold(phase, night="", holder=holder, wait_seconds=order.wait_seconds))
    return launcher.run(work, env, log)


def card_given(what: str, device: str, lock_dir: Path | None, local_rank: int = 0) -> tuple[CardName, Path]:
    """The card that Ray gave this process, which NVML is asked about, and its lock: the same as any home's here. Raises
    ServiceError if it gave none; `what` names who asks."""
    import ray

    folder = lock_dir or shared_lock_folder()
    if device == "cpu":
        # Processes that train together each have a place on the node's CPU.
        node = ray.get_runtime_context().get_node_id()
        return 0, folder / (f"ec1-ray-{node[:12]}-{local_rank}.lock" if local_rank else f"ec1-ray-{node[:12]}.lock")
    given = names_in(",".join(map(str, ray.get_gpu_ids())))
    if not given:
        raise ServiceError(f"Ray gave {what} no card: does the node say that it has some (--num-gpus)?")
    return given[0], card_lock(folder, given[0])


if __name__ == "__main__":
    sys.exit(run_by_spec(JOB, RayOrder, sys.argv[1:], carry_out))

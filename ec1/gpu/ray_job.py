"""A Ray job of `launcher: ray`: `python -m ec1.gpu.ray_job ORDER.json`, started by the cluster.

The job asks Ray for a node with what the work needs, and for another one when that is lost; on the node the work is a
supervised process under the lease of the node's card, as everywhere. An entry point, so it may look at the environment.
"""

import os
import sys
from pathlib import Path
from typing import Any

from ec1.deployment import shared_lock_folder
from ec1.errors import EC1Error, ServiceError
from ec1.files import write_json
from ec1.gpu.lease import GpuLease, Phase
from ec1.launch.by_spec import run_by_spec
from ec1.launch.launcher import NOBODY, LocalLauncher, Work
from ec1.launch.process import inherited
from ec1.launch.ray_launcher import JOB, RayOrder, RayResult
from ec1.launch.reporting import imported_session


def carry_out(order: RayOrder) -> None:
    """Have a node do the work, again on another one where a node or process was lost, and write down how it ended."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    # Under its real name, not that of a script: nodes import it.
    from ec1.gpu import ray_job

    ray.init(address="auto", log_to_driver=False)
    task = ray.remote(ray_job.on_a_node).options(
        num_cpus=order.cpus,
        num_gpus=1 if order.device == "cuda" else 0,
        max_retries=order.retries,
        # A process that was killed can go on too. Whatever else went wrong would go wrong again.
        retry_exceptions=[ServiceError],
        name=order.what,
    )
    result = RayResult()
    try:
        ray.get(task.remote(order.model_dump(mode="json")))
    except RayTaskError as error:
        if not isinstance(error.cause, EC1Error):
            raise
        result = RayResult(error=type(error.cause).__name__, message=str(error.cause))
    except RayError as error:
        lost = f"{order.what} lost its node or its process {order.retries + 1} times and can go on"
        result = RayResult(error="ServiceError", message=f"{lost}: {' '.join(str(error).split())[:500]}")
    write_json(order.result, result.model_dump(mode="json"))


def on_a_node(told: dict[str, Any]) -> None:
    """Do the work here, under the lease of this node's card. Raises as `Launcher.run`."""
    order = RayOrder.model_validate(told)
    phase: Phase = "evaluation" if "evaluation" in order.module else "training"
    lease = GpuLease(_lock(order), device=order.device, min_free_gib=order.min_free_gib)
    holder = f"Ray job of {order.what} {order.specification}"
    env = inherited(os.environ)
    if order.session is not None:
        env |= imported_session(order.session, order.messages)
    # What it reads and writes is of use only to who sends files.
    folder = order.specification.parent
    work = Work(
        order.what, order.module, order.specification, order.device, NOBODY, (), folder, environment=order.environment
    )
    launcher = LocalLauncher(lambda: lease.hold(phase, night="", holder=holder, wait_seconds=order.wait_seconds))
    launcher.run(work, env, order.log)


def _lock(order: RayOrder) -> Path:
    """The lock of the card that Ray gave this task: the machine's own where it has one card, else one for each."""
    import ray

    folder = order.lock_dir or shared_lock_folder()
    node = ray.get_runtime_context().get_node_id()
    if order.device == "cpu":
        return folder / f"ec1-ray-{node[:12]}.lock"
    cards = next(each["Resources"].get("GPU", 0) for each in ray.nodes() if each["NodeID"] == node)
    return folder / ("ec1-gpu.lock" if cards <= 1 else f"ec1-gpu-{ray.get_gpu_ids()[0]}.lock")


if __name__ == "__main__":
    sys.exit(run_by_spec(JOB, RayOrder, sys.argv[1:], [], carry_out))

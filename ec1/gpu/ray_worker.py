"""A Ray job of `launcher: ray` whose files go through a store: `python -m ec1.gpu.ray_worker JSON`.

The job asks Ray for a node with what the work needs, and for another one when that is lost; on the node `ec1 worker`
carries out the one order that it is for, in a home of the node's own. Nothing of the night's machine is needed there.
An entry point, so it may look at the environment.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ec1.errors import ServiceError
from ec1.launch.launcher import GRACE_SECONDS
from ec1.launch.process import SupervisedProcess, ending_signal, last_lines
from ec1.launch.ray_worker_jobs import NODE, RayWorkerOrder

log = logging.getLogger(__name__)
_LOOK_SECONDS = 300
"""For a look at one node: it loads torch there."""


def carry_out(order: RayWorkerOrder) -> int:
    """Have a node do the work, again on another one where a node or process was lost. Returns the command's status."""
    import ray
    from ray.exceptions import RayError

    # Under its real name, not that of a script: nodes import it.
    from ec1.gpu import ray_worker

    # What the worker prints is printed here, too, and so reaches whoever asked.
    ray.init(address="auto", log_to_driver=True)
    if order.need is None:
        return _look_at_each_node(order)
    task = ray.remote(ray_worker.on_a_node).options(
        **order.need.options,
        max_retries=order.retries,
        # Another process may live longer, and goes on from the newest checkpoint.
        retry_exceptions=[ServiceError],
        name=order.need.what,
    )
    try:
        return int(ray.get(task.remote(order.arguments)))
    except RayError as error:
        log.error("lost its node or its process %d times: %s", order.retries + 1, last_lines(str(error), 1))
        return 1


def on_a_node(arguments: Sequence[str]) -> int:
    """Run `ec1` with these arguments here; it ends, with time for a checkpoint, when this process does. Returns its
    status; raises ServiceError if it was killed."""
    # Credentials for the store may be in the environment.
    with SupervisedProcess(
        command(arguments), env=os.environ, log=Path("/dev/stdout"), grace_seconds=GRACE_SECONDS
    ) as process:
        status = process.wait()
    if ending_signal(status) is not None:
        raise ServiceError(f"ec1 worker {process.how_it_ended()}")
    return status


def command(arguments: Sequence[str]) -> list[str]:
    """`ec1` by the Python that Ray chose for this node, with the node's own home directory in it."""
    return [sys.executable, "-m", "ec1.cli", *map(os.path.expanduser, arguments)]


def _look_at_each_node(order: RayWorkerOrder) -> int:
    """Print what the command says on each node that can be given work."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from ec1.gpu import ray_worker

    asked = {}
    for node in ray.nodes():
        if node["Alive"] and node["Resources"].get(order.kind_of_node, 0):
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            # It asks for nothing, so that it is not kept waiting by what runs there.
            task = ray.remote(ray_worker.look_here).options(num_cpus=0, scheduling_strategy=here, max_retries=0)
            asked[node["NodeManagerAddress"], node["NodeID"][:8]] = task.remote(order.arguments)
    for (address, number), answer in asked.items():
        try:
            said = ray.get(answer, timeout=_LOOK_SECONDS)
        except Exception as error:  # noqa: BLE001  whatever it is, the others are asked
            said = {"problem": last_lines(str(error), 1)}
        sys.stdout.write(f"{NODE}{json.dumps({'node': f'{address} ({number})', **said})}\n")
    return 0


def look_here(arguments: Sequence[str]) -> dict[str, Any]:
    """What the command says here, which prints one JSON object; or `problem`, why it does not."""
    # Without a share of a card Ray hides all cards.
    environment = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        command(arguments), env=environment, capture_output=True, text=True, check=False, timeout=_LOOK_SECONDS
    )
    if done.returncode:
        return {"problem": last_lines(done.stderr or done.stdout, 1)}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    sys.exit(carry_out(RayWorkerOrder.model_validate_json(sys.argv[1])))

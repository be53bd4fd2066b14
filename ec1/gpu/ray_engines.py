"""A Ray job with engines: `python -m ec1.gpu.ray_engines ORDER.json`, started by the cluster.

Each engine is a task on a node with a card for it, under the lease of that card, as everywhere; one that is lost is
started again, on another node if there is one. All end when they are told to, or when who asked for them is silent. An
entry point, so it may look at the environment.
"""

import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ec1.errors import BusyError, EC1Error, ServiceError, one_line
from ec1.files import read_json, write_json
from ec1.gpu.cluster_engines import (
    ALIVE,
    BEAT_SECONDS,
    BEGUN,
    DEAD_SECONDS,
    HELD,
    JOB,
    STOP,
    EnginesOrder,
)
from ec1.gpu.engine import VllmEngine
from ec1.gpu.lease import GpuLease
from ec1.gpu.ray_job import card_given
from ec1.launch.beside import meanwhile, quietly
from ec1.launch.by_spec import run_by_spec
from ec1.launch.process import inherited

_LOOK_SECONDS = 0.5


class Asker:
    """Who asked for the engines: whether it still wants them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: Any = None
        self._heard = time.monotonic()

    def wants(self) -> bool:
        """Its number has changed within `DEAD_SECONDS` by this machine's clock, and it has not said that it is over."""
        try:
            said = read_json(self._folder / ALIVE)
        except (OSError, EC1Error):
            said = self._said
        if said != self._said:
            self._said, self._heard = said, time.monotonic()
        return not (self._folder / STOP).exists() and time.monotonic() - self._heard < DEAD_SECONDS


def keep_engines(order: EnginesOrder) -> None:
    """Have nodes serve until nobody wants it any more. Raises ServiceError if all engines are lost."""
    import ray
    from ray.exceptions import RayError

    # Under its real name, not that of a script: nodes import it.
    from ec1.gpu import ray_engines

    ray.init(address="auto", log_to_driver=False)
    asker = Asker(order.folder)
    task = ray.remote(ray_engines.serve_on_a_node).options(
        **order.need.options,
        max_retries=order.cluster.restarts,
        # Another card may be free, and another process may live longer.
        retry_exceptions=[ServiceError, BusyError],
    )
    values = order.model_dump(mode="json")
    tasks = {task.remote(values, number): number for number in range(order.cluster.engines)}
    problem = ""
    while tasks:
        if not asker.wants():
            # Those that have begun end by themselves; those that wait for a node end with this job.
            tasks = {each: number for each, number in tasks.items() if (order.folder / f"{BEGUN}-{number}").exists()}
        ended, _ = ray.wait(list(tasks), timeout=_LOOK_SECONDS) if tasks else ([], [])
        for each in ended:
            del tasks[each]
            try:
                ray.get(each)
            except RayError as error:
                problem = one_line(getattr(error, "cause", None) or error)
    if problem and asker.wants():
        raise ServiceError(problem)


def serve_on_a_node(order_values: dict[str, Any], number: int) -> None:
    """Serve here, under the lease of this node's card, as long as it is wanted. Raises ServiceError if the engine ends
    by itself, BusyError if the card stays taken."""
    order = EnginesOrder.model_validate(order_values)
    asker = Asker(order.folder)
    (order.folder / f"{BEGUN}-{number}").touch()
    try:
        if asker.wants():
            with _counted(order.folder / f"{HELD}-{number}-{secrets.token_hex(4)}.json"):
                _serve(order, number, asker)
    except (ServiceError, BusyError):
        # What ends an engine that nobody wants is no reason to start another one.
        if asker.wants():
            raise


@contextmanager
def _counted(path: Path) -> Iterator[None]:
    """Write down for how many seconds the block has gone on: Ray keeps the card for this task from the first one on."""
    began = time.monotonic()

    def say() -> None:
        # Who asked may be gone, and the folder with it.
        if path.parent.is_dir():
            write_json(path, round(time.monotonic() - began, 1))

    with meanwhile(say, BEAT_SECONDS, "engine"):
        try:
            yield
        finally:
            quietly(say, "engine")


def _serve(order: EnginesOrder, number: int, asker: Asker) -> None:
    from ray.util import get_node_ip_address

    card, lock = card_given("an engine", order.device, order.lock_dir)
    lease = GpuLease(lock, device=order.device, min_free_gib=order.min_free_gib, cards=(card,))
    engine = VllmEngine(order.engine, order.model, order.name, order.device, order.adapter)
    place = order.folder / f"engine-{number}.json"
    with (
        lease.hold("inference", night="", holder=f"Ray engine {number}", wait_seconds=order.wait_seconds) as grant,
        engine.serve(
            grant,
            log=order.logs.with_name(f"{order.logs.name}.{number}.log"),
            progress=lambda _: None,
            environment=inherited(os.environ),
            api_key=order.key,
            host=get_node_ip_address(),
            give_up=lambda: not asker.wants(),
        ) as endpoint,
    ):
        write_json(place, endpoint.base_url)
        while asker.wants():
            if (why := endpoint.died()) is not None:
                place.unlink(missing_ok=True)
                raise ServiceError(why)
            time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(run_by_spec(JOB, EnginesOrder, sys.argv[1:], keep_engines))

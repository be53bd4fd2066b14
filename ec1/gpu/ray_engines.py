"""A Ray job with engines: `python -m ec1.gpu.ray_engines PLACE`, a `MeetingPlace` as JSON, started by the cluster.

Each engine is a task on a node with a card for it, under the lease of that card, as everywhere; one that is lost is
started again, on another node if there is one. All end when they are told to, or when who asked for them is silent. An
entry point, so it may look at the environment.
"""

import dataclasses
import logging
import math
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ec1.errors import BusyError, EC1Error, ServiceError, one_line
from ec1.files import digest_of
from ec1.gpu.cluster_engines import (
    ALIVE,
    BEAT_SECONDS,
    BEGUN,
    DEAD_SECONDS,
    ENGINE,
    FILES,
    HELD,
    ORDER,
    STOP,
    EnginesOrder,
)
from ec1.gpu.engine import VllmEngine
from ec1.gpu.lease import GpuLease
from ec1.gpu.meeting import Meeting, MeetingPlace
from ec1.gpu.ray_job import card_given
from ec1.launch import blobs
from ec1.launch.beside import meanwhile, quietly
from ec1.launch.blobs import Tree
from ec1.launch.process import inherited

_LOOK_SECONDS, _ASK_SECONDS = 0.5, 2.0
_KEEP_SECONDS = 14 * 24 * 3600
"""How long a node keeps a model that no engine asks for."""


class Asker:
    """Who asked for the engines: whether it still wants them."""

    def __init__(self, meeting: Meeting) -> None:
        self._meeting = meeting
        self._said: Any = None
        self._heard = time.monotonic()
        self._looked = -math.inf
        self._over = False

    def wants(self) -> bool:
        """Its number has changed within `DEAD_SECONDS` by this machine's clock, and it has not said that it is over."""
        if time.monotonic() - self._looked >= _ASK_SECONDS:
            self._looked = time.monotonic()
            quietly(self._look, "engine")
        return not self._over and time.monotonic() - self._heard < DEAD_SECONDS

    def _look(self) -> None:
        self._over = self._over or self._meeting.heard(STOP) is not None
        said = self._meeting.heard(ALIVE)
        if said is not None and said != self._said:
            self._said, self._heard = said, time.monotonic()


def keep_engines(place: MeetingPlace) -> None:
    """Have nodes serve until nobody wants it any more. Raises ServiceError if all engines are lost."""
    import ray
    from ray.exceptions import RayError

    # Under its real name, not that of a script: nodes import it.
    from ec1.gpu import ray_engines

    ray.init(address="auto", log_to_driver=False)
    meeting = place.open()
    order = EnginesOrder.model_validate(meeting.heard(ORDER))
    asker = Asker(meeting)
    task = ray.remote(ray_engines.serve_on_a_node).options(
        **order.need.options,
        max_retries=order.cluster.restarts,
        # Another card may be free, and another process may live longer.
        retry_exceptions=[ServiceError, BusyError],
    )
    values = place.model_dump(mode="json")
    tasks = {task.remote(values, number): number for number in range(order.cluster.engines)}
    problem = ""
    while tasks:
        if not asker.wants():
            # Those that have begun end by themselves; those that wait for a node end with this job.
            tasks = {each: number for each, number in tasks.items() if meeting.heard(f"{BEGUN}{number}")}
        ended, _ = ray.wait(list(tasks), timeout=_LOOK_SECONDS) if tasks else ([], [])
        for each in ended:
            del tasks[each]
            try:
                ray.get(each)
            except RayError as error:
                problem = one_line(getattr(error, "cause", None) or error)
    if problem and asker.wants():
        raise ServiceError(problem)


def serve_on_a_node(place_values: dict[str, Any], number: int) -> None:
    """Serve here, under the lease of this node's card, as long as it is wanted. Raises ServiceError if the engine ends
    by itself, BusyError if the card stays taken."""
    meeting = MeetingPlace.model_validate(place_values).open()
    if (told := meeting.heard(ORDER)) is None:
        return
    asker = Asker(meeting)
    meeting.say(f"{BEGUN}{number}", True)
    try:
        if asker.wants():
            with _counted(meeting, f"{HELD}{number}-{secrets.token_hex(4)}", asker):
                _serve(EnginesOrder.model_validate(told), number, meeting, asker)
    except (ServiceError, BusyError):
        # What ends an engine that nobody wants is no reason to start another one.
        if asker.wants():
            raise


@contextmanager
def _counted(meeting: Meeting, name: str, asker: Asker) -> Iterator[None]:
    """Say for how many seconds the block has gone on: Ray keeps the card for this task from the first one on."""
    began = time.monotonic()

    def say() -> None:
        # Who asked may be gone, and the place with it.
        if meeting.heard(ORDER) is not None:
            meeting.say(name, round(time.monotonic() - began, 1))

    with meanwhile(say, BEAT_SECONDS, "engine"):
        try:
            yield
        finally:
            quietly(say, "engine")


def _serve(order: EnginesOrder, number: int, meeting: Meeting, asker: Asker) -> None:
    from ray.util import get_node_ip_address

    card, lock = card_given("an engine", order.device, order.lock_dir)
    lease = GpuLease(lock, device=order.device, min_free_gib=order.min_free_gib, cards=(card,))
    engine, log = _engine(order, number, meeting)
    name = f"{ENGINE}{number}"
    with (
        lease.hold("inference", night="", holder=f"Ray engine {number}", wait_seconds=order.wait_seconds) as grant,
        engine.serve(
            grant,
            log=log,
            progress=lambda _: None,
            environment=inherited(os.environ),
            api_key=order.key,
            host=get_node_ip_address(),
            give_up=lambda: not asker.wants(),
        ) as endpoint,
    ):
        meeting.say(name, endpoint.base_url)
        while asker.wants():
            if (why := endpoint.died()) is not None:
                meeting.take_back(name)
                raise ServiceError(why)
            time.sleep(_LOOK_SECONDS)


def _engine(order: EnginesOrder, number: int, meeting: Meeting) -> tuple[VllmEngine, Path]:
    """The engine of this node, and its log; what came through the store is put into a folder of the node's first."""
    model, adapter, log = order.model, order.adapter, order.logs.with_name(f"{order.logs.name}.{number}.log")
    if order.sent:
        own = Path(order.cluster.folder).expanduser()
        model, *others = (_received(tree, meeting, own) for tree in order.sent)
        log = own / "logs" / f"{order.logs.name}.{number}.log"
        if adapter is not None:
            adapter = dataclasses.replace(adapter, folder=others[0])
    return VllmEngine(order.engine, model, order.name, order.device, adapter), log


def _received(tree: Tree, meeting: Meeting, own: Path) -> Path:
    """The folder of these files on this node; fetched once, whichever engine asks for it. Those of long ago go."""
    models = own / "engines"
    place = models / digest_of(tree.model_dump(mode="json"))[:24] / tree.name
    if not place.is_dir():
        fresh = place.with_name(f".{tree.name}-{secrets.token_hex(4)}")
        blobs.fetch_all(meeting.store, tree, fresh, (), FILES)
        try:
            fresh.rename(place)
        except OSError:
            # The engine of the next card was faster.
            shutil.rmtree(fresh)
    os.utime(place.parent)
    for other in models.iterdir():
        if other.stat().st_mtime < time.time() - _KEEP_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return place


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        keep_engines(MeetingPlace.model_validate_json(sys.argv[1]))
    except EC1Error as error:
        logging.getLogger(__name__).error("%s", error)
        sys.exit(1)

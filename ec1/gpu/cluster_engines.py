"""Engines on the nodes of a Ray cluster, asked for from here.

Belongs here: starting them as one job, where they answer, that they go on only as long as this process does, and their
end. Does not: what happens on a node (`ec1.gpu.ray_engines`).

They are told what to do, and tell where they answer, by files in one folder of the home, which the nodes see at the
same place.
"""

import itertools
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from ec1.errors import DeferredError, ServiceError
from ec1.files import read_json, write_json
from ec1.gpu.engine import GRACE_SECONDS, ServedAdapter, VllmEngine
from ec1.gpu.settings import ClusterSettings, VllmSettings
from ec1.launch.beside import meanwhile
from ec1.launch.device import GpuSettings
from ec1.launch.ray_jobs import POLL_SECONDS, RayJobs, RayNeed
from ec1.settings import Settings

JOB = "ec1.gpu.ray_engines"
ORDER, ALIVE, STOP, BEGUN = "order.json", "alive", "stop", "begun"
HELD = "held"
"""Beginning of the names of the files that say for how many seconds a try at an engine has had its card."""
BEAT_SECONDS = 5.0
DEAD_SECONDS = 60.0
"""How long who asked may be silent before its engines end."""
_PROGRESS_SECONDS = 10.0


class EnginesOrder(Settings):
    """What the nodes are told: the engine, and what each node's lease asks for."""

    engine: VllmSettings
    model: Path
    name: str
    device: Literal["cuda", "cpu"]
    adapter: ServedAdapter | None
    key: str
    folder: Path
    logs: Path
    """Beginning of the logs' names: the number of the engine follows."""
    lock_dir: Path | None
    min_free_gib: float
    wait_seconds: float

    @property
    def cluster(self) -> ClusterSettings:
        assert self.engine.cluster is not None
        return self.engine.cluster

    @property
    def need(self) -> RayNeed:
        """Of one engine."""
        cards = 1 if self.device == "cuda" else 0
        return RayNeed(what="an engine", resources=self.cluster.resources(self.cluster.cpus, cards))


class ClusterEngines:
    """The engines that were asked for, as they come and go."""

    def __init__(self, folder: Path, key: str) -> None:
        self._folder = folder
        self.key = key

    def addresses(self) -> list[str]:
        """Of those that have said where they answer. One that was lost says it anew when it was started again."""
        return [str(read_json(path)) for path in sorted(self._folder.glob("engine-*.json"))]

    def card_seconds(self) -> float:
        """For how long they have had their cards: of two twice the time. Of a node that was lost it is what it last
        said, at most `BEAT_SECONDS` ago."""
        return sum(float(read_json(path)) for path in self._folder.glob(f"{HELD}-*.json"))


@contextmanager
def engines_on_cluster(
    engine: VllmEngine,
    gpu: GpuSettings,
    *,
    folder: Path,
    logs: Path,
    wait_seconds: float,
    progress: Callable[[str], None],
    held: Callable[[float], None] = lambda card_seconds: None,
) -> Iterator[ClusterEngines]:
    """Start as many engines as `engine.settings.cluster` says, yield when the first answers, end them with the block,
    and call `held` with the card-seconds that they had.

    Raises DeferredError if the cluster has had no card for any of them for `wait_seconds`, ServiceError if it does not
    answer or none of them could be started.
    """
    # Engines of a run that was killed find nothing there any more, and end.
    shutil.rmtree(folder, ignore_errors=True)
    job = f"ec1-engines-{secrets.token_hex(8)}"
    own = folder / job
    own.mkdir(parents=True)
    order = EnginesOrder(
        engine=engine.settings,
        model=engine.model_folder.absolute(),
        name=engine.model_name,
        device=engine.device,
        adapter=engine.adapter,
        key=secrets.token_urlsafe(24),
        folder=own.absolute(),
        logs=logs.absolute(),
        lock_dir=gpu.lock_dir,
        min_free_gib=gpu.min_free_gib,
        wait_seconds=wait_seconds,
    )
    # With the key in it: for the owner's eyes.
    os.close(os.open(own / ORDER, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    (own / ORDER).write_text(order.model_dump_json())
    jobs = RayJobs(order.cluster, "inference.cluster")
    engines = ClusterEngines(own, order.key)
    beats = itertools.count(1)
    write_json(own / ALIVE, 0)
    with ExitStack() as ends:
        # Whatever counting meets: no key is left.
        ends.callback(shutil.rmtree, folder, ignore_errors=True)
        ends.callback(lambda: held(engines.card_seconds()))
        with meanwhile(lambda: write_json(own / ALIVE, next(beats)), BEAT_SECONDS, "engines"):
            jobs.submit(job, [sys.executable, "-m", JOB, str(own / ORDER)])
            try:
                _wait(jobs, job, order, engines, progress)
                yield engines
            finally:
                (own / STOP).touch()
                # They end by themselves, with what they started; what does not is ended by Ray.
                if not jobs.ends_within(job, GRACE_SECONDS + 10):
                    jobs.stop(job, GRACE_SECONDS)


def _wait(
    jobs: RayJobs, job: str, order: EnginesOrder, engines: ClusterEngines, progress: Callable[[str], None]
) -> None:
    """Until one engine answers."""
    wanted = order.cluster.engines
    progress(f"asking the Ray cluster at {jobs.address} for {wanted} engines with {order.name}, logs in {order.logs}.*")
    began = reported = time.monotonic()
    while not (ready := engines.addresses()):
        if (said := jobs.ended(job)) is not None:
            raise ServiceError(f"none of {wanted} engines could be started on the Ray cluster ({said})")
        now = time.monotonic()
        lacks = "" if any(order.folder.glob(f"{BEGUN}-*")) else jobs.lacking(order.need)
        if lacks and now - began > order.wait_seconds:
            raise DeferredError(f"the Ray cluster had no room for an engine in {order.wait_seconds:.0f} s: {lacks}")
        if now - began > order.wait_seconds + order.engine.ready_timeout_seconds:
            raise ServiceError(f"no engine on the Ray cluster was ready in {now - began:.0f} s; logs in {order.logs}.*")
        if now - reported >= _PROGRESS_SECONDS:
            reported = now
            progress(f"no engine answers yet, {now - began:.0f} s{f': {lacks}' if lacks else ''}")
        time.sleep(POLL_SECONDS)
    progress(f"{len(ready)} of {wanted} engines answer after {time.monotonic() - began:.0f} s")

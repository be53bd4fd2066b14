"""`launcher: ray` with `files: store`: a Ray job for each training or evaluation, whose worker finds the order in the
deployment's store. The nodes share no folder with this machine, nor with each other.

Belongs here: the jobs, and what the nodes say of themselves. Does not: when a job is started (`job_launcher.py`), and
what it does on a node (`ec1/gpu/ray_worker.py`).
"""

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Any

from ec1.errors import ServiceError
from ec1.launch.job_launcher import LEAVE_SECONDS, JobState, patiently
from ec1.launch.launcher import DeviceWork
from ec1.launch.ray_jobs import RayClusterSettings, RayJobs, RayNeed
from ec1.settings import Settings

JOB = "ec1.gpu.ray_worker"
NODE = "EC1 node: "
"""Beginning of a line in which a job says what a node said."""
_LOOK_SECONDS = 300
_LINES = 10_000
"""Of what such a look prints, at most: a line for each node among the others."""


class RayWorkerOrder(Settings):
    """What the job does: `ec1` with these arguments on one node with what it needs, or, without a need, on each node of
    a kind."""

    arguments: tuple[str, ...]
    need: RayNeed | None = None
    kind_of_node: str = "CPU"
    """What a node has of which work could be done: CPU or GPU."""
    retries: int = 0


class RayWorkerJobs:
    """Our own jobs on a Ray cluster (`ec1.launch.job_launcher.Jobs`). `options` come before all others that `ec1` is
    given there; `need` says what a piece of work needs of a node."""

    def __init__(
        self,
        cluster: RayClusterSettings,
        options: Sequence[str],
        need: Callable[[DeviceWork], RayNeed],
        retries: int,
    ) -> None:
        self._jobs = RayJobs(cluster, "launcher: ray")
        self._python = cluster.node_python
        self._options = options
        self._need = need
        self._retries = retries
        self._needs: dict[str, RayNeed] = {}

    def submit(self, name: str, arguments: Sequence[str], work: DeviceWork) -> None:
        self._needs[name] = need = self._need(work)
        order = RayWorkerOrder(arguments=(*self._options, *arguments), need=need, retries=self._retries)
        self._jobs.submit(name, [self._python, "-m", JOB, order.model_dump_json()])

    def look(self, name: str) -> JobState | None:
        if (found := self._jobs.look(name)) is None:
            return None
        ended, words = found
        lacks = self._jobs.lacking(self._needs[name]) if name in self._needs and not ended else ""
        return JobState(ended, lacks or words)

    def remove(self, name: str) -> None:
        def gone() -> bool:
            found = self._jobs.look(name)
            return found is None or found[0]

        self._jobs.stop(name, 0)
        patiently(gone, LEAVE_SECONDS)
        self._jobs.forget(name)

    def tail(self, name: str) -> str:
        return f"the end of what {name} printed:\n{self._jobs.tail(name)}"


def look_at_nodes(cluster: RayClusterSettings, arguments: Sequence[str], device: str) -> list[Any]:
    """What `ec1` says with these arguments, as a JSON object with `node` in it, on each node that can be given work for
    the device; `problem` in it says why one does not say it. Raises ServiceError, InputError."""
    jobs = RayJobs(cluster, "launcher: ray")
    order = RayWorkerOrder(arguments=tuple(arguments), kind_of_node="GPU" if device == "cuda" else "CPU")
    job = f"ec1-look-{secrets.token_hex(4)}"
    jobs.submit(job, [cluster.node_python, "-m", JOB, order.model_dump_json()])
    try:
        if not jobs.ends_within(job, _LOOK_SECONDS) or (said := jobs.ended(job)) is None:
            raise ServiceError(f"the Ray cluster at {cluster.address} ran no job within {_LOOK_SECONDS} s")
        printed = jobs.tail(job, _LINES)
    finally:
        jobs.stop(job, LEAVE_SECONDS)
        jobs.forget(job)
    if not said.startswith("succeeded"):
        raise ServiceError(f"the Ray cluster at {cluster.address} could not run {JOB} ({said})")
    return [json.loads(line.removeprefix(NODE)) for line in printed.splitlines() if line.startswith(NODE)]

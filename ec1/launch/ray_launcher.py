"""Work as a job of a Ray cluster.

Belongs here: what is handed to the cluster, following it, and telling how it ended. Does not: jobs as such
(`ray_jobs.py`), what happens on a node (`ec1/gpu/ray_job.py`), and where and when: that is Ray's to decide.

With `files: home` the nodes see the home at the same place (a shared file system) and have EC1 installed alike; with
`files: store` all travels through the deployment's store (`ray_worker_jobs.py`). A node that is lost costs what came
after the newest checkpoint: Ray starts the work again on another one. If this process dies, the job goes on, and
whoever asks for the same work again follows it.
"""

import contextlib
import hashlib
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ec1.errors import BusyError, InputError, PermanentError, ServiceError
from ec1.files import read_json, write_json
from ec1.launch.device import GpuSettings
from ec1.launch.job_launcher import launcher_of
from ec1.launch.launcher import GRACE_SECONDS, DeviceWork, Launcher, Place
from ec1.launch.process import tail_of
from ec1.launch.ray_jobs import POLL_SECONDS, RayClusterSettings, RayJobs, RayNeed
from ec1.launch.ray_worker_jobs import RayWorkerJobs
from ec1.launch.reporting import exported_session
from ec1.settings import Name, Settings

JOB = "ec1.gpu.ray_job"
_ERRORS = {kind.__name__: kind for kind in (BusyError, InputError, PermanentError, ServiceError)}


class RayOrder(Settings):
    """What a node is told: the work, where its output goes, and what the node's lease asks for."""

    what: str
    module: str
    specification: Path
    device: Literal["cuda", "cpu"]
    environment: dict[str, str]
    log: Path
    session: Any = None
    """The context of the Pipes session, if there is one."""
    messages: Path
    """Where the work reports to it."""
    result: Path
    lock_dir: Path | None
    min_free_gib: float
    wait_seconds: float
    retries: int
    need: RayNeed
    begun: Path
    """Is there once a node has begun."""


class RayResult(Settings):
    """How it ended: the name of an error of ours with its message, or neither."""

    error: str | None = None
    message: str = ""
    card_seconds: float | None = None


class RayLauncherSettings(RayClusterSettings):
    """`kind: ray`: jobs of a Ray cluster."""

    kind: Literal["ray"] = Field("ray", description="chooses this section")
    retries: int = Field(
        3, ge=0, le=100, description="how often work is started again whose node or process was lost; typically 1–5"
    )
    cpus: float = Field(1, ge=0, description="CPUs that Ray sets aside for one work, beside its card; typically 1–8")
    wait_seconds: float = Field(14400, gt=0, description="how long work may wait for a node with room")
    deployment: Name | None = Field(
        None, description="with files: store, the nodes' deployment; default: of the same name as this one"
    )
    project: str | None = Field(
        None,
        description="with files: store, EC1_PROJECT on the nodes, `.` for the working_dir of runtime_env; default: the "
        "checkout there",
    )
    follow_seconds: float = Field(5, gt=0, description="with files: store, seconds between two looks at how far it is")

    def need(self, work: DeviceWork) -> RayNeed:
        """Of each of the work's processes, or, where files go through the store, of all together on one node."""
        each = self.resources(self.cpus, 1 if work.device == "cuda" else 0)
        if self.files == "home":
            return RayNeed(what=work.what, resources=each, places=work.processes)
        all_of_them = {name: amount * work.processes for name, amount in each.items()}
        return RayNeed(what=work.what, resources=all_of_them)

    def open(self, place: Place) -> Launcher:
        if self.files == "store":
            project = ["--project", self.project] if self.project else []
            jobs = RayWorkerJobs(self, project, self.need, self.retries)
            home, wait, follow = f"{self.folder}/home", self.wait_seconds, self.follow_seconds
            return launcher_of(jobs, place, self.deployment, home, wait, follow)
        return RayLauncher(self, place.gpu, place.lease_wait_seconds)


class RayLauncher:
    """Jobs of the cluster that the settings name; on each node under the lease of its own card."""

    def __init__(self, settings: RayLauncherSettings, gpu: GpuSettings, wait_seconds: float) -> None:
        self._settings = settings
        self._gpu = gpu
        self._wait_seconds = wait_seconds

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> float | None:
        session = exported_session(env)
        order = self._order(work, log, None if session is None else session[0])
        path = _beside(work.specification, "order.json")
        jobs = RayJobs(self._settings, "launcher: ray")
        name = _name(work.specification)
        if (job := jobs.running(name)) is None:
            # A name of its own: Ray may still be ending another one of this work.
            job = f"{name}-{secrets.token_hex(4)}"
            for stale in (order.messages, order.result, order.begun):
                stale.unlink(missing_ok=True)
            log.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, order.model_dump(mode="json"))
            jobs.submit(job, [self._settings.node_python, "-m", JOB, str(path)])
        relay = None if session is None else _Relay(order.messages, session[1])
        try:
            said = self._follow(jobs, job, order, relay)
        except BaseException:
            # A trainer is given the time for a checkpoint, by its warden.
            jobs.stop(job, GRACE_SECONDS)
            raise
        return self._judge(work, order, job, said)

    def _order(self, work: DeviceWork, log: Path, session: Any) -> RayOrder:
        return RayOrder(
            what=work.what,
            module=work.module,
            specification=work.specification.absolute(),
            device=work.device,
            environment=dict(work.environment),
            log=log.absolute(),
            session=session,
            messages=_beside(work.specification, "messages").absolute(),
            result=_beside(work.specification, "result.json").absolute(),
            lock_dir=self._gpu.lock_dir,
            min_free_gib=self._gpu.min_free_gib,
            wait_seconds=self._wait_seconds,
            retries=self._settings.retries,
            need=self._settings.need(work),
            begun=_beside(work.specification, "begun").absolute(),
        )

    def _follow(self, jobs: RayJobs, job: str, order: RayOrder, relay: "_Relay | None") -> str:
        """Wait for the end. Returns what Ray says of it; raises ServiceError if the cluster falls silent, BusyError if
        it has had no room for so long."""
        waits_until = time.monotonic() + self._settings.wait_seconds
        while True:
            said = jobs.ended(job)
            if relay is not None:
                relay.pump()
            if said is not None:
                return said
            if time.monotonic() > waits_until and not order.begun.exists():
                lacks = jobs.lacking(order.need) or "all that has room for it is taken"
                waited = f"{self._settings.wait_seconds:.0f} s"
                raise BusyError(f"{order.what} did not begin on the Ray cluster within {waited}: {lacks}")
            time.sleep(POLL_SECONDS)

    def _judge(self, work: DeviceWork, order: RayOrder, job: str, said: str) -> float | None:
        where = f"the end of {order.log}:\n{tail_of(order.log)}"
        if not order.result.is_file():
            raise ServiceError(f"{work.what} was ended as the Ray job {job} ({said}) and can go on; {where}")
        result = RayResult.model_validate(read_json(order.result))
        if result.error is not None:
            raise _ERRORS.get(result.error, PermanentError)(result.message)
        return result.card_seconds


class _Relay:
    """Hands what a node reports on to the session that waits for it."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target
        self._done = 0

    def pump(self) -> None:
        """Whole lines only: a node may be writing the last one."""
        with contextlib.suppress(FileNotFoundError), self._source.open("rb") as source:
            source.seek(self._done)
            new = source.read()
            new = new[: new.rfind(b"\n") + 1]
            if new:
                with self._target.open("ab") as target:
                    target.write(new)
                self._done += len(new)


def _name(specification: Path) -> str:
    """The same work has the same name, so that it is found again."""
    digest = hashlib.sha256(f"{specification.absolute()}\n".encode() + specification.read_bytes())
    return f"ec1-{digest.hexdigest()[:24]}"


def _beside(specification: Path, name: str) -> Path:
    return specification.with_name(f".{specification.stem}.ray.{name}")

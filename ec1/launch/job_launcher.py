"""Work as a job of a scheduler: one job for each piece of work, in which a worker does that alone.

The job's name follows from the work, so whoever asks for the same again finds the job that runs, and none is started
twice. Its files travel through the deployment's store, so nothing of the cluster is mounted here.

Belongs here: when a job is started, found again and ended. Does not: a scheduler's own calls
(`kubernetes_launcher.py`, `slurm_launcher.py`), and how orders, logs and results travel (`worker_launcher.py`).
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ec1.errors import BusyError, EC1Error, InputError, ServiceError
from ec1.launch.launcher import GRACE_SECONDS, DeviceWork, Place
from ec1.launch.markers import PendingMarkers
from ec1.launch.worker_launcher import WorkerLauncher

log = logging.getLogger(__name__)
_LOOK_SECONDS = 10
LEAVE_SECONDS = int(GRACE_SECONDS) + 30
"""A job that is ended gets so long: more than the time in which a trainer writes its checkpoint."""


@dataclass(frozen=True)
class JobState:
    """A job as its scheduler sees it, in words: what it waits for, or how it ended."""

    ended: bool
    words: str


class Jobs(Protocol):
    """The jobs of a scheduler, each under a name. All raise ServiceError if it does not answer, and InputError for what
    it refuses for good."""

    def submit(self, name: str, arguments: Sequence[str], work: DeviceWork) -> None:
        """Start a job that runs `ec1` with these arguments. One of that name that is there already is left alone."""

    def look(self, name: str) -> JobState | None:
        """The job as it is now; None if there is none. Raises InputError for one that can never begin."""

    def remove(self, name: str) -> None:
        """End the job, if it goes on, with time for a checkpoint; returns when its name is free."""

    def tail(self, name: str) -> str:
        """The end of what it printed; says so if that is not known."""


class JobLauncher:
    """`Launcher` through jobs. `deployment` is that of the job; the rest as for `WorkerLauncher`."""

    def __init__(
        self,
        jobs: Jobs,
        markers: PendingMarkers,
        deployment: str,
        options: Sequence[str],
        *,
        wait_seconds: float,
        follow_seconds: float = 5,
        keep_days: float = 14,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self._jobs = jobs
        self._markers = markers
        self._deployment = deployment
        self._options = options
        self._wait_seconds = wait_seconds
        self._follow_seconds = follow_seconds
        self._keep_days = keep_days
        self._look_seconds = look_seconds

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> float | None:
        job = _Job(self._jobs, self._markers, work, self._deployment, self._options, self._look_seconds)
        inner = WorkerLauncher(
            self._markers,
            wait_seconds=self._wait_seconds,
            follow_seconds=self._follow_seconds,
            keep_days=self._keep_days,
            wake=job.wake,
        )
        try:
            return inner.run(work, env, log)
        except BusyError as error:
            job.remove()
            raise BusyError(f"{work.what}: {job.name} did not begin: {job.words or error}") from None
        except BaseException as error:
            # Who ends the run ends the job. Other errors may pass, and it goes on.
            if isinstance(error, InputError) or not isinstance(error, Exception):
                job.remove()
            raise


class _Job:
    """The job of one piece of work."""

    def __init__(
        self,
        jobs: Jobs,
        markers: PendingMarkers,
        work: DeviceWork,
        deployment: str,
        options: Sequence[str],
        look_seconds: float,
    ) -> None:
        self.name = ""
        self.words = ""
        self._jobs = jobs
        self._markers = markers
        self._work = work
        self._deployment = deployment
        self._options = options
        self._look_seconds = look_seconds
        self._looked = -look_seconds
        self._followed = False

    def wake(self, file: str) -> None:
        """Look after the job of a marker; start it if there is none. Raises ServiceError if it ended without a result,
        InputError if it can never begin."""
        if time.monotonic() - self._looked < self._look_seconds:
            return
        self._looked = time.monotonic()
        self.name = job_name(self._deployment, file)
        try:
            state = self._jobs.look(self.name)
            if not self._followed:
                self._begin(state, file)
                return
            if state is not None and not state.ended:
                self.words = state.words
                return
            if not self._markers.state(file).goes_on:
                return
            tail = self._jobs.tail(self.name)
        except ServiceError as error:
            # The next look tries again, and the wait for a worker has an end.
            log.warning("%s", error)
            return
        how = "is gone" if state is None else f"ended ({state.words})"
        raise ServiceError(f"{self._work.what}: {self.name} {how} without a result and can go on; {tail}")

    def _begin(self, state: JobState | None, file: str) -> None:
        if state is not None and state.ended:
            # Of an earlier try, while nobody followed it.
            self._jobs.remove(self.name)
            state = None
        if state is None:
            self._jobs.submit(self.name, [*self._options, "worker", "--marker", file], self._work)
            log.info("%s: started %s", self._work.what, self.name)
        self._followed = True

    def remove(self) -> None:
        if self.name:
            with contextlib.suppress(EC1Error):
                self._jobs.remove(self.name)


def job_name(deployment: str, file: str) -> str:
    """Of the job for a marker: the same for the same work of the same night, at most 48 characters."""
    return f"ec1-{deployment[:20]}-{file.removesuffix('.json')[-23:]}"


def launcher_of(
    jobs: Jobs, place: Place, deployment: str | None, home: str, wait_seconds: float, follow_seconds: float
) -> JobLauncher:
    """The launcher of a deployment whose jobs work under `deployment` (None: under the same), each with its own `home`
    in the job's machine."""
    options = ["--deployment", deployment or place.deployment, "--home", home]
    return JobLauncher(
        jobs,
        place.open_markers(place.open_store()),
        place.deployment,
        options,
        wait_seconds=wait_seconds,
        follow_seconds=follow_seconds,
        keep_days=place.keep_days,
    )


def patiently(remove: Callable[[], bool], seconds: float, pause: float = 1.0) -> None:
    """Call `remove` until it says that all is gone, for so long; a scheduler that does not answer is asked again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if remove():
                return
        except ServiceError:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            return
        time.sleep(pause)

"""Jobs of a Ray cluster (https://docs.ray.io/en/latest/cluster/running-applications/job-submission/).

Belongs here: handing one in, asking how it is, ending it. Does not: what a job does.
"""

import contextlib
import sys
import time
from functools import cached_property
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from pydantic import Field

from ec1.errors import InputError, ServiceError, one_line
from ec1.settings import Settings

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

POLL_SECONDS = 1.0
SILENT_SECONDS = 120.0
"""How long the cluster's dashboard may not answer, or take no job, before it counts as lost from here."""


class RayClusterSettings(Settings):
    """How a cluster is reached."""

    address: str = Field("http://127.0.0.1:8265", description="of the cluster's dashboard, which takes jobs")
    token_file: Path = Field(
        Path("~/.ray/auth_token"),
        description="the cluster's token, as `ray get-auth-token` keeps it; none is sent where there is no such file",
    )


def authorization(settings: RayClusterSettings) -> dict[str, str]:
    """The headers that a request to the cluster needs: those that Ray itself would send where its own settings in the
    environment ask for it. Raises InputError for a token that cannot be read."""
    path = settings.token_file.expanduser()
    try:
        return {"Authorization": f"Bearer {path.read_text().strip()}"}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"the token of the Ray cluster, {path}, cannot be read: {error.strerror}") from None


class RayJobs:
    """The jobs of a cluster; `setting` is what asked for it, for errors."""

    def __init__(self, settings: RayClusterSettings, setting: str) -> None:
        self.address = settings.address
        self._settings = settings
        self._setting = setting
        self._answered = time.monotonic()

    @cached_property
    def _client(self) -> "JobSubmissionClient":
        try:
            from ray.job_submission import JobSubmissionClient
        except ImportError:
            raise InputError(f"{self._setting}: Ray is not installed: pip install 'ec1[ray]'") from None
        try:
            return JobSubmissionClient(self.address, headers=authorization(self._settings))
        except (ConnectionError, RuntimeError, OSError) as error:
            raise ServiceError(f"the Ray cluster at {self.address} does not answer: {one_line(error)}") from None

    def submit(self, job: str, module: str, order: Path) -> None:
        """Start `python -m MODULE ORDER` as the job of this name. Raises InputError without Ray, ServiceError if the
        cluster does not take it."""
        client = self._client
        deadline = time.monotonic() + SILENT_SECONDS
        while True:
            try:
                client.submit_job(
                    entrypoint=join([sys.executable, "-m", module, str(order)]),
                    submission_id=job,
                    # It only waits for the tasks that do the work.
                    entrypoint_num_cpus=0,
                )
                return
            except (RuntimeError, OSError) as error:
                # A cluster that has just started has no agent yet.
                if "status code 5" not in str(error) or time.monotonic() > deadline:
                    raise ServiceError(f"the Ray cluster at {self.address} took no job: {one_line(error)}") from None
            time.sleep(POLL_SECONDS)

    def ended(self, job: str) -> str | None:
        """How the job ended, in Ray's words; None while it runs. Raises ServiceError if the cluster falls silent."""
        try:
            info = self._client.get_job_info(job)
        except (RuntimeError, OSError) as error:
            if time.monotonic() - self._answered > SILENT_SECONDS:
                raise ServiceError(f"the Ray cluster no longer answers about job {job}: {one_line(error)}") from None
            return None
        self._answered = time.monotonic()
        return f"{info.status.value.lower()}: {one_line(info.message)}" if info.status.is_terminal() else None

    def running(self, prefix: str) -> str | None:
        """The name of a job that runs and begins so, if there is one. Raises as `submit`."""
        try:
            found = self._client.list_jobs()
        except (RuntimeError, OSError) as error:
            raise ServiceError(f"the Ray cluster at {self.address} does not answer: {one_line(error)}") from None
        names = (each.submission_id for each in found if not each.status.is_terminal())
        return next((name for name in names if name and name.startswith(prefix)), None)

    def ends_within(self, job: str, seconds: float) -> bool:
        """Wait for the job's end so long. Returns whether it has ended, as far as the cluster says."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if self._client.get_job_info(job).status.is_terminal():
                    return True
            except (RuntimeError, OSError):
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)

    def stop(self, job: str, grace_seconds: float) -> None:
        """End the job, and wait for its end so long."""
        with contextlib.suppress(RuntimeError, OSError):
            self._client.stop_job(job)
            self.ends_within(job, grace_seconds)

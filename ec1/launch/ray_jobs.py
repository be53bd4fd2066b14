"""Jobs of a Ray cluster (https://docs.ray.io/en/latest/cluster/running-applications/job-submission/).

Belongs here: handing one in, asking how it is and what the cluster has room for, ending it. Does not: what a job does.
"""

import contextlib
import ssl
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ec1.errors import InputError, ServiceError, one_line
from ec1.launch.process import last_lines
from ec1.settings import Settings

if TYPE_CHECKING:
    import httpx
    from ray.job_submission import JobSubmissionClient

POLL_SECONDS = 1.0
_SOME = 0.001
SILENT_SECONDS = 120.0
"""How long the cluster's dashboard may not answer, or take no job, before it counts as lost from here."""


class RayClusterSettings(Settings):
    """How a cluster is reached, and what its nodes have."""

    address: str = Field("http://127.0.0.1:8265", description="of the cluster's dashboard, which takes jobs")
    token_file: Path = Field(
        Path("~/.ray/auth_token"),
        description="the cluster's token, as `ray get-auth-token` keeps it; none is sent where there is no such file",
    )
    ca_file: Path | None = Field(
        None, description="of an address with https: the certificates that it is checked against; default: the system's"
    )
    runtime_env: dict[str, Any] = Field(
        {},
        description="what Ray prepares on its nodes before work begins there, such as {working_dir: .} or "
        "{image_uri: …}; keys are Ray's own",
    )
    accelerator_type: str | None = Field(
        None, description="the kind of card, by Ray's name for it, such as L4 or H100; default: any"
    )
    memory_gib: float = Field(0, ge=0, description="memory that Ray sets aside on the node for each; 0: none")
    files: Literal["home", "store"] = Field(
        "home",
        description="how the nodes have what they need: the home at the same place, and EC1 installed alike; or all "
        "through the deployment's store, and EC1 of this version on each node",
    )
    python: str = Field("python", description="with files: store, the Python of EC1 on the nodes")
    folder: str = Field("~/.cache/ec1", description="with files: store, where a node keeps what it was sent")

    @property
    def node_python(self) -> str:
        """The Python of EC1 on the nodes: with files: home the one that runs here."""
        return self.python if self.files == "store" else sys.executable

    def resources(self, cpus: float, cards: float) -> dict[str, float]:
        """What one piece of work needs of a node, by Ray's names: GPU and CPU, bytes of memory, the kind of card."""
        # Of a kind of card Ray has one on each node that has it, and takes next to nothing of it.
        kind = {f"accelerator_type:{self.accelerator_type}": _SOME} if self.accelerator_type and cards else {}
        return {"CPU": cpus, "GPU": cards, "memory": self.memory_gib * 2**30, **kind}


def authorization(settings: RayClusterSettings) -> dict[str, str]:
    """The headers that a request to the cluster needs: those that Ray itself would send where its own settings in the
    environment ask for it. Raises InputError for a token that cannot be read."""
    path = settings.token_file.expanduser()
    try:
        return {"Authorization": f"Bearer {path.read_text(encoding='utf-8').strip()}"}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"the token of the Ray cluster, {path}, cannot be read: {error.strerror}") from None


def certificates(settings: RayClusterSettings) -> ssl.SSLContext:
    """What the cluster's certificate is checked against. Raises InputError if there is no such file."""
    try:
        return ssl.create_default_context(cafile=settings.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"the certificates of the Ray cluster, {settings.ca_file}, cannot be read: {error}") from None


def asked_of(settings: RayClusterSettings, path: str) -> "httpx.Response":
    """What the cluster's dashboard answers. Raises httpx.HTTPError if it does not, InputError as above."""
    import httpx

    return httpx.get(
        f"{settings.address}/{path}",
        headers=authorization(settings),
        verify=certificates(settings),
        timeout=10.0,
        trust_env=False,
    )


class RayNeed(Settings):
    """What one piece of work needs of a node, by Ray's names (`RayClusterSettings.resources`)."""

    what: str
    resources: dict[str, float]
    places: int = 1
    """On so many nodes, or so many times on one."""

    @property
    def options(self) -> dict[str, Any]:
        """What it is asked for with as a task of Ray."""
        others = self.resources.keys() - {"CPU", "GPU", "memory"}
        return {
            "num_cpus": self.resources["CPU"],
            "num_gpus": self.resources["GPU"],
            "memory": self.resources["memory"] or None,
            "resources": {name: self.resources[name] for name in others} or None,
        }

    def lacking(self, nodes: Sequence[Mapping[str, float]]) -> str:
        """What nodes with these resources in all lack for it, in words; empty if they have room once they are free."""
        wanted = {name: amount for name, amount in self.resources.items() if amount}
        there = sum(
            min((int(node.get(name, 0.0) / amount) for name, amount in wanted.items()), default=self.places)
            for node in nodes
        )
        if there >= self.places:
            return ""
        times = f"{self.places} times " if self.places > 1 else ""
        rooms = "; ".join(", ".join(_amount(name, node.get(name, 0.0)) for name in wanted) for node in nodes)
        needs = " and ".join(_amount(name, amount) for name, amount in wanted.items())
        return f"{self.what} needs {times}a node with {needs}, the nodes have {rooms or 'not begun'}"


def _amount(name: str, amount: float) -> str:
    if name.startswith("accelerator_type:"):
        return name.removeprefix("accelerator_type:") if amount else "another card"
    return f"{amount / 2**30:.1f} GiB" if name == "memory" else f"{amount:g} {name}"


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
            certificates(self._settings)
            trusted = self._settings.ca_file
            return JobSubmissionClient(
                self.address,
                headers=authorization(self._settings),
                verify=True if trusted is None else str(trusted),
            )
        except (ConnectionError, RuntimeError, OSError) as error:
            # Ray says that it failed, and what it met says why, such as a certificate that nobody vouches for.
            why = one_line(error.__context__ or error)
            raise ServiceError(f"the Ray cluster at {self.address} does not answer: {why}") from None

    def submit(self, job: str, command: Sequence[str]) -> None:
        """Run a command as the job of this name. Raises InputError without Ray, ServiceError if the cluster does not
        take it."""
        client = self._client
        deadline = time.monotonic() + SILENT_SECONDS
        while True:
            try:
                client.submit_job(
                    entrypoint=join(command),
                    submission_id=job,
                    runtime_env=dict(self._settings.runtime_env) or None,
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
            found = self.look(job)
        except ServiceError as error:
            if time.monotonic() - self._answered > SILENT_SECONDS:
                raise ServiceError(f"the Ray cluster no longer answers about job {job}: {error}") from None
            return None
        self._answered = time.monotonic()
        if found is None:
            return "gone: the cluster does not know it"
        over, words = found
        return words if over else None

    def look(self, job: str) -> tuple[bool, str] | None:
        """Whether a job has ended, and how it is in Ray's words; None if there is none. Raises as `submit`."""
        try:
            info = self._client.get_job_info(job)
        except (RuntimeError, OSError) as error:
            if "status code 404" in str(error):
                return None
            raise ServiceError(f"the Ray cluster at {self.address} does not answer: {one_line(error)}") from None
        return info.status.is_terminal(), f"{info.status.value.lower()}: {one_line(info.message)}"

    def forget(self, job: str) -> None:
        """Free the name of a job that has ended."""
        with contextlib.suppress(RuntimeError, OSError):
            self._client.delete_job(job)

    def tail(self, job: str, lines: int = 15) -> str:
        """The end of what a job printed, and with it what printed its tasks; says so if it is not known."""
        try:
            return last_lines(self._client.get_job_logs(job), lines)
        except (RuntimeError, OSError) as error:
            return f"(not known: {one_line(error)})"

    def lacking(self, need: RayNeed) -> str:
        """What the cluster's living nodes lack for it, in words; empty if nothing, or if that cannot be told."""
        import httpx

        try:
            answer = asked_of(self._settings, "api/v0/nodes?detail=true")
            found = answer.raise_for_status().json()["data"]["result"]["result"]
            return need.lacking([each["resources_total"] for each in found if each["state"] == "ALIVE"])
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return ""

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

"""Work on another machine that ssh reaches: a worker there is started when there is work, and polls a folder there.

The order and its files go into that folder, so all that holds for workers holds here: only new files travel, the work
goes on without us and without the connection, and what comes back is checked. Belongs here: looking at the machine,
and starting the worker detached. Does not: the folder (`ec1/storage/ssh.py`), the order (`worker_launcher.py`).
"""

import json
import logging
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from ec1.errors import InputError, ServiceError
from ec1.launch.launcher import DeviceWork, Launcher, Place
from ec1.launch.markers import PendingMarkers
from ec1.launch.orders import own_version
from ec1.launch.worker_launcher import WorkerLauncher
from ec1.refused import PROBE_BYTES
from ec1.settings import Name, Settings
from ec1.storage.ssh import SshHost, SshStore

log = logging.getLogger(__name__)
_WAKE_SECONDS = 20


class SshLauncher:
    """`Launcher` through a worker on `host`, whose folder holds the store of `markers`.

    `worker` is the worker's command there, which ends when nothing waits; with `--check --json` behind it, it says what
    the machine has. `watch`, `alone` and `keep` as for `WorkerLauncher`.
    """

    def __init__(
        self,
        host: SshHost,
        folder: str,
        markers: PendingMarkers,
        worker: Sequence[str],
        *,
        wait_seconds: float,
        follow_seconds: float,
        keep_days: float = 14,
        wake_seconds: float = _WAKE_SECONDS,
        watch: Callable[[], None] = lambda: None,
        alone: bool = False,
        keep: Path | None = None,
    ) -> None:
        self._host = host
        self._folder = folder
        self._worker = worker
        self._wake_seconds = wake_seconds
        self._woken = -wake_seconds
        self._inner = WorkerLauncher(
            markers,
            wait_seconds=wait_seconds,
            follow_seconds=follow_seconds,
            keep_days=keep_days,
            wake=self._start_worker,
            watch=watch,
            alone=alone,
            keep=keep,
        )

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> float | None:
        self._check(work)
        return self._inner.run(work, env, log)

    @property
    def _room(self) -> str:
        """Makes the folder there, and tries whether its disk takes anything: a worker on a full one cannot say it."""
        probe = shlex.quote(f"{self._folder}/.room")
        write = f"head -c {PROBE_BYTES} /dev/zero > {probe} || {{ rm -f {probe}; exit 1; }}; rm -f {probe}; "
        return f"export LC_ALL=C; mkdir -p {shlex.quote(self._folder)}; {write}"

    def _check(self, work: DeviceWork) -> None:
        """Raises InputError if the machine cannot do it: another version of EC1, another device, a card that fails."""
        command = shlex.join([*self._worker, "--check", "--json"])
        _, said = self._host.run(f"{self._room}{command}")
        try:
            found = json.loads(said)
            version, device = str(found["version"]), str(found["device"])
        except (ValueError, KeyError, TypeError):
            raise ServiceError(f"{self._host.host}: `{command}` does not answer as EC1 {own_version()} does") from None
        if version != own_version():
            raise InputError(f"{self._host.host} has EC1 {version}, here is {own_version()}: install the same on both")
        if device != work.device:
            raise InputError(f"{self._host.host}: its deployment works on {device}, {work.what} is for {work.device}")
        log.info("%s: %s, %.1f GiB free", self._host.host, found.get("name"), found.get("free_gib", 0))

    def _start_worker(self, file: str) -> None:
        """Start a worker that outlives the connection, unless one runs: a lock tells, which dies with its holder."""
        if time.monotonic() - self._woken < self._wake_seconds:
            return
        self._woken = time.monotonic()
        output = shlex.quote(f"{self._folder}/worker.log")
        lock = shlex.quote(f"{self._folder}/worker.lock")
        command = f"setsid nohup flock --nonblock {lock} {shlex.join(self._worker)} --once"
        try:
            self._host.run(f"{self._room}{command} >> {output} 2>&1 < /dev/null &")
        except ServiceError as error:
            # The next look tries again, and the wait for a worker has an end.
            log.warning("%s", error)


class SshLauncherSettings(Settings):
    """`kind: ssh`: a machine that ssh reaches, with EC1 of the same version and a deployment for its device."""

    kind: Literal["ssh"] = Field("ssh", description="chooses this section")
    host: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*$",
        description="as ssh knows it: `name`, `user@name`, a `Host`; default: the `machine` that is booted for nights, "
        "at the address that it has then",
    )
    options: tuple[str, ...] = Field(
        (), description="further options of ssh, such as `-p` and `2222`, or `-l` and the user's name"
    )
    python: str = Field(description="the Python of EC1 there, such as /opt/ec1/.venv/bin/python")
    folder: str = Field(pattern="^/", description="where the work is kept there, such as /var/lib/ec1-work")
    deployment: Name | None = Field(None, description="its deployment; default: of the same name as this one")
    project: str | None = Field(None, description="its EC1_PROJECT; default: the checkout there")
    wait_seconds: float = Field(14400, gt=0, description="how long work may wait for the machine's worker")
    follow_seconds: float = Field(5, gt=0, description="seconds between two looks at how far it is")

    def open(self, place: Place) -> Launcher:
        if self.host is None:
            raise InputError("launcher.host is missing: name the machine that ssh is to reach")
        return self.launcher(place, SshHost(self.host, self.options))

    def launcher(
        self, place: Place, host: SshHost, *, watch: Callable[[], None] = lambda: None, alone: bool = False
    ) -> Launcher:
        """The launcher to this host; `watch` and `alone` as for `SshLauncher`."""
        store = f"{self.folder}/store"
        choice = ["--deployment", self.deployment or place.deployment, "--home", f"{self.folder}/home"]
        if self.project is not None:
            choice += ["--project", self.project]
        return SshLauncher(
            host,
            self.folder,
            place.open_markers(SshStore(host, store)),
            [self.python, "-m", "ec1.cli", *choice, "worker", "--folder", store],
            wait_seconds=self.wait_seconds,
            follow_seconds=self.follow_seconds,
            keep_days=place.keep_days,
            watch=watch,
            alone=alone,
            keep=place.checkpoints,
        )

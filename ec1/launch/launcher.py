"""Where a training or an evaluation runs. It is the same module everywhere, started with one JSON specification.

Belongs here: starting it somewhere, waiting, and telling how it ended. Does not: what it does, and whether what it left
can be trusted (its caller checks that).
"""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field

from ec1.errors import PermanentError, ServiceError
from ec1.launch.checkpoints import Checkpoints
from ec1.launch.device import GpuSettings
from ec1.launch.environment import process_environment
from ec1.launch.markers import PendingMarkers
from ec1.launch.process import SupervisedProcess, ending_signal
from ec1.launch.ranks import LOST_OTHERS
from ec1.settings import Settings
from ec1.storage.store import ObjectStore

GRACE_SECONDS = 60.0
"""From the interrupt to the kill: one step of the optimiser and the writing of a checkpoint."""


@dataclass(frozen=True)
class Subject:
    """Whose adapter a piece of work is about, and on which night."""

    tenant: str
    role: str
    night: str


NOBODY = Subject("", "", "")
"""Where work is only carried out: whose it is matters to who asks for it."""


@dataclass(frozen=True)
class DeviceWork:
    """`python -m <module> <specification>` on a device; `what` names it in errors, such as "the training".

    The specification names its `inputs` and its `output` by these very paths, so another machine can exchange them.
    """

    what: str
    module: str
    specification: Path
    device: Literal["cuda", "cpu"]
    subject: Subject
    inputs: tuple[Path, ...]
    """Folders and files that it reads."""
    output: Path
    """The folder or file that it writes."""
    last: tuple[str, ...] = ()
    """Files of the output that say that it is complete, so they are brought here after all others."""
    leave: tuple[str, ...] = ()
    """What of the output is of use only where it was made."""
    checkpoints: Checkpoints | None = None
    """What of it another machine can go on from."""
    processes: int = 1
    """That share it. On one machine the module starts them itself."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """In addition to the launcher's environment, which takes precedence. Only for work on this machine."""


class DeviceGrant(Protocol):
    """What a held lease allows (`ec1.gpu.lease.Grant`)."""

    @property
    def cards(self) -> Sequence[object]:
        """The cards that are leased; on a CPU its one place."""

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str], log: Path, grace_seconds: float
    ) -> SupervisedProcess:
        """Start a command under the lease."""


class Launcher(Protocol):
    """Runs one piece of work until it ends."""

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> float | None:
        """Run `work` with the environment `env`; what it prints goes to the file `log`. Returns the card-seconds that
        it took, without its time in queues: of two cards twice the time. None if that is not known.

        Raises PermanentError if it cannot succeed, ServiceError if it was stopped from outside and can go on, and
        BusyError if the GPU stays taken. Each message ends with the end of the log.
        """


class LocalLauncher:
    """A supervised process on this machine, under the GPU lease that `hold` takes."""

    def __init__(
        self,
        hold: Callable[[], AbstractContextManager[DeviceGrant]],
        *,
        grace_seconds: float = GRACE_SECONDS,
        watch: Callable[[], None] | None = None,
    ) -> None:
        """`watch` is called about every second while the process runs; if it raises, the process is stopped."""
        self._hold = hold
        self._grace_seconds = grace_seconds
        self._watch = watch

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> float | None:
        command = [sys.executable, "-m", work.module, str(work.specification)]
        environment = {**work.environment, **process_environment(work.device, env)}
        with self._hold() as grant:
            began = time.monotonic()
            with grant.start(command, env=environment, log=log, grace_seconds=self._grace_seconds) as process:
                status = self._wait(process)
            card_seconds = (time.monotonic() - began) * len(grant.cards)
        if status == 0:
            return round(card_seconds, 1)
        where = f"the end of {log}:\n{process.log_tail()}"
        if ending_signal(status) is not None:
            raise ServiceError(f"{work.what} {process.how_it_ended()} and can go on; {where}")
        if status == LOST_OTHERS:
            raise ServiceError(f"{work.what} lost another of its processes and can go on; {where}")
        raise PermanentError(f"{work.what} {process.how_it_ended()}; {where}")

    def _wait(self, process: SupervisedProcess) -> int:
        while self._watch is not None:
            self._watch()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(1.0)
        return process.wait()


@dataclass(frozen=True)
class Place:
    """What a launcher is opened with: what there is on the machine that asks, and the deployment's rules."""

    hold: Callable[[], AbstractContextManager[DeviceGrant]]
    """Takes the lease of this machine's GPU, for work that runs here."""
    gpu: GpuSettings
    lease_wait_seconds: float
    """How long work queues for a GPU."""
    open_store: Callable[[], ObjectStore]
    """The deployment's store."""
    open_markers: Callable[[ObjectStore], PendingMarkers]
    """The markers in a store, under the deployment's rules for claims."""
    keep_days: float
    """Days that files which travelled are kept."""
    deployment: str
    """Its name."""
    checkpoints: Path
    """A folder here for checkpoints of work on machines that may be gone tomorrow."""


class LocalLauncherSettings(Settings):
    """`kind: local`: a process on this machine."""

    kind: Literal["local"] = Field("local", description="chooses this section")

    def open(self, place: Place) -> Launcher:
        return LocalLauncher(place.hold)

"""Where a training or an evaluation runs. It is the same module everywhere, started with one JSON specification.

Belongs here: starting it somewhere, waiting, and telling how it ended. Does not: what it does, and whether what it left
can be trusted (its caller checks that).
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from ec1.errors import PermanentError, ServiceError
from ec1.launch.environment import process_environment
from ec1.launch.process import SupervisedProcess

GRACE_SECONDS = 60.0
"""From the interrupt to the kill: one step of the optimiser and the writing of a checkpoint."""


@dataclass(frozen=True)
class Work:
    """`python -m <module> <specification>` on a device; `what` names it in errors, such as "the training"."""

    what: str
    module: str
    specification: Path
    device: Literal["cuda", "cpu"]
    environment: Mapping[str, str] = field(default_factory=dict)
    """In addition to the launcher's environment, which takes precedence."""


class Grant(Protocol):
    """What a held lease allows (`ec1.gpu.lease.Grant`)."""

    def start(
        self, command: Sequence[str], *, env: Mapping[str, str], log: Path, grace_seconds: float
    ) -> SupervisedProcess:
        """Start a command under the lease."""


class Launcher(Protocol):
    """Runs one piece of work until it ends."""

    def run(self, work: Work, env: Mapping[str, str], log: Path) -> None:
        """Run `work` with the environment `env`; what it prints goes to the file `log`.

        Raises PermanentError if it cannot succeed, ServiceError if it was stopped from outside and can go on, and
        BusyError if the GPU stays taken. Each message ends with the end of the log.
        """


class LocalLauncher:
    """A supervised process on this machine, under the GPU lease that `hold` takes."""

    def __init__(
        self, hold: Callable[[], AbstractContextManager[Grant]], *, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        self._hold = hold
        self._grace_seconds = grace_seconds

    def run(self, work: Work, env: Mapping[str, str], log: Path) -> None:
        command = [sys.executable, "-m", work.module, str(work.specification)]
        environment = {**work.environment, **process_environment(work.device, env)}
        with (
            self._hold() as grant,
            grant.start(command, env=environment, log=log, grace_seconds=self._grace_seconds) as process,
        ):
            status = process.wait()
        if status == 0:
            return
        where = f"the end of {log}:\n{process.log_tail()}"
        if status > 128:
            raise ServiceError(f"{work.what} was ended by signal {status - 128} and can go on; {where}")
        raise PermanentError(f"{work.what} ended with status {status}; {where}")

"""Where a training runs. The trainer is the same module everywhere, started with one JSON specification.

Belongs here: starting it somewhere, waiting, and refusing a process that broke its contract. Does not: what is trained.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from ec1.errors import PermanentError, ServiceError
from ec1.gpu.lease import Grant
from ec1.launch.environment import process_environment
from ec1.training.spec import TrainingResult, TrainingSpec, check_result
from ec1.training.tracking import local_environment

GRACE_SECONDS = 60.0
"""From the interrupt to the kill: one step of the optimiser and the writing of a checkpoint."""


class Launcher(Protocol):
    """Runs one training to its end."""

    def run(self, spec: Path, env: Mapping[str, str]) -> TrainingResult:
        """Train as the specification in the file `spec` says; `env` is the process's whole environment.

        Raises PermanentError if the training cannot succeed or broke its contract, ServiceError if it was stopped from
        outside and can go on.
        """


class LocalLauncher:
    """A supervised process on this machine, under the GPU lease."""

    def __init__(self, grant: Grant, log: Path, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self._grant = grant
        self._log = log
        self._grace_seconds = grace_seconds

    def run(self, spec: Path, env: Mapping[str, str]) -> TrainingResult:
        training = TrainingSpec.read(spec)
        command = [sys.executable, "-m", "ec1.training", str(spec)]
        folder = training.tracking_folder or training.output / "tracking"
        if training.tracking:
            folder.mkdir(parents=True, exist_ok=True)
        environment = {**local_environment(folder), **process_environment(training.device, env)}
        with self._grant.start(command, env=environment, log=self._log, grace_seconds=self._grace_seconds) as process:
            status = process.wait()
        if status == 0:
            return check_result(training)
        where = f"the end of {self._log}:\n{process.log_tail()}"
        if status > 128:
            raise ServiceError(f"the training was ended by signal {status - 128} and can go on; {where}")
        raise PermanentError(f"the training ended with status {status}; {where}")

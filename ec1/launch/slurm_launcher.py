"""`launcher: slurm`: a batch job for each training or evaluation, by Slurm's own commands.

https://slurm.schedmd.com/sbatch.html. Belongs here: the batch script, and what the queue says. Does not: when a job is
started (`job_launcher.py`).
"""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from ec1.errors import InputError, ServiceError, one_line
from ec1.launch.job_launcher import LEAVE_SECONDS, JobState, launcher_of, patiently
from ec1.launch.launcher import DeviceWork, Launcher, Place
from ec1.launch.process import tail_of
from ec1.settings import Name, Settings

_SECONDS = 60.0
_UNANSWERED = ("Unable to contact slurm", "Socket timed out", "Connection refused", "temporarily unable")
"""What Slurm's commands say when its controller does not answer; whatever else they refuse stays refused."""
_GOING = (
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "SUSPENDED",
    "REQUEUED",
    "COMPLETING",
    "RESIZING",
    "STAGE_OUT",
    "STOPPED",
)


class SlurmLauncherSettings(Settings):
    """`kind: slurm`: a batch job for each piece of work, whose worker finds the order in the deployment's store."""

    kind: Literal["slurm"] = Field("slurm", description="chooses this section")
    ec1: str = Field(description="`ec1` on the nodes, such as /opt/ec1/.venv/bin/ec1")
    folder: Path = Field(description="folder that the nodes see too: homes and logs of the jobs")
    deployment: Name | None = Field(None, description="the nodes' deployment; default: of the same name as this one")
    project: str | None = Field(None, description="EC1_PROJECT on the nodes; default: the checkout there")
    options: tuple[str, ...] = Field(
        (), description="further options of sbatch, such as --partition=gpu, --account=ml and --gres=gpu:l4:1"
    )
    cpus: int = Field(4, gt=0, description="CPUs of a job; typically 2–16")
    memory: str = Field("20G", description="of a job, such as 20G: the base model's files and 6 GiB for each card")
    deadline_minutes: int = Field(600, gt=0, description="so long after it began Slurm ends a job")
    wait_seconds: float = Field(14400, gt=0, description="how long a job may wait for a node")
    follow_seconds: float = Field(5, gt=0, description="seconds between two looks at how far it is")

    def open(self, place: Place) -> Launcher:
        home, wait, follow = str(self.folder / "home"), self.wait_seconds, self.follow_seconds
        return launcher_of(SlurmJobs(self), place, self.deployment, home, wait, follow)


class SlurmJobs:
    """Our own jobs in Slurm's queue (`ec1.launch.job_launcher.Jobs`)."""

    def __init__(self, settings: SlurmLauncherSettings, *, env: Mapping[str, str] | None = None) -> None:
        """`env`: of Slurm's commands; default: this process's."""
        self._settings = settings
        self._env = env

    def submit(self, name: str, arguments: Sequence[str], work: DeviceWork) -> None:
        settings = self._settings
        settings.folder.mkdir(parents=True, exist_ok=True)
        cards = [f"--gpus={work.processes}"] if work.device == "cuda" else []
        project = ["--project", settings.project] if settings.project else []
        command = [
            *("sbatch", "--parsable", f"--job-name={name}", f"--output={self._log(name)}", "--open-mode=append"),
            *("--nodes=1", "--ntasks=1", f"--cpus-per-task={settings.cpus}", f"--mem={settings.memory}", *cards),
            *(f"--time={settings.deadline_minutes}", "--no-requeue", f"--signal=B:TERM@{LEAVE_SECONDS}"),
            *settings.options,
        ]
        # In place of the shell, so that the signal reaches it.
        script = f"#!/bin/bash\nexec {shlex.join([settings.ec1, *project, *arguments])}\n"
        self._call(command, script)

    def look(self, name: str) -> JobState | None:
        if lines := self._queue(name):
            state, _, why = lines[-1].partition("|")
            reason = "" if why in ("", "None") else f" ({why})"
            return JobState(state not in _GOING, f"{state.lower()}{reason}")
        try:
            # The queue forgets a job minutes after its end; not every cluster keeps accounts.
            told = self._call(["sacct", "--noheader", "--parsable2", "-X", f"--name={name}", "--format=State"])
        except (InputError, ServiceError):
            return None
        return JobState(True, told.split()[-1].lower()) if told.split() else None

    def remove(self, name: str) -> None:
        self._call(["scancel", "--me", f"--name={name}", "--state=PENDING"])
        # To the script itself, whose worker then has the time for a checkpoint.
        self._call(["scancel", "--me", f"--name={name}", "--batch", "--signal=TERM"])

        def gone() -> bool:
            return not any(line.split("|")[0] in _GOING for line in self._queue(name))

        patiently(gone, LEAVE_SECONDS)
        self._call(["scancel", "--me", f"--name={name}"])

    def tail(self, name: str) -> str:
        return f"the end of {self._log(name)}:\n{tail_of(self._log(name))}"

    def _log(self, name: str) -> Path:
        return self._settings.folder / f"{name}.log"

    def _queue(self, name: str) -> list[str]:
        """`STATE|reason` of each of our jobs of that name, the newest last."""
        said = self._call(
            ["squeue", "--me", "--noheader", f"--name={name}", "--states=all", "--sort=i", "--format=%T|%r"]
        )
        return said.split("\n")[:-1]

    def _call(self, command: Sequence[str], data: str = "") -> str:
        """What a command prints. Raises InputError for what Slurm refuses, ServiceError if it does not answer."""
        try:
            done = subprocess.run(
                command, input=data, capture_output=True, text=True, timeout=_SECONDS, env=self._env, check=False
            )
        except FileNotFoundError:
            raise InputError(f"launcher slurm: {command[0]} is not installed here: submit from a login node") from None
        except subprocess.TimeoutExpired:
            raise ServiceError(f"{command[0]} did not answer within {_SECONDS:.0f} s") from None
        if done.returncode:
            said = one_line(done.stderr)
            away = any(each in said for each in _UNANSWERED)
            raise (ServiceError if away else InputError)(f"{command[0]}: {said or f'status {done.returncode}'}")
        return done.stdout

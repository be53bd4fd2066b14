"""Which process works on a run, written on the run itself, and whether that process still lives.

Belongs here: the mark, how it is written and read. A process id alone is reused, and a container may see its host's
boot time, so the mark carries the process's own start time, and the machine on which both mean something.
"""

import contextlib
import socket
import time
from dataclasses import dataclass

import dagster as dg
import psutil

from jobs.mark import LIVING_RUN

PROCESS_TAG = "ec1/process"
ENDING_SECONDS = 5.0


@dataclass(frozen=True)
class WorkerProcess:
    """One process: `started` is its start in seconds since the epoch, as the kernel keeps it."""

    run: str
    host: str
    pid: int
    started: float

    @classmethod
    def of(cls, run_id: str, pid: int | None = None) -> "WorkerProcess":
        """The worker of a run: this process, or a living one of this machine."""
        process = psutil.Process(pid)
        return cls(run_id[:8], socket.gethostname(), process.pid, process.create_time())

    @property
    def tag(self) -> dict[str, str]:
        return {PROCESS_TAG: f"{self.run} {self.host} {self.pid} {self.started}"}

    @property
    def is_here(self) -> bool:
        """Whether it runs, or ran, on this machine: of another one's processes nothing is known."""
        return self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        return _alive(self.pid, self.started)


def _alive(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        # A child that nobody has waited for yet is gone all the same.
        return process.create_time() == started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def worker_of(run: dg.DagsterRun) -> WorkerProcess | None:
    """The worker that a run names, or None. A tag that was copied from another run (a re-execution) names no worker."""
    parts = run.tags.get(PROCESS_TAG, "").split(" ")
    if len(parts) != 4 or parts[0] != run.run_id[:8]:
        return None
    return WorkerProcess(parts[0], parts[1], int(parts[2]), float(parts[3]))


def is_gone(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the process that works on a run is known to have ended. False where nothing is known."""
    if worker := worker_of(run):
        return worker.is_here and not worker.alive
    # Started by Dagster itself (`dagster job execute`): its first event with a process id is the worker's own.
    for event in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
        data = event.dagster_event.event_specific_data if event.dagster_event else None
        if pid := getattr(data, "metadata", {}).get("pid"):
            try:
                return psutil.Process(int(str(pid.value))).create_time() > event.timestamp
            except psutil.NoSuchProcess:
                return True
    return False


def end_leftovers(run_id: str) -> list[int]:
    """Kill what the dead worker of a run started and left behind (its steps). Returns their process ids.

    Until none is found: a step that is still alive starts others, such as the `tail` of its log, behind the one who
    looks.
    """
    found = dict[int, None]()
    latest = time.monotonic() + ENDING_SECONDS
    while left := [process for process in psutil.process_iter() if _bears(process, run_id)]:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
                found[process.pid] = None
        # One that the kernel holds on to cannot start anything either.
        if time.monotonic() > latest:
            break
        time.sleep(0.02)
    return list(found)


def _bears(process: psutil.Process, run_id: str) -> bool:
    try:
        return bool(process.environ().get(LIVING_RUN) == run_id)
    except psutil.Error:
        return False

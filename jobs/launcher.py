"""How a run gets its process, as the `run_launcher` of configs/dagster.yaml.

Dagster's own launcher lets the code server start the worker: the run dies with it, nobody sees that it died, and what
the server loaded hours ago decides which recipes there are. Here each run is a separate process, in a session of its
own, which loads the definitions as they are now and names itself on the run, so that Dagster's monitor can ask for it.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from ec1.home import CHECKOUT
from jobs.failure import PARTITION_TAG
from jobs.mark import LIVING_RUN
from jobs.workers import WorkerProcess, end_leftovers, is_gone, worker_of
from resources.dagster_private import (
    CheckRunHealthResult,
    ConfigurableClass,
    ConfigurableClassData,
    LaunchRunContext,
    RunLauncher,
    WorkerStatus,
)


def why_not_ours(instance: dg.DagsterInstance) -> str | None:
    """What to do if the instance would start its runs in another way; None if it does not."""
    if isinstance(instance.run_launcher, ProcessLauncher):
        return None
    return (
        f"{instance.root_directory}/dagster.yaml names no run_launcher, or another one: take those lines from "
        f"{CHECKOUT / 'configs' / 'dagster.yaml'}"
    )


class ProcessLauncher(RunLauncher[dg.DagsterInstance], ConfigurableClass):
    """One process per run. A run that a waiting `ec1 night` asked for is left to that process."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        self._inst_data = inst_data
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        super().__init__()  # type: ignore[no-untyped-call]

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(
        cls, inst_data: ConfigurableClassData, config_value: Mapping[str, object]
    ) -> "ProcessLauncher":
        return cls(inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        run = context.dagster_run
        if waiting := worker_of(run):
            if waiting.is_here and not waiting.alive:
                raise RuntimeError("the command that asked for this run has ended while the run was queued")
            return
        home = Path(self._instance.root_directory)
        log = home.parent / "logs" / f"run-{run.run_id[:8]}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        night = run.tags.get(PARTITION_TAG)
        with log.open("ab") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "jobs.worker", run.run_id, *(["--night", night] if night else [])],
                cwd=CHECKOUT,
                env={**os.environ, "DAGSTER_HOME": str(home), LIVING_RUN: run.run_id, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Whatever ends the daemon must not end the night.
                start_new_session=True,
            )
        self._children[run.run_id] = child
        self._instance.add_run_tags(run.run_id, WorkerProcess.of(run.run_id, child.pid).tag)

    def terminate(self, run_id: str) -> bool:
        """Ask the worker to end the run. It looks at its run's status, so this works from any machine."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished:
            return False
        self._instance.report_run_canceling(run)
        return not is_gone(self._instance, run)

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        if child := self._children.get(run.run_id):
            # Collects it if it has ended.
            child.poll()
        if not is_gone(self._instance, run):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        end_leftovers(run.run_id)
        self._instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its process is gone (killed, or the machine restarted)")

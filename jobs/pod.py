"""Executes one run in a pod: `python -m jobs.pod … dagster api execute_run ARGUMENTS`.

Dagster's launcher for Kubernetes gives each pod the arguments of its own `dagster api execute_run`. With this module as
the container's command (deploy/kubernetes/values.yaml) the run is executed as on one machine: by `jobs.worker`, which
leaves the night's report, notices and clean-up. The instance is the chart's, not one in the home.
"""

import signal
import sys
from collections.abc import Sequence

import dagster as dg

from ec1.home import Home
from jobs.signals import listen
from jobs.worker import execute
from resources.dagster_private import ExecuteRunArgs
from resources.environment import choice_from_environment
from resources.gpu import GPU_POOL


def run_of(arguments: Sequence[str]) -> str:
    """The id of the run that a pod's arguments name. Raises SystemExit for other arguments."""
    if list(arguments[-3:-1]) != ["api", "execute_run"]:
        raise SystemExit(f"jobs.pod executes what Dagster's launcher asks for, not {' '.join(arguments)[:100]!r}")
    return dg.deserialize_value(arguments[-1], ExecuteRunArgs).run_id


def main(arguments: Sequence[str]) -> int:
    run_id = run_of(arguments)
    # Kubernetes ends a pod by SIGTERM.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # Or Dagster takes it for a failure.
    listen()
    Home(choice_from_environment().home).create()
    with dg.DagsterInstance.get() as instance:
        # As on one machine: a default limit alone lets the first runs of a fresh instance through.
        if GPU_POOL not in {info.name for info in instance.event_log_storage.get_pool_limits()}:
            instance.event_log_storage.set_concurrency_slots(GPU_POOL, 1)
        try:
            status = execute(instance, run_id)
        except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
            return 128 + signal.SIGINT
    return 0 if status == dg.DagsterRunStatus.SUCCESS else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The persistent Dagster instance of a home: its configuration file, and the pool limit that Dagster leaves to us."""

import os
from pathlib import Path

import dagster as dg

from ec1.files import write_atomic
from ec1.home import Home

GPU_POOL = "gpu"


def prepare_instance(home: Home, project: Path) -> dg.DagsterInstance:
    """Make `<home>/dagster` an instance (once; a file that the operator edited is kept) and return it.

    Sets DAGSTER_HOME in this process, because Dagster's own subprocesses look there.
    """
    configuration = home.dagster / "dagster.yaml"
    if not configuration.exists():
        write_atomic(configuration, (project / "configs" / "dagster.yaml").read_bytes())
    os.environ["DAGSTER_HOME"] = str(home.dagster)
    instance = dg.DagsterInstance.get()
    # With a default limit alone, the first dequeue on a fresh instance lets every run through.
    limits = {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()}
    if GPU_POOL not in limits:
        instance.event_log_storage.set_concurrency_slots(GPU_POOL, 1)
    return instance


def reconcile(instance: dg.DagsterInstance) -> list[str]:
    """After a reboot: fail the runs whose worker is gone, and free what they held. Returns their ids.

    The default launcher cannot see a dead worker, so call this only when no run can be alive on this machine.
    """
    orphans = instance.get_runs(
        dg.RunsFilter(
            statuses=[dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
        )
    )
    for run in orphans:
        instance.report_run_failed(run, "the machine restarted while this run was going; found by ec1 doctor")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in orphans]

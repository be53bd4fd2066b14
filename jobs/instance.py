"""The persistent Dagster instance of a home: its configuration file, and the pool limit that Dagster leaves to us."""

import fcntl
import os

import dagster as dg
import psutil

from ec1.files import write_atomic
from ec1.home import CHECKOUT, Home
from resources.gpu import GPU_POOL

PROCESS_TAG = "ec1/process"
"""On runs that were started from the command line: the process that executes them."""
GOING = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)


def prepare_instance(home: Home) -> dg.DagsterInstance:
    """Make `<home>/dagster` an instance (once; a file that the operator edited is kept) and return it.

    Sets DAGSTER_HOME in this process, because Dagster's own subprocesses look there.
    """
    configuration = home.dagster / "dagster.yaml"
    if not configuration.exists():
        write_atomic(configuration, (CHECKOUT / "configs" / "dagster.yaml").read_bytes())
    os.environ["DAGSTER_HOME"] = str(home.dagster)
    with (home.dagster / ".setup.lock").open("w") as lock:
        # Two processes that create the same SQLite files at once trip over each other's tables.
        fcntl.flock(lock, fcntl.LOCK_EX)
        instance = dg.DagsterInstance.get()
        instance.get_runs_count()
        instance.all_instigator_state()
        # With a default limit alone, the first dequeue on a fresh instance lets every run through.
        limits = {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()}
        if GPU_POOL not in limits:
            instance.event_log_storage.set_concurrency_slots(GPU_POOL, 1)
    return instance


def own_process() -> str:
    """This process, as a tag value that no later process with the same id can claim."""
    process = psutil.Process()
    return f"{process.pid}:{process.create_time()}"


def reconcile(instance: dg.DagsterInstance) -> list[str]:
    """Fail the runs whose process is gone (kill -9, reboot) and free what they held. Returns their ids.

    Nobody else does: the default launcher cannot see a dead worker after a reboot, and no launcher watches a night
    that was started from the command line.
    """
    orphans = [run for run in instance.get_runs(dg.RunsFilter(statuses=list(GOING))) if _is_orphan(instance, run)]
    for run in orphans:
        instance.report_run_failed(run, "the process of this run is gone (killed, or the machine restarted)")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in orphans]


def _is_orphan(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    if tag := run.tags.get(PROCESS_TAG):
        number, created = tag.split(":")
        try:
            return psutil.Process(int(number)).create_time() != float(created)
        except psutil.NoSuchProcess:
            return True
    record = instance.get_run_record_by_id(run.run_id)
    return record is not None and record.create_timestamp.timestamp() < psutil.boot_time()

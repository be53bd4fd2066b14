"""The persistent Dagster instance of a home: its configuration file, and the pool limit that Dagster leaves to us."""

import fcntl
import os
import time
from pathlib import Path

import dagster as dg

from ec1.errors import DamagedError
from ec1.files import sha256_file, write_atomic
from ec1.home import CHECKOUT, Home
from ec1.night.operations.databases import damaged_databases
from jobs.conclusion import conclude
from jobs.workers import end_leftovers, is_gone, worker_of
from resources.gpu import GPU_POOL

OPEN = (
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
DAEMON = "QUEUED_RUN_COORDINATOR"
HEARTBEAT_SECONDS = 60.0
"""A daemon writes a heartbeat every 30 seconds."""
STALE_SECONDS = 300.0
"""A run that was neither queued nor started this long after its creation never will be."""
SHIPPED_BEFORE = frozenset(
    {
        "e9b8b6303cfac62a3d7cb2c97ebd1b6cb0e6e9e8f5923fe573f50a32fbb93eb2",
        "0c3bde77cb3a6e9aa377a2e009c2296b26607979c52eca6bc5eb312f4ed17efd",
    }
)
"""SHA-256 of the configurations of earlier releases: an unedited file is replaced."""


def prepare_instance(home: Home) -> dg.DagsterInstance:
    """Make `<home>/dagster` an instance (once; a file that the operator edited is kept) and return it.

    Sets DAGSTER_HOME in this process, because Dagster's own subprocesses look there.
    """
    home.create()
    configuration = home.dagster / "dagster.yaml"
    if not configuration.exists() or sha256_file(configuration) in SHIPPED_BEFORE:
        write_atomic(configuration, (CHECKOUT / "configs" / "dagster.yaml").read_bytes())
    os.environ["DAGSTER_HOME"] = str(home.dagster)
    with (home.dagster / ".setup.lock").open("w") as lock:
        # Two processes that create the same SQLite files at once trip over each other's tables.
        fcntl.flock(lock, fcntl.LOCK_EX)
        for broken in damaged_databases(home):
            raise DamagedError(broken)
        instance = dg.DagsterInstance.get()
        instance.get_runs_count()
        instance.all_instigator_state()
        # With a default limit alone, the first dequeue on a fresh instance lets every run through.
        limits = {info.name: info.limit for info in instance.event_log_storage.get_pool_limits()}
        if GPU_POOL not in limits:
            instance.event_log_storage.set_concurrency_slots(GPU_POOL, 1)
    return instance


def daemon_lives(instance: dg.DagsterInstance) -> bool:
    """Whether a daemon takes runs from the queue."""
    heartbeat = instance.get_daemon_heartbeats().get(DAEMON)
    return heartbeat is not None and time.time() - heartbeat.timestamp < HEARTBEAT_SECONDS


def reconcile(instance: dg.DagsterInstance) -> list[str]:
    """Fail the runs whose process is gone (kill -9, reboot) and free what they held. Returns their ids.

    The daemon does the same every half minute (`jobs.launcher`); this is for when none runs.
    """
    orphans = []
    for record in instance.get_run_records(dg.RunsFilter(statuses=list(OPEN))):
        run = record.dagster_run
        if run.status == dg.DagsterRunStatus.QUEUED and worker_of(run) is None:
            continue
        age = time.time() - record.create_timestamp.timestamp()
        never_began = run.status == dg.DagsterRunStatus.NOT_STARTED and age > STALE_SECONDS
        if never_began or is_gone(instance, run):
            instance.report_run_failed(run, "the process of this run is gone (killed, or the machine restarted)")
            end_leftovers(run.run_id)
            instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
            conclude(instance, Home(Path(instance.root_directory).parent), run.run_id)
            orphans.append(run.run_id)
    return orphans

"""Asks for one night and works on it in this process; `ec1 night` does so through `jobs.run_night`.

The run is like any other: it comes from the workspace, waits in the queue under the same limits, and can be executed
again from the UI. Only its worker is this process, so that Ctrl-C ends it and its lines appear here; whoever takes it
from the queue (`jobs.launcher`) leaves it to us. Where no daemon takes it, we do.
"""

import signal
import sys
import time
import traceback
from pathlib import Path

import dagster as dg

from ec1.errors import EC1Error, InputError
from ec1.files import write_atomic
from ec1.home import CHECKOUT, Home
from ec1.night.report.failure import one_line
from jobs.console import told
from jobs.instance import daemon_lives, prepare_instance, reconcile
from jobs.launcher import why_not_ours
from jobs.nightly import NIGHTLY_JOB
from jobs.signals import stopped_by
from jobs.worker import execute, repository
from jobs.workers import WorkerProcess, worker_of
from resources.dagster_private import (
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
    TagConcurrencyLimitsCounter,
    WorkspaceFileTarget,
)
from resources.environment import choice_from_environment

PATIENCE_SECONDS = 15.0
"""How long a daemon with a heartbeat may take to start a run that may begin."""
POLL_SECONDS = 0.5
GOING = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]


def ask_for(instance: dg.DagsterInstance, night: str, run_id: str) -> None:
    """Put a whole night into the queue, as the run `run_id` with this process as its worker."""
    if foreign := why_not_ours(instance):
        raise InputError(foreign)
    recon = repository()
    job = recon.get_definition().get_job(NIGHTLY_JOB)
    (location,) = WorkspaceFileTarget([str(CHECKOUT / "workspace.yaml")]).create_origins()
    origin = RemoteRepositoryOrigin(location, recon.get_definition().name)
    instance.create_run_for_job(
        job,
        run_id=run_id,
        tags={
            **job.run_tags,
            **job.get_tags_for_partition_key(night, selected_asset_keys=None),
            **WorkerProcess.of(run_id).tag,
        },
        remote_job_origin=RemoteJobOrigin(origin, NIGHTLY_JOB),
        job_code_origin=recon.get_reconstructable_job(NIGHTLY_JOB).get_python_origin(),
    )
    # The queue looks at the run alone.
    instance.submit_run(run_id, workspace=None)  # type: ignore[arg-type]


def wait_for_turn(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Wait until the run may begin. Returns False if it was ended while it waited."""
    free_since: float | None = None
    told_of = ""
    while True:
        run = instance.get_run_by_id(run_id)
        if run is None or run.is_finished or run.status == dg.DagsterRunStatus.CANCELING:
            return False
        if run.status != dg.DagsterRunStatus.QUEUED:
            return True
        if reason := _blocked(instance, run):
            free_since = None
            if reason != told_of:
                sys.stdout.write(f"waiting: {reason}\n")
                sys.stdout.flush()
                told_of = reason
            # What was killed holds its place until somebody looks.
            reconcile(instance)
        else:
            free_since = free_since or time.monotonic()
            if not daemon_lives(instance) or time.monotonic() - free_since > PATIENCE_SECONDS:
                instance.report_dagster_event(
                    dg.DagsterEvent(dg.DagsterEventType.PIPELINE_STARTING.value, run.job_name), run_id=run_id
                )
                return True
        time.sleep(POLL_SECONDS)


def _blocked(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """Why the queue would not let this run go now, or None: Dagster's own limits and its order."""
    limits = instance.get_concurrency_config().run_queue_config
    # The queue before what is going: a run that moves meanwhile is seen twice rather than not at all.
    queue = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]), ascending=True)
    going = instance.get_runs(dg.RunsFilter(statuses=GOING))
    if limits is None:
        return None
    if limits.max_concurrent_runs != -1 and len(going) >= limits.max_concurrent_runs:
        return f"{len(going)} runs are going"
    counter = TagConcurrencyLimitsCounter(limits.tag_concurrency_limits, going)
    if counter.is_blocked(run):
        return f"another night is going: {', '.join(_named(each) for each in going)}"
    lives = daemon_lives(instance)
    for earlier in queue:
        if earlier.run_id == run.run_id:
            break
        # Without a daemon nobody would start what the UI or a schedule asked for.
        if not counter.is_blocked(earlier) and (lives or worker_of(earlier)):
            return f"{_named(earlier)} was asked for before"
    return None


def _named(run: dg.DagsterRun) -> str:
    return f"run {run.run_id[:8]} of night {run.tags.get('dagster/partition', '?')}"


def run_in_foreground(night: str, run_id: str, run_id_file: Path) -> int:
    """Run a whole night as the run `run_id`, which is written to the file once it is in the queue. Returns the exit
    status."""
    choice = choice_from_environment()
    status = None
    asked = False
    try:
        with prepare_instance(Home(choice.home)) as instance:
            try:
                # A night that was killed still holds its slot in the pool, on which this one would wait without end.
                for orphan in reconcile(instance):
                    sys.stdout.write(f"ended the orphaned run {orphan[:8]}\n")
                ask_for(instance, night, run_id)
                asked = True
                # At once: whatever ends this process, it is known which run it was.
                write_atomic(run_id_file, run_id)
                with told(instance, run_id):
                    status = execute(instance, run_id) if wait_for_turn(instance, run_id) else None
            except (KeyboardInterrupt, dg.DagsterExecutionInterruptedError):
                if asked:
                    give_up(instance, run_id)
                return 128 + signal.SIGINT
    except Exception as error:  # noqa: BLE001  whatever it is, it is told
        # Before the first step there may be no run that could say it: the last line of the log does.
        if not isinstance(error, EC1Error):
            traceback.print_exc()
        sys.stderr.write(f"{one_line(type(error).__name__, str(error))}\n")
        return 1
    if stopped_by() is not None and status != dg.DagsterRunStatus.SUCCESS:
        return 128 + signal.SIGINT
    return 0 if status == dg.DagsterRunStatus.SUCCESS else 1


def give_up(instance: dg.DagsterInstance, run_id: str) -> None:
    """Leave no run behind that no process works on."""
    run = instance.get_run_by_id(run_id)
    if run is not None and not run.is_finished:
        instance.report_run_canceled(run, "interrupted")

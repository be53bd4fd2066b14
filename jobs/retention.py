"""What the end of a run removes: what `ec1.night.operations.retention` says, and Dagster's runs of old nights.

Belongs here: Dagster's side, through its instance, so that SQLite and PostgreSQL are treated alike. A run that has not
ended is never touched; the newest nights are kept, by date and by when they were worked on (`retention.nights`).
"""

import contextlib
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from ec1.deployment import load_deployment
from ec1.home import Home
from ec1.night.operations.cleanup import Removed, newest, size_of
from ec1.night.operations.retention import clean
from ec1.night.records import Records, RetentionRecord
from ec1.night.report.failure import one_line
from ec1.night.stores import open_registry
from jobs.failure import PARTITION_TAG
from resources.dagster_private import LocalComputeLogManager, SqliteEventLogStorage
from resources.environment import DeploymentChoice

_PAGE_BYTES = 512
_HOW_A_STEP_CAME_UP = (
    dg.DagsterEventType.RESOURCE_INIT_STARTED,
    dg.DagsterEventType.RESOURCE_INIT_SUCCESS,
    dg.DagsterEventType.STEP_WORKER_STARTING,
    dg.DagsterEventType.STEP_WORKER_STARTED,
)
_SAID_TWICE = (
    # What was planned was made; figures of an output are those of its materialisation.
    dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
    dg.DagsterEventType.STEP_OUTPUT,
)
_IN_A_TABLE_OF_ITS_OWN = (
    dg.DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED,
    dg.DagsterEventType.ASSET_CHECK_EVALUATION,
)
ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)


def clean_up(instance: dg.DagsterInstance, choice: DeploymentChoice, run_id: str) -> None:
    """Remove what the deployment does not keep, and write down what that was. What goes wrong here is said, and never
    fails the run: the next one cleans up, too."""
    run = instance.get_run_by_id(run_id)
    if run is None or PARTITION_TAG not in run.tags:
        return
    home = Home(choice.home)
    began = time.monotonic()
    problem = None
    removed: list[Removed] = []
    try:
        compact(instance, run_id)
        deployment = load_deployment(choice.deployment, choice.project)
        removed += prune_runs(instance, deployment.retention.nights)
        removed += clean(open_registry(deployment, home), home, deployment.retention)
    except Exception as error:  # noqa: BLE001  a night that went well must not fail over its clean-up
        problem = one_line(type(error).__name__, str(error))
        sys.stderr.write(f"the clean-up was cut short: {problem}\n")
    counts: Counter[str] = Counter(each.what for each in removed)
    freed: Counter[str] = Counter()
    for each in removed:
        freed[each.what] += each.bytes
    with contextlib.suppress(OSError):
        record = RetentionRecord(
            removed=dict(counts),
            freed_bytes=dict(freed),
            home_bytes=size_of(home.root),
            free_bytes=shutil.disk_usage(home.root).free,
            seconds=round(time.monotonic() - began, 2),
            problem=problem,
        )
        Records(home.night(run.tags[PARTITION_TAG])).write(run_id, record)


def compact(instance: dg.DagsterInstance, run_id: str) -> None:
    """Take out of the event log of an ended run what nobody asks for, and the empty space; the latter once out of the
    index of all runs, too.

    Dagster makes some twenty tables and indexes for each run, which on SQLite's pages of 4 KiB are a third of a quiet
    night's log. Of a run that succeeded, how its steps came up, and what is said twice, go: half of the rest. A log
    that somebody reads keeps its empty space.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        return
    run = instance.get_run_by_id(run_id)
    with contextlib.suppress(sqlite3.OperationalError):
        if run is not None and run.status == dg.DagsterRunStatus.SUCCESS:
            _lighten(instance, storage, run_id)
    for shard in (run_id, "index"):
        with contextlib.suppress(sqlite3.OperationalError):
            _on_small_pages(Path(storage.path_for_shard(shard)))


def _lighten(instance: dg.DagsterInstance, storage: SqliteEventLogStorage, run_id: str) -> None:
    logs = instance.compute_log_manager
    silent: list[int] = []
    for record in instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.LOGS_CAPTURED).records:
        event = record.event_log_entry.dagster_event
        if event is None or not isinstance(logs, LocalComputeLogManager):
            continue
        key = [run_id, "compute_logs", event.logs_captured_data.file_key]
        files = [Path(logs.get_captured_local_path(key, kind)) for kind in ("out", "err", "complete")]
        if not any(path.stat().st_size for path in files if path.exists()):
            for path in files:
                path.unlink(missing_ok=True)
            silent.append(record.storage_id)
    with contextlib.closing(sqlite3.connect(storage.path_for_shard(run_id), timeout=0)) as shard, shard:
        unasked = [(each.value,) for each in _HOW_A_STEP_CAME_UP + _SAID_TWICE]
        shard.executemany("DELETE FROM event_logs WHERE dagster_event_type = ?", unasked)
        shard.executemany("DELETE FROM event_logs WHERE id = ?", [(each,) for each in silent])
    with contextlib.closing(sqlite3.connect(storage.path_for_shard("index"))) as index, index:
        # Assets that were planned stay here: by them Dagster knows the latest run of a night's asset.
        checks = [(run_id, each.value) for each in _IN_A_TABLE_OF_ITS_OWN]
        index.executemany("DELETE FROM event_logs WHERE run_id = ? AND dagster_event_type = ?", checks)


def _on_small_pages(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as db:
        if db.execute("PRAGMA page_size").fetchone() == (_PAGE_BYTES,):
            return
        try:
            # Pages have another size only outside of the log that Dagster writes ahead; this asks for the file alone.
            if db.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",):
                db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
                db.execute("VACUUM")
        finally:
            db.execute("PRAGMA journal_mode = WAL")


def prune_runs(instance: dg.DagsterInstance, keep_nights: int) -> list[Removed]:
    """Delete the ended runs of all but the newest nights, with events and logs. Runs without a night stay as long as
    the oldest kept one."""
    records = instance.get_run_records(dg.RunsFilter(statuses=list(ENDED)))
    nights: dict[str, float] = {}
    for record in instance.get_run_records():
        if night := record.dagster_run.tags.get(PARTITION_TAG):
            nights[night] = max(nights.get(night, 0.0), record.create_timestamp.timestamp())
    kept = newest(nights, keep_nights)
    if len(kept) == len(nights):
        return []
    oldest = min(nights[night] for night in kept)
    removed = []
    for record in records:
        night = record.dagster_run.tags.get(PARTITION_TAG)
        if night in kept or (night is None and record.create_timestamp.timestamp() >= oldest):
            continue
        run_id = record.dagster_run.run_id
        what = f"run {run_id[:8]} of night {night}" if night else f"run {run_id[:8]}"
        why = f"older than the {keep_nights} newest nights"
        removed.append(Removed("dagster run", what, _delete(instance, run_id), why))
    return removed


def _delete(instance: dg.DagsterInstance, run_id: str) -> int:
    """Delete a run; returns the bytes of its files. Its row goes last: what is cut short is done again."""
    storage = instance.event_log_storage
    files = list(_files(instance, run_id))
    freed = sum(size_of(path) for path in files)
    storage.delete_events(run_id)
    for path in files:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    instance.run_storage.delete_run(run_id)
    return freed


def _files(instance: dg.DagsterInstance, run_id: str) -> Iterator[Path]:
    """The files that belong to one run: its own event log, where events are in SQLite, and what its steps printed."""
    storage, logs = instance.event_log_storage, instance.compute_log_manager
    if isinstance(storage, SqliteEventLogStorage):
        shard = Path(storage.path_for_shard(run_id))
        yield from (path for suffix in ("", "-wal", "-shm") if (path := Path(f"{shard}{suffix}")).exists())
    if isinstance(logs, LocalComputeLogManager):
        folder = Path(logs.get_captured_local_path([run_id, "compute_logs", "any"], "out")).parents[1]
        if folder.name == run_id and folder.is_dir():
            yield folder

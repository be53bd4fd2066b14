"""The queue of runs, as the `run_coordinator` of configs/dagster.yaml: Dagster's own, which knows what a night is.

Belongs here: what a run is made into before it is queued, and in which order the nights of a backfill go. Does not:
what is read of the queue (`jobs/nights.py`).

Whoever materialises all assets of a night from the graph (*Lineage → Materialize*, one night or several) gets a run of
Dagster's hidden job of all assets. Such a run is the nightly job: here it becomes one, so that the limit of one night
at a time holds for it, and planner, report and Overview know it.
"""

import datetime as dt
from collections.abc import Set

import dagster as dg

from ec1_assets.run_tags import VERDICT_TAG
from jobs.failure import PARTITION_TAG
from jobs.nightly import NIGHT_TAG, NIGHTLY_JOB
from resources.dagster_private import (
    QueuedRunCoordinator,
    RemoteJobOrigin,
    RunsTable,
    RunTagsTable,
    SqlRunStorage,
    SubmitRunContext,
    copy,
)

ASSET_JOB = "__ASSET_JOB"
BACKFILL_TAG, PRIORITY_TAG = "dagster/backfill", "dagster/priority"


class NightQueue(QueuedRunCoordinator):
    """Dagster's queue; takes the same settings."""

    def submit_run(self, context: SubmitRunContext) -> dg.DagsterRun:
        run = context.dagster_run
        # `ec1 night` has no workspace, and asks for the nightly job itself.
        everything = context.workspace.asset_graph.materializable_asset_keys if context.workspace else frozenset()
        queued = as_queued(run, everything)
        if queued != run:
            rewrite(self._instance, queued)
        return super().submit_run(context._replace(dagster_run=queued))


def as_queued(run: dg.DagsterRun, everything: Set[dg.AssetKey]) -> dg.DagsterRun:
    """The run as it belongs into the queue; `everything` are the assets of a whole night."""
    # A run that is executed again has its parent's tags, and no verdict yet.
    tags = {name: value for name, value in run.tags.items() if name != VERDICT_TAG}
    night = run.tags.get(PARTITION_TAG)
    if night is not None and BACKFILL_TAG in tags:
        # In the order of the nights, in whichever order they were asked for.
        tags.setdefault(PRIORITY_TAG, str((dt.date.max - dt.date.fromisoformat(night)).days))
    whole = (
        night is not None and run.job_name == ASSET_JOB and everything and everything <= (run.asset_selection or set())
    )
    origin = run.remote_job_origin
    if not whole or origin is None:
        return copy(run, tags=tags)
    code = run.job_code_origin
    return copy(
        run,
        tags={**tags, NIGHT_TAG: "yes"},
        job_name=NIGHTLY_JOB,
        remote_job_origin=RemoteJobOrigin(origin.repository_origin, NIGHTLY_JOB),
        job_code_origin=None if code is None else code._replace(job_name=NIGHTLY_JOB),
        asset_selection=None,
        asset_check_selection=None,
        step_keys_to_execute=None,
    )


def rewrite(instance: dg.DagsterInstance, run: dg.DagsterRun) -> None:
    """Replace a run's record. Dagster has no call for it; this is how its own `add_run_tags` does it."""
    storage = instance.run_storage
    assert isinstance(storage, SqlRunStorage), "SQLite and PostgreSQL both are"
    with storage.connect() as connection:
        connection.execute(
            RunsTable.update()
            .where(RunsTable.c.run_id == run.run_id)
            .values(run_body=dg.serialize_value(run), snapshot_id=run.job_snapshot_id, pipeline_name=run.job_name)
        )
        connection.execute(RunTagsTable.delete().where(RunTagsTable.c.run_id == run.run_id))
        rows = [{"run_id": run.run_id, "key": name, "value": value} for name, value in run.tags.items()]
        if rows:
            connection.execute(RunTagsTable.insert(), rows)

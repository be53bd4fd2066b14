"""What EC1 uses of Dagster that Dagster does not promise to keep: the only file that imports `dagster._*`.

Belongs here: names of Dagster's private modules, and why the public API does not do. Does not: code of ours.
`tests/jobs/test_dagster_private.py` holds what EC1 relies on for each of them: look there first when a new version of
Dagster breaks something. The linter keeps these modules out of all other files (`banned-api` in pyproject.toml).
"""

from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster._core.events import EngineEventData, StepMaterializationData
from dagster._core.execution.api import create_execution_plan
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._core.execution.stats import RunStepKeyStatsSnapshot, StepEventStatus
from dagster._core.executor import multiprocess
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._core.remote_origin import RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.run_coordinator import QueuedRunCoordinator, SubmitRunContext
from dagster._core.snap import create_execution_plan_snapshot_id, snapshot_from_execution_plan
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.runs.schema import RunsTable, RunTagsTable
from dagster._core.storage.runs.sql_run_storage import SqlRunStorage
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.controller import DagsterDaemonController, create_daemons_from_instance
from dagster._grpc.impl import core_execute_run
from dagster._grpc.types import ExecuteRunArgs
from dagster._serdes import ConfigurableClass
from dagster._serdes.config_class import ConfigurableClassData
from dagster._utils.error import SerializableErrorInfo
from dagster._utils.log import configure_loggers
from dagster._utils.schedules import is_valid_cron_string, schedule_execution_time_iterator
from dagster._utils.tags import TagConcurrencyLimitsCounter
from dagster_shared.record import copy

LOADED_BY_EVERY_STEP = (
    "dagster._core.instance.factory",
    "dagster._core.secrets.env_file",
    "dagster._core.storage.sqlite_storage",
    "upath.implementations.local",
)
"""What a step's process imports when it opens the instance: eighty modules, which a fork server can load once."""

__all__ = [  # noqa: RUF022  by what they are needed for
    # The type of what `dg.define_asset_job` returns.
    "UnresolvedAssetJobDefinition",
    # Whether a schedule's line is one, and when it comes: a definition with a bad one takes all others down with it.
    "is_valid_cron_string",
    "schedule_execution_time_iterator",
    # The steps of a run are processes of this executor: fork servers load it beforehand.
    "multiprocess",
    "LOADED_BY_EVERY_STEP",
    # Whose steps ask for a place in a pool when there may be one (`jobs.claims`).
    "InstanceConcurrencyContext",
    # Runs are executed by processes of ours (`jobs.launcher`, `ec1 night`), with the definitions as they are then.
    "ReconstructableRepository",
    "core_execute_run",
    # Those processes are started, asked for and ended by a launcher of ours.
    "RunLauncher",
    "LaunchRunContext",
    "CheckRunHealthResult",
    "WorkerStatus",
    "ConfigurableClass",
    "ConfigurableClassData",
    # Before a run is queued, one of all assets of a night is made the nightly job.
    "QueuedRunCoordinator",
    "SubmitRunContext",
    # The arguments that Dagster's launcher for Kubernetes gives to a pod.
    "ExecuteRunArgs",
    # The queue takes no run that does not say where it comes from; `ec1 night` waits as the queue would let it.
    "RemoteJobOrigin",
    "RemoteRepositoryOrigin",
    "WorkspaceFileTarget",
    "TagConcurrencyLimitsCounter",
    # A run that waited is planned again by today's recipes, and its record rewritten to say so.
    "create_execution_plan",
    "create_execution_plan_snapshot_id",
    "snapshot_from_execution_plan",
    "copy",
    "RunsTable",
    "RunTagsTable",
    "SqlRunStorage",
    # How each step of a run ended, and when.
    "RunStepKeyStatsSnapshot",
    "StepEventStatus",
    # What an event says of an error that no step reports (`jobs.failure`).
    "EngineEventData",
    "SerializableErrorInfo",
    # The night's report is shown as a materialisation that no step made.
    "StepMaterializationData",
    # The files of a run, which Dagster does not delete with it.
    "SqliteEventLogStorage",
    "LocalComputeLogManager",
    # The UI and the daemon in one process, on one code server.
    "WorkspaceProcessContext",
    "DagsterDaemonController",
    "create_daemons_from_instance",
    "configure_loggers",
]

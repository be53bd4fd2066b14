"""A sensor that writes down why a night failed, where the operator and `ec1` can find it in the morning."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from ec1.files import write_json
from resources.project import ProjectResource
from schedules.planning import PARTITION_TAG

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition


def night_failure_sensor(jobs: "list[UnresolvedAssetJobDefinition]") -> dg.SensorDefinition:
    """Writes `nights/<night>/failure-<run>.json`: the steps that failed, their errors, and how to run them again."""

    @dg.run_failure_sensor(
        name="night_failure_sensor",
        monitored_jobs=jobs,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Writes down why a night failed.",
    )
    def _sensor(context: dg.RunFailureSensorContext, project: ProjectResource) -> None:
        night = context.dagster_run.tags.get(PARTITION_TAG)
        if night is None:
            return
        steps = {
            event.step_key: _root_cause(event.event_specific_data)
            for event in context.get_step_failure_events()
            if event.step_key
        }
        record = failure_record(context.dagster_run, night, steps, context.failure_event.message or "")
        path = Path(project.home.night(night)) / f"failure-{context.dagster_run.run_id[:8]}.json"
        write_json(path, record)
        context.log.error(f"night {night} failed: {record['summary']} ({path})")

    return _sensor


def failure_record(run: dg.DagsterRun, night: str, steps: dict[str, str], message: str) -> dict[str, Any]:
    """The record of one failed run. `steps` maps each failed step to the message of its root cause."""
    first = next(iter(steps.items()), None)
    return {
        "night": night,
        "run": run.run_id,
        "job": run.job_name,
        "summary": f"{first[0]}: {first[1]}" if first else message,
        "steps": steps,
        "again": f"ec1 night --date {night}",
    }


def _root_cause(data: Any) -> str:
    error = getattr(data, "error", None)
    while error is not None and error.cause is not None:
        error = error.cause
    return error.message.strip() if error is not None else "no error was recorded"

"""A sensor that writes down what a failed night came to, for runs that could not do so (killed, never begun)."""

import dagster as dg

from jobs.conclusion import conclude, is_concluded
from resources.project import ProjectResource


def night_failure_sensor() -> dg.SensorDefinition:
    """Writes `nights/<night>/failure-<run>.json` (the root cause, the steps that failed) and the night's report.

    For every run, also one of a few assets that somebody materialised from the graph.
    """

    @dg.run_failure_sensor(
        name="night_failure_sensor",
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Writes down why a night failed, where the run itself could not.",
    )
    def _sensor(context: dg.RunFailureSensorContext, project: ProjectResource) -> None:
        if not is_concluded(project.home, context.dagster_run):
            conclude(context.instance, project.home, context.dagster_run.run_id)

    return _sensor

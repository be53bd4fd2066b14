"""Whether Dagster can run a deployment's schedule: `ec1`, which does not know Dagster, takes any cron line."""

import time

from ec1.deployment import Deployment
from ec1.errors import InputError
from resources.dagster_private import is_valid_cron_string, schedule_execution_time_iterator


def check_schedule(deployment: Deployment) -> None:
    """Raises InputError if Dagster does not take the schedule's cron line, or if its time never comes."""
    settings = deployment.schedule
    where = f"deployment {deployment.name}: schedule.cron: {settings.cron!r}"
    if not is_valid_cron_string(settings.cron):
        raise InputError(f"{where} is not a time that Dagster takes: five fields, such as '0 2 * * *'")
    try:
        next(schedule_execution_time_iterator(time.time(), settings.cron, settings.timezone, ascending=True))
    except ValueError:
        raise InputError(f"{where} never comes: no month has that day") from None

"""Nights as Dagster partitions, and how assets of one night refer to those of the night before."""

import dagster as dg

from ec1.deployment import Deployment

PREVIOUS_NIGHT = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


def nights_of(deployment: Deployment) -> dg.DailyPartitionsDefinition:
    """One partition per night. The open one (today) is included: an operator may run tonight early."""
    schedule = deployment.schedule
    return dg.DailyPartitionsDefinition(
        start_date=schedule.first_night.isoformat(), timezone=schedule.timezone, end_offset=1
    )

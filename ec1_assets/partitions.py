"""Nights as Dagster partitions, and how assets of one night refer to those of the night before."""

import datetime as dt

import dagster as dg

from ec1.deployment import Deployment

PREVIOUS_NIGHT = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)


def nights_of(deployment: Deployment, first: dt.date) -> dg.DailyPartitionsDefinition:
    """One partition per night from `first` on. The open one (today) is included: an operator may run tonight early."""
    return dg.DailyPartitionsDefinition(
        start_date=first.isoformat(), timezone=deployment.schedule.timezone, end_offset=1
    )

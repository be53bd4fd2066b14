"""Nights as Dagster partitions.

No asset refers to another night, and all have the same backfill policy (none): so Dagster's backfill of assets makes
one run per night with all that is asked for of it. The nights go in their order (`jobs/queue.py`, `jobs/nights.py`). A
dependency of an asset on itself one night earlier orders that asset alone, and takes its night apart into several
runs; one of a chain's first asset on the earlier night's last is a circle, which Dagster refuses.
"""

import datetime as dt

import dagster as dg

from ec1.deployment import Deployment


def nights_of(deployment: Deployment, first: dt.date) -> dg.DailyPartitionsDefinition:
    """One partition per night from `first` on. The open one (today) is included: an operator may run tonight early."""
    return dg.DailyPartitionsDefinition(
        start_date=first.isoformat(), timezone=deployment.schedule.timezone, end_offset=1
    )

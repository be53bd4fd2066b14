"""A night that did not begin: written down and told like any other that failed, by whoever tried to start it.

Belongs here: what is left of such a night, and the little place that is kept for it on a full disk. Does not: what
stops a night (`ec1/night/health/preflight.py`).
"""

import contextlib
import datetime as dt
import errno
import os
from collections.abc import Mapping

from ec1 import refused
from ec1.deployment import Deployment
from ec1.files import write_atomic
from ec1.home import Home
from ec1.night.records import Records, RunRecord
from ec1.night.report.failure import Failure, write_failure
from ec1.night.report.morning import conclude_night
from ec1.night.report.summary import NightReport, night_report

RESERVED_BYTES = 512 * 2**10
"""Room for a failure, a report with its page, and the notices. Random, so that no file system makes it smaller."""


def did_not_begin(
    deployment: Deployment, home: Home, night: str, run: str, why: str, environment: Mapping[str, str]
) -> NightReport:
    """Write down why a night did not begin, keep its report and tell whoever is to be told.

    A home that takes no files keeps nothing of it; somebody is told all the same.
    """
    give_up_reserve(home)
    now = dt.datetime.now(dt.UTC)
    failure = Failure(night=night, run=run, job=JOB, cause=why, again=f"ec1 night --date {night}")
    record = RunRecord(job=JOB, status="did not begin", asked=now, ended=now, run=run)
    with contextlib.suppress(OSError):
        write_failure(home, failure)
        Records(home.night(night)).write(run, record)
        report = night_report(home, night, run)
        conclude_night(report, deployment, home, environment)
        return report
    report = NightReport(night=night, run=run, status="did not begin", timeline={run: record}, failure=failure)
    with contextlib.suppress(OSError):
        conclude_night(report, deployment, home, environment)
    return report


JOB = "nightly_job"
UNBEGUN = "unbegun"
"""Stands for the run of a night that got none; of several attempts the last one is kept."""


def keep_reserve(home: Home) -> None:
    """Keep place for the next night that finds the disk full."""
    if home.root.is_dir() and not home.reserve.exists():
        with contextlib.suppress(OSError):
            write_atomic(home.reserve, os.urandom(RESERVED_BYTES))


def give_up_reserve(home: Home) -> None:
    """Give that place up, if the disk is full."""
    refusal = refused.refusal_of(home.root)
    if refusal is not None and refusal.errno in (errno.ENOSPC, errno.EDQUOT):
        with contextlib.suppress(OSError):
            home.reserve.unlink(missing_ok=True)

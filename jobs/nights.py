"""Whether a night is done, going or queued: what schedule, sensor and `ec1 report` go by.

Done is what the home's records say, whoever ran it; going and queued is what Dagster's queue says. Started as
`python -m jobs.nights NIGHT ...` it prints their states as JSON, and without a night the runs that wait or go; it
changes nothing.
"""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import dagster as dg

from ec1.errors import EC1Error
from ec1.home import Home
from ec1.night.report.summary import is_done
from jobs.failure import PARTITION_TAG
from jobs.nightly import NIGHTLY_JOB
from jobs.queue import BACKFILL_TAG
from resources.environment import choice_from_environment

IN_QUEUE = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED)
AT_WORK = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)


@dataclass(frozen=True)
class NightState:
    """`run` is the run that goes or waits; `failed` counts the runs of the night that ended and left it open."""

    night: str
    state: Literal["going", "queued", "done", "open"]
    run: str | None = None
    failed: int = 0


def state_of(instance: dg.DagsterInstance, home: Home, night: str) -> NightState:
    """How a night stands. A run that is going counts before what an earlier one finished.

    Raises EC1Error if the night's records cannot be read.
    """
    runs = instance.get_runs(dg.RunsFilter(job_name=NIGHTLY_JOB, tags={PARTITION_TAG: night}))
    done = is_done(home, night)
    in_vain = {dg.DagsterRunStatus.FAILURE} if done else {dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.SUCCESS}
    failed = sum(run.status in in_vain for run in runs)
    if going := [run.run_id for run in runs if run.status in AT_WORK]:
        return NightState(night, "going", going[0], failed)
    if queued := [run.run_id for run in runs if run.status in IN_QUEUE]:
        return NightState(night, "queued", queued[-1], failed)
    return NightState(night, "done" if done else "open", None, failed)


def why_not_yet(instance: dg.DagsterInstance, home: Home, run: dg.DagsterRun) -> str | None:
    """Why a run of a backfill must not begin: an earlier night that was asked for with it is not finished. None if it
    may.

    The queue keeps the order; this holds where its limits were taken out of the instance's configuration, or where an
    earlier night failed: what a later one decides rests on what the earlier ones left.
    """
    night, backfill = run.tags.get(PARTITION_TAG), run.tags.get(BACKFILL_TAG)
    if night is None or backfill is None:
        return None
    asked = _asked(instance, backfill)
    runs: dict[str, list[dg.DagsterRun]] = {each: [] for each in asked}
    for other in instance.get_runs(dg.RunsFilter(tags={BACKFILL_TAG: backfill})):
        if other.run_id != run.run_id and PARTITION_TAG in other.tags:
            runs.setdefault(other.tags[PARTITION_TAG], []).append(other)
    for earlier in sorted(each for each in runs if each < night):
        again = f"run night {earlier} first, then this one again"
        if any(other.status in (*IN_QUEUE, *AT_WORK) for other in runs[earlier]):
            return f"night {earlier} of the same backfill is not finished yet: {again}"
        good = [other for other in runs[earlier] if other.status == dg.DagsterRunStatus.SUCCESS]
        made = asked.get(earlier, set()) if any(not other.asset_selection for other in good) else set()
        made = made.union(*(other.asset_selection or () for other in good))
        # As a whole it may have been done since, by a run of its own.
        if (not good or asked.get(earlier, set()) - made) and not is_done(home, earlier):
            how = "failed or was ended" if len(good) < len(runs[earlier]) else "has not been worked on"
            return f"night {earlier} of the same backfill {how}: {again}"
    return None


def _asked(instance: dg.DagsterInstance, backfill_id: str) -> dict[str, set[dg.AssetKey]]:
    """The nights of a backfill; of one of assets, with the assets that it asks for of each."""
    backfill = instance.get_backfill(backfill_id)
    if backfill is None:
        return {}
    asked: dict[str, set[dg.AssetKey]] = {night: set() for night in backfill.partition_names or ()}
    if backfill.is_asset_backfill and backfill.asset_backfill_data is not None:
        target = backfill.asset_backfill_data.target_subset.partitions_subsets_by_asset_key
        for key, nights in target.items():
            for night in nights.get_partition_keys():
                asked.setdefault(night, set()).add(key)
    return asked


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.nights")
    parser.add_argument("nights", nargs="*")
    parser.add_argument("--home", type=Path)
    arguments = parser.parse_args()
    home = Home(arguments.home or choice_from_environment().home)
    try:
        with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
            found: list[object]
            if arguments.nights:
                found = [asdict(state_of(instance, home, night)) for night in arguments.nights]
            else:
                found = [run.run_id for run in instance.get_runs(dg.RunsFilter(statuses=[*IN_QUEUE, *AT_WORK]))]
    except EC1Error as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())

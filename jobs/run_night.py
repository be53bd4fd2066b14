"""Runs one night in this process: `python -m jobs.run_night --date D --run-id-file F`. `ec1 night` starts it."""

import argparse
import sys
from pathlib import Path

import dagster as dg

from ec1.files import write_atomic
from ec1.home import Home
from jobs.instance import PROCESS_TAG, own_process, prepare_instance, reconcile
from jobs.nightly import NIGHTLY_JOB
from resources.environment import choice_from_environment


def nightly_job() -> dg.JobDefinition:
    """The job of the one code location, for `dagster.reconstructable`."""
    from ec1_assets.definitions import defs

    return defs.resolve_job_def(NIGHTLY_JOB)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.run_night")
    parser.add_argument("--date", required=True)
    parser.add_argument("--run-id-file", type=Path, required=True)
    arguments = parser.parse_args()
    choice = choice_from_environment()
    with prepare_instance(Home(choice.home)) as instance:
        # A night that was killed still holds its slot in the pool, on which this one would wait for ever.
        for orphan in reconcile(instance):
            sys.stdout.write(f"ended the orphaned run {orphan[:8]}\n")
        result = dg.execute_job(
            dg.reconstructable(nightly_job),
            instance,
            tags={"dagster/partition": arguments.date, PROCESS_TAG: own_process()},
            run_config={"loggers": {"terminal": {}}},
        )
        write_atomic(arguments.run_id_file, result.run_id)
    return 0 if result.success else 1


if __name__ == "__main__":
    sys.exit(main())

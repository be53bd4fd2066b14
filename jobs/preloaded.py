"""What the fork server of a run loads: the definitions, or nothing where they cannot be loaded.

The run itself loads them too and says what is wrong. Dagster's executor starts it, or `jobs.run_night` earlier.
"""

import contextlib
import gc

from ec1.launch.libraries import load_libraries

with contextlib.suppress(Exception):
    load_libraries("resources.dagster_private", "ec1_assets.definitions")
    from ec1_assets.definitions import defs
    from jobs.nightly import NIGHTLY_JOB
    from resources.dagster_private import LOADED_BY_EVERY_STEP

    load_libraries(*LOADED_BY_EVERY_STEP)
    # Once here, and not once in each step.
    defs.resolve_job_def(NIGHTLY_JOB)
    # The collector of a step need not look through them, and so does not make copies of the pages that they share.
    gc.freeze()

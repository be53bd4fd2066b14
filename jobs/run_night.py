"""The process of `ec1 night`: `python -m jobs.run_night --date D --run-id-file F`.

Belongs here: its arguments, and what has to start before Dagster is loaded. Does not: the night (`jobs.foreground`).
"""

import argparse
import gc
import os
import signal
import sys
from multiprocessing import forkserver
from pathlib import Path
from uuid import uuid4

from ec1.launch.libraries import load_libraries
from jobs.mark import LIVING_RUN
from jobs.signals import listen


def start_fork_server() -> None:
    """Start the process that the steps are forked from; Dagster's executor finds it and starts no other.

    It loads the definitions while this process loads Dagster and asks for the night, so that the first step does not
    wait for them.
    """
    forkserver.set_forkserver_preload(["jobs.preloaded"])
    forkserver.ensure_running()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m jobs.run_night")
    parser.add_argument("--date", required=True)
    parser.add_argument("--run-id-file", type=Path, required=True)
    arguments = parser.parse_args()
    run_id = str(uuid4())
    listen()
    # Its default would end this process without a word.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # What is left of a run is found by its mark, so the fork server bears it too.
        os.environ[LIVING_RUN] = run_id
        start_fork_server()
        load_libraries("jobs.foreground")
        # Taking Dagster apart with the collector at exit takes a second.
        gc.freeze()
        from jobs.foreground import run_in_foreground
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return run_in_foreground(arguments.date, run_id, arguments.run_id_file)


if __name__ == "__main__":
    sys.exit(main())

"""What `ec1 night` shows while it runs: one short line per event that matters to an operator.

Read from the run's event log and not from a logger, so that a run is the same run whoever looks at it.
"""

import datetime as dt
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg

from jobs.background import in_background

SHOWN = {
    dg.DagsterEventType.STEP_FAILURE: "failed",
    dg.DagsterEventType.STEP_SKIPPED: "skipped",
    dg.DagsterEventType.STEP_SUCCESS: "done",
}

# Said by Dagster and its Pipes; the step's own line says as much.
NOISE = ("Skipping step ", "Dependencies for step ", "[pipes] external process successfully opened")
LEVEL = 20
POLL_SECONDS = 0.5


def line_of(entry: dg.EventLogEntry) -> str | None:
    """One event as a line, or None for what does not matter at a terminal."""
    event = entry.dagster_event
    if event is None:
        if int(entry.level) < LEVEL or entry.user_message.startswith(NOISE):
            return None
        text = entry.user_message
    elif event.event_type in SHOWN:
        text = SHOWN[event.event_type]
    else:
        return None
    step = (entry.step_key or "night").replace("__", "/")
    return f"{dt.datetime.fromtimestamp(entry.timestamp):%H:%M:%S}  {step:<34} {text}"


@contextmanager
def told(instance: dg.DagsterInstance, run_id: str) -> Iterator[None]:
    """Print the lines of a run while the block runs, and what is left of them at its end."""

    def follow(done: threading.Event) -> None:
        cursor = None
        ending = False
        while True:
            page = instance.get_records_for_run(run_id, cursor)
            cursor = page.cursor
            for record in page.records:
                if line := line_of(record.event_log_entry):
                    sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
            if page.has_more:
                continue
            if ending:
                return
            ending = done.wait(POLL_SECONDS)

    with in_background("told", follow):
        yield

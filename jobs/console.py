"""What `ec1 night` shows while it runs: one short line for each thing that a person would want to know."""

import logging
import sys

import dagster as dg

SHOWN = {
    dg.DagsterEventType.STEP_FAILURE: "failed",
    dg.DagsterEventType.STEP_SKIPPED: "skipped",
    dg.DagsterEventType.STEP_SUCCESS: "done",
}

# Said by Dagster and its Pipes; the step's own line says as much.
NOISE = ("Skipping step ", "Dependencies for step ", "[pipes] external process successfully opened")


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        meta = getattr(record, "dagster_meta", {})
        event = getattr(record, "dagster_event", None)
        step = (meta.get("step_key") or getattr(event, "step_key", None) or "night").replace("__", "/")
        text = SHOWN[event.event_type] if event else str(meta.get("orig_message", record.getMessage()))
        return f"{self.formatTime(record, '%H:%M:%S')}  {step:<34} {text}"


class _WorthShowing(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        event = getattr(record, "dagster_event", None)
        if event is not None:
            return event.event_type in SHOWN
        text = getattr(record, "dagster_meta", {}).get("orig_message") or record.getMessage()
        return record.levelno >= logging.INFO and not str(text).startswith(NOISE)


@dg.logger(description="One line a step and a line for each message, for a person at a terminal.")
def terminal_logger(context: dg.InitLoggerContext) -> logging.Logger:
    logger = logging.Logger("ec1.night", logging.DEBUG)
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_OneLine())
    handler.addFilter(_WorthShowing())
    logger.addHandler(handler)
    return logger

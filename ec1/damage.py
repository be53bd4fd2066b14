"""How a room says that a disk changed something, so that it is kept and told: a warning of its logger, with the path.

Belongs here: the words' form, and the handler that hands them on. Does not: where they are kept
(`ec1/night/health/storage_health.py`), and how each thing is checked and mended.
"""

import logging
from collections.abc import Callable
from pathlib import Path

_PATH = "damaged_path"


def damaged(log: logging.Logger, path: Path, what: str) -> None:
    """Say that something is damaged and what became of it, in one line."""
    log.warning("%s", what, extra={_PATH: str(path)})


class DamageHandler(logging.Handler):
    """Hands on what rooms said with `damaged`: the path and the line. All warnings are printed as they would be without
    it: a handler of any kind keeps Python from printing them."""

    def __init__(self, keep: Callable[[Path, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._keep = keep

    def emit(self, record: logging.LogRecord) -> None:
        path = getattr(record, _PATH, None)
        if isinstance(path, str):
            self._keep(Path(path), record.getMessage())
        if not logging.root.handlers and logging.lastResort is not None:
            logging.lastResort.handle(record)

"""Steps that are done again and again beside other work, in a thread of their own."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

from ec1.errors import EC1Error

log = logging.getLogger(__name__)
_LEAVE_SECONDS = 30
"""For what is being done when the block ends; a machine that is gone answers nothing."""


@contextlib.contextmanager
def meanwhile(step: Callable[[], object], seconds: float, what: str) -> Iterator[None]:
    """Do a step every so many seconds while the block runs; what fails is logged as `what`, and is tried again."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(seconds):
            quietly(step, what)

    thread = threading.Thread(target=loop, name=what, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_LEAVE_SECONDS)


def quietly(step: Callable[[], object], what: str) -> None:
    """Do a step; what fails is logged."""
    try:
        step()
    except (EC1Error, OSError) as error:
        log.warning("%s: %s", what, error)

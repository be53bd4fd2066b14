"""Work that no page waits for, such as questions to a model: one of a name at a time, and what it came to.

Belongs here: threads, and where each stands. Does not: the work. What was done is kept by the work itself, so nothing
is lost when Studio ends; it is only begun again.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ec1.errors import EC1Error

log = logging.getLogger(__name__)


@dataclass
class BackgroundWork:
    """`running`, with what it does now, or over: `said` is what it came to, `problem` why it did not."""

    running: bool = True
    now: str = ""
    said: str = ""
    problem: str = ""


class Background:
    """The work of one Studio, by name."""

    def __init__(self) -> None:
        self._works: dict[str, BackgroundWork] = {}
        self._lock = threading.Lock()

    def begin(self, name: str, work: Callable[[Callable[[str], None]], str]) -> bool:
        """Begin in a thread of its own, unless this work runs already. `work` is given what tells its progress, and
        returns what it came to; what it raises as an EC1Error is its problem."""
        with self._lock:
            if (known := self._works.get(name)) is not None and known.running:
                return False
            state = self._works[name] = BackgroundWork()
        threading.Thread(target=self._run, args=(name, work, state), name=f"work {name}", daemon=True).start()
        return True

    def state(self, name: str) -> BackgroundWork | None:
        """Where a work stands; None if it never began."""
        return self._works.get(name)

    def _run(self, name: str, work: Callable[[Callable[[str], None]], str], state: BackgroundWork) -> None:
        def tell(text: str) -> None:
            state.now = text

        try:
            state.said = work(tell)
        except (EC1Error, OSError) as error:
            log.warning("%s: %s", name, error)
            state.problem = str(error)
        finally:
            # Last of all: whoever sees that it ended sees how.
            if not state.said and not state.problem:
                state.problem = "it broke off: look at what Studio printed"
            state.running = False

"""A graph of what was read so far, while a long first night still reads.

Belongs here: when it is time for one. Does not: how documents are applied (`graph.py`) and published
(`document_night.py`).
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from ec1.errors import EC1Error

log = logging.getLogger(__name__)

FIRST_SECONDS = 120.0
"""Of reading; a night that has read everything by then publishes once, as ever."""
NEXT_SECONDS = 300.0
_SHARE = 20
"""How many times as long as applying and publishing took it waits at least: a large graph is not copied all night."""


class EarlyGraph:
    """Calls `publish` from time to time, in a thread of its own, and waits for it on leaving: the graph has one writer,
    and the night's last step opens it next. A `publish` that fails is not called again; that step finds the reason."""

    def __init__(self, publish: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._publish = publish
        self._clock = clock
        self._due = clock() + FIRST_SECONDS
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="early-graph")
        self._running: Future[None] | None = None
        self._failed = False

    def __enter__(self) -> "EarlyGraph":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()

    def look(self) -> None:
        """Begin one if it is due; never waits."""
        if self._failed or self._clock() < self._due or (self._running is not None and not self._running.done()):
            return
        self._running = self._thread.submit(self._run)

    def settle(self) -> None:
        """Wait for the one that is under way."""
        if self._running is not None:
            self._running.result()

    def _run(self) -> None:
        begin = self._clock()
        try:
            self._publish()
        except (EC1Error, OSError) as error:
            self._failed = True
            log.warning("no graph of what was read so far: %s", error)
        took = self._clock() - begin
        self._due = self._clock() + max(NEXT_SECONDS, _SHARE * took)

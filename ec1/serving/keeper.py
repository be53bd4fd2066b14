"""Keeps an engine running behind the gateway, and the card's lease with it.

On the night's own card serving is the phase that gives way: when a night waits for the lease, no new request is taken,
those that run get `drain_seconds`, the engine is stopped and the lease given back. It returns when nobody has held the
card for `return_seconds`, since a night lets go of it between two phases. With a lock of its own it is never asked to.

Belongs here: when the engine runs. Does not: how it is started (`ec1/gpu/engine.py`), what it is asked (`gateway.py`).
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ec1.errors import BusyError, EC1Error, ServiceError
from ec1.gpu.engine import Endpoint, VllmEngine
from ec1.gpu.lease import GpuLease
from ec1.serving.backend import Backend

HOLDER = "ec1 serve"
_LOOK_SECONDS = 0.25
_MAX_FAILURES = 3


class Keeper:
    """Runs in a thread of its own, from `start` to `stop`; `failure` says why it ended before, if it did."""

    def __init__(
        self,
        engine: VllmEngine,
        lease: GpuLease,
        backend: Backend,
        *,
        environment: Mapping[str, str],
        log: Path,
        drain_seconds: float,
        return_seconds: float,
        progress: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._lease = lease
        self._backend = backend
        self._environment = environment
        self._log = log
        self._drain_seconds = drain_seconds
        self._return_seconds = return_seconds
        self._progress = progress
        self._ended = ended
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper")
        self.failure: EC1Error | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Drain, stop the engine, give the lease back; returns when all of it is done."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        failures = 0
        quiet = 0.0
        try:
            while self._wait_for_the_card(quiet):
                try:
                    with self._serving():
                        failures = 0
                        why = self._watch()
                        self._drain(why)
                    quiet = self._return_seconds
                except BusyError as error:
                    # Somebody was faster, or something outside EC1 uses the card.
                    self._away(f"waiting for the card: {error}")
                    quiet = min(self._return_seconds, 5.0)
                    self._stop.wait(1)
                except ServiceError as error:
                    failures += 1
                    if failures >= _MAX_FAILURES:
                        raise
                    self._away(f"the engine is started again: {error}")
                    quiet = 0.0
                    self._stop.wait(2.0**failures)
        except EC1Error as error:
            self.failure = error
        finally:
            self._backend.close("the server is stopping")
            self._ended()

    def _wait_for_the_card(self, quiet_seconds: float) -> bool:
        """Wait until nobody has held the card for so long. False if serving is to stop."""
        free_since: float | None = None
        while not self._stop.is_set():
            holder = self._lease.holder()
            now = time.monotonic()
            if holder is not None or self._lease.wanted():
                free_since = None
                self._away(f"the card is used by {holder or 'a night'}")
            else:
                free_since = now if free_since is None else free_since
                if now - free_since >= quiet_seconds:
                    return True
            self._stop.wait(_LOOK_SECONDS)
        return False

    @contextmanager
    def _serving(self) -> Iterator[Endpoint]:
        # Whoever is on this machine could load an adapter under any name: only the gateway may talk to the engine.
        key = secrets.token_urlsafe(32)
        with (
            self._lease.hold("serving", night="", holder=HOLDER, wait_seconds=0, progress=self._progress) as grant,
            self._engine.serve(
                grant,
                log=self._log,
                progress=self._progress,
                environment=self._environment,
                lora=True,
                api_key=key,
                give_up=lambda: self._stop.is_set() or self._lease.wanted(),
            ) as endpoint,
        ):
            self._endpoint = endpoint
            self._backend.open(endpoint)
            self._progress("serving")
            yield endpoint

    def _watch(self) -> str:
        """Wait for a reason to end. Raises ServiceError if the engine died."""
        while not self._stop.wait(_LOOK_SECONDS):
            if died := self._endpoint.died():
                self._away("the engine died")
                raise ServiceError(died)
            if self._lease.wanted():
                return "a night uses the card; serving comes back after it"
        return "the server is stopping"

    def _drain(self, why: str) -> None:
        self._away(why)
        deadline = time.monotonic() + self._drain_seconds
        while self._backend.in_flight and time.monotonic() < deadline:
            time.sleep(0.05)
        if left := self._backend.in_flight:
            self._progress(f"{left} answers were cut off after {self._drain_seconds:g} s")

    def _away(self, why: str) -> None:
        if self._backend.state != why:
            self._progress(why)
        self._backend.close(why)


class FixedServer:
    """An engine that somebody else keeps running: it is there from `start` to `stop`."""

    failure = None

    def __init__(self, endpoint: Endpoint, backend: Backend) -> None:
        self._endpoint = endpoint
        self._backend = backend

    def start(self) -> None:
        self._backend.open(self._endpoint)

    def stop(self) -> None:
        self._backend.close("the server is stopping")

"""A worker: claims markers that ask for work, carries their orders out here, and says how each ended.

A claim lives as long as its heartbeat. When the worker dies, another one takes the marker up again, and the trainer
goes on from the newest checkpoint that is here or was sent. Belongs here: the loop, the heartbeat and the end of each
marker. Does not: what an order does (`executor.py`), and who may claim (`markers.py`).
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from ec1.errors import BusyError, DiskError, EC1Error, InputError, PermanentError, ServiceError
from ec1.launch.executor import Executor
from ec1.launch.marker_formats import Marker, WorkMarker
from ec1.launch.markers import Claim, LostClaim, PendingMarkers, Withdrawn
from ec1.refused import DISK, advice_for
from ec1.storage.store import NotFound

log = logging.getLogger(__name__)


Outcome = Literal["completed", "failed", "released", "lost", "refused"]


@dataclass(frozen=True)
class Done:
    """How a marker ended here. `lost`: another worker has it now, or nobody wants it; `released`: it waits again;
    `refused`: it is not for `ec1 worker`, and is left to other programs (said once)."""

    file: str
    outcome: "Outcome"
    reason: str
    seconds: float


class MarkerWorker:
    """Claims what `accept` takes and carries it out, one marker at a time. `name` tells this worker from others."""

    def __init__(
        self,
        markers: PendingMarkers,
        executor: Executor,
        *,
        name: str,
        device: Literal["cuda", "cpu"],
        beat_seconds: float,
        busy: Callable[[], str | None] = lambda: None,
        only: str | None = None,
    ) -> None:
        """`busy` says why nothing can be begun here now; then another worker may claim what waits. `only` is the
        file of the one marker that this worker is for; it waits while another worker holds that, and ends with it."""
        self._markers = markers
        self._executor = executor
        self._name = name
        self._device = device
        self._beat_seconds = beat_seconds
        self._busy = busy
        self._only = only
        self._waits = ""
        self._refused: dict[str, str] = {}
        self._told: set[str] = set()

    def run(self, poll_seconds: float | None) -> Iterator[Done]:
        """Do what waits, the oldest first; then look again every `poll_seconds`, or, if None, end.

        What could not be done now is not tried twice in a row: it waits for the next look. A store that does not answer
        ends the first look, and is asked again at each further one. Raises InputError if the one marker that it is for
        is not for this device.
        """
        answered = False
        while True:
            tried: set[str] = set()
            try:
                while (claim := self._claim(tried)) is not None:
                    tried.add(claim.file)
                    yield self._do(claim)
                answered = True
                if self._only is not None and not self._markers.state(self._only).goes_on:
                    return
            except ServiceError as error:
                if poll_seconds is None or not answered:
                    raise
                log.warning("%s", error)
            yield from self._refusals()
            if poll_seconds is None:
                return
            time.sleep(poll_seconds)

    def _claim(self, tried: Collection[str]) -> Claim | None:
        reason = self._busy() or ""
        if reason and not self._waits:
            log.warning("nothing is begun for now: %s", reason)
        self._waits = reason
        if reason:
            return None

        def ours(claim: Claim) -> bool:
            marker = claim.marker
            if self._only not in (None, claim.file):
                return False
            if isinstance(marker, Marker):
                self._refused[claim.file] = (
                    f"{claim.file} asks for a whole training of {marker.adapter} (format 1): `ec1 worker` does the "
                    "pieces of work that nights of EC1 ask for (format 2); a program that knows format 1 may take it"
                )
                return False
            if self._only is not None and marker.device != self._device:
                raise InputError(f"{claim.file} is for {marker.device}, and this worker works on {self._device}")
            return marker.device == self._device and claim.file not in tried

        return self._markers.claim(self._name, ours)

    def _refusals(self) -> Iterator[Done]:
        """What was seen that is for other programs, each once."""
        for file, reason in {**self._refused, **self._markers.unknown}.items():
            if file not in self._told:
                self._told.add(file)
                log.warning("left alone: %s", reason)
                yield Done(file, "refused", reason, 0.0)

    def _do(self, claim: Claim) -> Done:
        assert isinstance(claim.marker, WorkMarker)
        log.info("%s: attempt %d", claim.file, claim.attempt)
        started = time.monotonic()

        def ended(outcome: Outcome, reason: str = "") -> Done:
            log.info("%s: %s %s", claim.file, outcome, reason)
            return Done(claim.file, outcome, reason, round(time.monotonic() - started, 1))

        try:
            with self._heart(claim) as watch:
                self._executor.run(claim.marker.work, claim.attempt, watch)
            self._markers.check(claim)
            self._markers.complete(claim)
            return ended("completed")
        except Withdrawn as error:
            self._markers.fail(claim, str(error), self._name)
            return ended("lost", str(error))
        except (LostClaim, NotFound) as error:
            return ended("lost", str(error))
        except (InputError, PermanentError) as error:
            self._fail(claim, str(error))
            return ended("failed", str(error))
        except (EC1Error, OSError) as error:
            if isinstance(error, OSError) and error.errno in DISK:
                # It would be full the next time too, and who asks is to know at once.
                reason = f"{self._name}: {advice_for(error)}"
                self._fail(claim, reason)
                return ended("failed", reason)
            # A card that is taken is not a fault of the work, however often.
            self._markers.release(claim, str(error), counts=not isinstance(error, BusyError))
            return ended("released", str(error))
        except Exception as error:
            # Whatever an order says, this worker goes on. It may be tried again, as often as for workers that died.
            log.exception("%s", claim.file)
            reason = f"{type(error).__name__}: {error}"
            self._markers.release(claim, reason)
            return ended("released", reason)
        except BaseException as error:
            self._markers.release(claim, f"its worker was stopped ({type(error).__name__})")
            raise

    def _fail(self, claim: Claim, reason: str) -> None:
        try:
            self._markers.fail(claim, reason, self._name)
        except DiskError as error:
            # The store is on the disk that is full. Who asks finds that by itself.
            log.warning("%s", error)

    @contextmanager
    def _heart(self, claim: Claim) -> Iterator[Callable[[], None]]:
        """Beats in the background; yields what raises LostClaim once the claim is not ours any more."""
        assert isinstance(claim.marker, WorkMarker)
        work, lost, stop = claim.marker.work, list[LostClaim](), threading.Event()

        def beat() -> None:
            last = time.monotonic()
            while not stop.wait(self._beat_seconds):
                try:
                    self._markers.beat(claim, self._name, "working")
                    last = time.monotonic()
                    self._executor.send_progress(work, claim.attempt)
                except LostClaim as error:
                    lost.append(error)
                    return
                except (ServiceError, DiskError, OSError) as error:
                    log.warning("no heartbeat: %s", error)
                    if time.monotonic() - last > self._markers.expire_seconds:
                        lost.append(LostClaim(f"{claim.file}: the store did not answer for too long"))
                        return

        def watch() -> None:
            if lost:
                raise lost[0]

        thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield watch
            watch()
        finally:
            stop.set()
            thread.join()

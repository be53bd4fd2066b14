"""A cloud that is asked again while it says that it cannot now: too many calls, or a resource that is not ready.

Belongs here: how long, and what comes after. Does not: which answers mean that (`compute.py`).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from ec1.errors import DeferredError
from ec1.machines.cloud import Cloud, Instance, NotNowError

_LONGEST_PAUSE_SECONDS = 60.0

Answer = TypeVar("Answer")


class PatientCloud:
    """`Cloud` that asks again for `patience_seconds`, and then raises what the cloud said (NotNowError).

    A change that is asked for again is another request: the first one has ended.
    """

    def __init__(
        self,
        cloud: Cloud,
        *,
        patience_seconds: float,
        pause_seconds: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._cloud = cloud
        self._patience_seconds = patience_seconds
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._sleep = sleep
        self._until: float | None = None

    @contextlib.contextmanager
    def until(self, moment: float) -> Iterator[None]:
        """While the block runs, ask again until this moment, then raise DeferredError: what cannot be had tonight is
        not a failure of ours."""
        before, self._until = self._until, moment
        try:
            yield
        finally:
            self._until = before

    def get(self, zone: str, name: str) -> Instance | None:
        return self._asked(lambda: self._cloud.get(zone, name))

    def create(self, zone: str, name: str, template: str, lifetime_seconds: int) -> None:
        def create() -> None:
            # An answer that was lost may have been a success.
            if self._cloud.get(zone, name) is None:
                self._cloud.create(zone, name, template, lifetime_seconds)

        self._asked(create)

    def start(self, zone: str, name: str) -> None:
        self._asked(lambda: self._cloud.start(zone, name))

    def stop(self, zone: str, name: str) -> None:
        self._asked(lambda: self._cloud.stop(zone, name))

    def set_lifetime(self, zone: str, name: str, seconds: int) -> None:
        self._asked(lambda: self._cloud.set_lifetime(zone, name, seconds))

    def set_metadata(self, zone: str, name: str, changes: Mapping[str, str | None]) -> None:
        self._asked(lambda: self._cloud.set_metadata(zone, name, changes))

    def guest_attributes(self, zone: str, name: str, namespace: str) -> dict[str, str]:
        return self._asked(lambda: self._cloud.guest_attributes(zone, name, namespace))

    def _asked(self, call: Callable[[], Answer]) -> Answer:
        begin, pause = self._clock(), self._pause_seconds
        while True:
            try:
                return call()
            except NotNowError as error:
                until = begin + self._patience_seconds if self._until is None else self._until
                if self._clock() + pause > until:
                    if self._until is None:
                        raise
                    waited = self._clock() - begin
                    raise DeferredError(f"{error}; so for {waited:.0f} s: it is tried again on a later night") from None
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

"""Work that a worker on another machine carries out: the order and a marker go into the store, the result comes back.

To its caller it looks like a process on this machine: what it prints is in the log, what it reports through Pipes
reaches this run, and its output lies where the specification says, checked by digest. Who asks judges and publishes;
the worker does neither. If this process dies, the work goes on, and whoever asks for the same again gets its result.
"""

import contextlib
import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NoReturn

from pydantic import Field

from ec1.errors import BusyError, InputError, PermanentError, ServiceError
from ec1.launch import blobs, checkpoints
from ec1.launch.beside import meanwhile, quietly
from ec1.launch.launcher import DeviceWork, Launcher, Place
from ec1.launch.marker_formats import WorkMarker
from ec1.launch.markers import MarkerState, PendingMarkers
from ec1.launch.orders import LOG, MAX_BYTES, MESSAGES, PROGRESS, RESULTS, SESSION, WORK, Order, Result, order_of
from ec1.launch.process import tail_of
from ec1.launch.reporting import exported_session
from ec1.launch.untrusted import read_object
from ec1.settings import Settings
from ec1.storage.directory import DirectoryStore
from ec1.storage.store import NotFound, ObjectStore
from ec1.strict_yaml import validate

log = logging.getLogger(__name__)
_GONE = 3
"""A listing that meets a rename may miss a marker once; three times in a row it is gone."""


class WorkerLauncher:
    """`Launcher` through the markers of a store.

    `wait_seconds`: how long a marker may wait for a worker, before its first attempt and after each that died.
    `wake` is called with the marker's file while it waits, and may start a worker; `watch` at every look. What they
    raise ends the wait.
    `alone`: nobody else asks in this store, so what an earlier night left there is withdrawn.
    `keep`: a folder here for the checkpoints of a store that may be gone tomorrow, looked for every `keep_seconds`.
    """

    def __init__(
        self,
        markers: PendingMarkers,
        *,
        wait_seconds: float,
        follow_seconds: float = 5,
        keep_days: float = 14,
        wake: Callable[[str], None] = lambda file: None,
        watch: Callable[[], None] = lambda: None,
        alone: bool = False,
        keep: Path | None = None,
        keep_seconds: float = 60,
    ) -> None:
        self._markers = markers
        self._store: ObjectStore = markers.store
        self._wait_seconds = wait_seconds
        self._follow_seconds = follow_seconds
        self._keep = dt.timedelta(days=keep_days)
        self._wake = wake
        self._watch = watch
        self._alone = alone
        self._kept = None if keep is None else DirectoryStore(keep)
        self._keep_seconds = keep_seconds

    def run(self, work: DeviceWork, env: Mapping[str, str], log: Path) -> float | None:
        order = order_of(work)
        digest = order.digest
        session = exported_session(env)
        messages = None
        if session is not None:
            context, messages = session
            self._store.put_bytes(f"{PROGRESS}{digest}/{SESSION}", json.dumps(context).encode())
        else:
            self._store.delete(f"{PROGRESS}{digest}/{SESSION}")
        follower = _Follower(self._store, digest, log, messages)
        if (result := self._result(digest)) is None:
            with self._keeping(order):
                file = self._ask(work, order)
                try:
                    self._follow(work, file, follower)
                except BaseException as error:
                    # Who ends the run ends the work. Other errors may pass, and it goes on.
                    if isinstance(error, BusyError) or not isinstance(error, Exception):
                        self._markers.withdraw(file)
                    raise
            result = self._result(digest)
        if result is None:
            raise ServiceError(f"{work.what} is marked as completed, but its result is not in the store: start again")
        follower.look(_newest_attempt(self._store, digest))
        blobs.fetch_all(self._store, result.output, work.output, work.last, f"{RESULTS}{digest}/")
        self._clean_up(order)
        return result.card_seconds

    @contextlib.contextmanager
    def _keeping(self, order: Order) -> Iterator[None]:
        """Give the work's machine the checkpoint that is here, and bring those here that it keeps meanwhile."""
        if (here := self._kept) is None or order.checkpoints is None:
            yield
            return

        def copy(source: ObjectStore, target: ObjectStore) -> None:
            checkpoints.copy(source, target, order.digest, here.root)

        quietly(lambda: copy(here, self._store), checkpoints.WHAT)
        with meanwhile(lambda: copy(self._store, here), self._keep_seconds, checkpoints.WHAT):
            yield

    def _ask(self, work: DeviceWork, order: Order) -> str:
        sent = sum(blobs.send(self._store, path, tree) for path, tree in zip(work.inputs, order.inputs, strict=True))
        log.info("%s: sent %.1f of %.1f MiB", work.what, sent / 2**20, blobs.total(order.inputs) / 2**20)
        self._store.put_bytes(order.key, order.model_dump_json().encode())
        about = work.subject
        marker = WorkMarker(
            adapter=f"{about.role[:24]}-{about.tenant[:24]}-{order.digest[:12]}",
            tenant=about.tenant,
            role=about.role,
            triggered_at=dt.datetime.now(dt.UTC),
            what=work.what,
            device=work.device,
            work=order.digest,
        )
        file = self._markers.ask(marker, about.night)
        if self._alone:
            self._markers.withdraw_others(file)
        return file

    def _follow(self, work: DeviceWork, file: str, follower: "_Follower") -> None:
        """Wait for the end. Raises PermanentError if it failed, BusyError if no worker takes it."""
        alive, last, gone = time.monotonic(), MarkerState("waiting", 0, None), 0
        while True:
            self._watch()
            try:
                state = self._markers.state(file)
                if state.attempt:
                    follower.look(state.attempt)
            except ServiceError as error:
                # The work goes on without us; a store that stays away is a worker that does not answer.
                log.warning("%s", error)
                state = last
            gone = gone + 1 if state.name == "gone" else 0
            if state.name == "completed":
                return
            if state.name == "failed":
                self._failed(work, file, follower)
            if gone >= _GONE:
                raise ServiceError(f"{file} is gone from training-pending/: who removed it? Start again")
            if state.name == "claimed" and state.heartbeat != last.heartbeat:
                alive = time.monotonic()
            elif time.monotonic() - alive > self._wait_seconds:
                raise BusyError(
                    f"no worker took {file} within {self._wait_seconds:.0f} s: start `ec1 worker` where the "
                    f"{work.device} device is"
                )
            else:
                self._wake(file)
            last = state
            time.sleep(self._follow_seconds)

    def _failed(self, work: DeviceWork, file: str, follower: "_Follower") -> NoReturn:
        reason = self._markers.reason(file)
        where = f"the end of {follower.log}:\n{tail_of(follower.log)}"
        raise PermanentError(f"{work.what} failed on its worker: {reason}; {where}")

    def _result(self, digest: str) -> Result | None:
        what, key = f"result {digest[:12]}", f"{RESULTS}{digest}.json"
        try:
            return validate(Result, read_object(self._store, key, what, MAX_BYTES), what)
        except NotFound:
            return None
        except InputError as error:
            self._store.delete(key)
            raise ServiceError(f"{error}; it is removed: start again") from None

    def _clean_up(self, order: Order) -> None:
        """What was sent stays for the next order; what came back is here now."""
        digest = order.digest
        self._store.delete(f"{RESULTS}{digest}.json")
        self._store.delete(order.key)
        checkpoints.forget(self._store, digest)
        if self._kept is not None:
            checkpoints.forget(self._kept, digest)
            self._remove_old(self._kept)
        for prefix in (f"{RESULTS}{digest}/", f"{PROGRESS}{digest}/"):
            for item in list(self._store.list(prefix)):
                self._store.delete(item.key)
        # Also what a night left that never came back. While somebody works, it may be theirs.
        if self._markers.idle():
            self._remove_old(self._store)

    def _remove_old(self, store: ObjectStore) -> None:
        oldest = self._markers.now() - self._keep
        for item in list(store.list(WORK)):
            if item.updated < oldest:
                store.delete(item.key)


class _Follower:
    """Copies what attempts report and print into this machine's files, each line once."""

    def __init__(self, store: ObjectStore, digest: str, log: Path, messages: Path | None) -> None:
        self._store = store
        self._digest = digest
        self.log = log
        self._files = {LOG: log} if messages is None else {LOG: log, MESSAGES: messages}
        self._seen: dict[tuple[int, str], int] = {}

    def look(self, attempt: int) -> None:
        for name, file in self._files.items():
            try:
                data = self._store.get_bytes(f"{PROGRESS}{self._digest}/{attempt}/{name}")
            except NotFound:
                continue
            start, end = self._seen.get((attempt, name), 0), data.rfind(b"\n") + 1
            if end > start:
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("ab") as target:
                    target.write(data[start:end])
                self._seen[attempt, name] = end


def _newest_attempt(store: ObjectStore, digest: str) -> int:
    numbers = [item.key.split("/")[3] for item in store.list(f"{PROGRESS}{digest}/")]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


class WorkerLauncherSettings(Settings):
    """`kind: worker`: the night puts markers into the store, and `ec1 worker` on another machine does the work."""

    kind: Literal["worker"] = Field("worker", description="chooses this section")
    wait_seconds: float = Field(
        14400, gt=0, description="how long work may wait for a worker, and after one that died for the next"
    )
    follow_seconds: float = Field(5, gt=0, description="seconds between two looks at how far it is")

    def open(self, place: Place) -> Launcher:
        return WorkerLauncher(
            place.open_markers(place.open_store()),
            wait_seconds=self.wait_seconds,
            follow_seconds=self.follow_seconds,
            keep_days=place.keep_days,
        )

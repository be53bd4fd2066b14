"""A GPU machine while it runs for us: whether it is still there, its card, and the inference server on it.

Belongs here: heartbeat, what it reports, readiness, start and end of the server. Does not: start and stop of the
machine, and what it may cost (`machine.py`).
"""

import contextlib
import json
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import httpx

from ec1.errors import DeferredError, EC1Error, PermanentError, ServiceError
from ec1.gpu.cards import Card
from ec1.gpu.engine import Endpoint
from ec1.machines.cloud import RUNNING
from ec1.machines.ledger import Session
from ec1.machines.patient import PatientCloud
from ec1.machines.self_report import (
    ARMED,
    ENGINE,
    ENGINE_KEY,
    KEEP_UNTIL,
    NAMESPACE,
    NO_ENGINE,
    Report,
    read_report,
)
from ec1.machines.settings import MachineSettings

Progress = Callable[[str], None]
ENGINE_END_SECONDS = 120.0
_PROGRESS_SECONDS = 60.0
_SKEW_SECONDS = 30.0
_UNREPORTED = "the machine has not reported"


class Owner(Protocol):
    """What a running machine wants of who started it."""

    settings: MachineSettings
    min_free_gib: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]

    @property
    def compute(self) -> PatientCloud: ...


class Running:
    """A machine that runs for us."""

    def __init__(self, machine: Owner, session: Session) -> None:
        self._machine = machine
        self._session = session
        self._settings = machine.settings
        self._lost: str | None = None
        self._address: str | None = None
        self._kept = 0.0
        self._ready_by = machine.clock() + machine.settings.ready_timeout_seconds
        self._guard = threading.Lock()

    @property
    def address(self) -> str:
        """Its address inside its network."""
        if self._address is None:
            self.beat()
        if self._address is None:
            raise ServiceError(self._lost or "the machine has no address")
        return self._address

    @property
    def zone(self) -> str:
        return self._session.zone

    @property
    def name(self) -> str:
        """Its name with its zone's, as no other machine of the project has it."""
        return f"{self._settings.instance}.{self.zone}"

    @property
    def until(self) -> float:
        """When it stops at the latest, seconds since the epoch."""
        return self._session.until

    def lost(self) -> str | None:
        """Why it is gone, as far as was seen; None while it runs."""
        return self._lost

    def beat(self, *, at_once: bool = False) -> None:
        """Look whether it still runs, and tell it from time to time that it is used. Raises what the API raises."""
        with self._guard:
            machine, now = self._machine, self._machine.clock()
            found = machine.compute.get(self.zone, self._settings.instance)
            if found is None or found.status != RUNNING:
                status = found.status if found else "gone"
                self._lost = f"the machine {self._settings.instance} in {self.zone} is {status}: preempted, or stopped"
                return
            self._address = found.address
            if at_once or now - self._kept > self._settings.dead_man_seconds / 3:
                until = int(min(now + self._settings.dead_man_seconds, self.until))
                machine.compute.set_metadata(self.zone, self._settings.instance, {KEEP_UNTIL: str(until)})
                self._kept = now

    @contextlib.contextmanager
    def watch(self, seconds: float) -> Iterator[None]:
        """Beat in the background while the block runs, so many seconds apart (0: not at all), and once at its end."""
        done = threading.Event()

        def work() -> None:
            while not done.wait(seconds):
                # What the API does not answer now it may answer the next time; the dead man waits longer than that.
                with contextlib.suppress(EC1Error):
                    self.beat()

        thread = threading.Thread(target=work, name="machine", daemon=True) if seconds else None
        if thread:
            thread.start()
        try:
            yield
        finally:
            done.set()
            if thread:
                thread.join()
            with contextlib.suppress(EC1Error):
                self.beat(at_once=True)

    def report(self) -> Report | None:
        """What it last reported of itself since it was started."""
        attributes = self._machine.compute.guest_attributes(self.zone, self._settings.instance, NAMESPACE)
        found = read_report(attributes)
        began = self._session.running or self._session.asked
        return found if found is not None and found.at >= began - _SKEW_SECONDS else None

    def wait_for_card(self, progress: Progress) -> None:
        """Wait until it says that its card works, and that it ends by itself when nobody asks for it: before that no
        phase's clock counts. Raises PermanentError if it says otherwise."""
        for _ in self._waiting(_UNREPORTED, progress):
            report = self.report()
            if report is not None and report.cuda:
                if report.cuda != "ok":
                    raise PermanentError(f"the machine's GPU does not work: {report.cuda[:300]}")
                if report.dead_man != ARMED:
                    raise PermanentError(
                        f"the machine would not power itself off when nobody asks for it ({report.dead_man[:100]}), so "
                        "nothing is run there: give it the startup-script that deploy/gce/startup_script.py prints"
                    )
                return

    @contextlib.contextmanager
    def engine(self, arguments: Sequence[str], model: str, progress: Progress) -> Iterator[Endpoint]:
        """Run vLLM's server on it with these arguments until the block ends; `model` is the id that it serves.

        Raises DeferredError if it is not ready in time, ServiceError if it or the machine goes.
        """
        machine, number, key = self._machine, secrets.token_hex(8), secrets.token_urlsafe(32)
        wanted = json.dumps({"id": number, "arguments": list(arguments)}, separators=(",", ":"))
        begin = machine.clock()
        machine.compute.set_metadata(self.zone, self._settings.instance, {ENGINE: wanted, ENGINE_KEY: key})
        endpoint = Endpoint(f"http://{self.address}:{self._settings.engine_port}", model, self.lost, key)
        try:
            with httpx.Client(timeout=5.0, trust_env=False) as http, machine.compute.until(self._ready_by):
                for _ in self._waiting("its inference server is not ready", progress):
                    if _answers(endpoint, http):
                        break
                    report = self.report()
                    if report is not None and report.engine_id == number and report.engine.startswith("failed"):
                        raise ServiceError(f"the inference server on the machine {report.engine[:300]}")
            progress(f"the inference server is ready after {machine.clock() - begin:.0f} s")
            yield endpoint
        finally:
            self._end_engine(progress)

    def end_engine(self, progress: Progress) -> None:
        """End a server that a crashed night left there. Raises DeferredError if the card does not get free."""
        report = self.report()
        if report is not None and report.engine == NO_ENGINE and not report.engine_id:
            return
        self._end_engine(progress)
        if self._lost or self.free_memory() is None:
            raise DeferredError(self._lost or "the machine's card is not free: its inference server does not end")

    def _end_engine(self, progress: Progress) -> None:
        """End the server and wait until the card is free. If it cannot be reported to, `handover` stops the machine."""
        if self._lost:
            return
        with contextlib.suppress(EC1Error):
            changes = {ENGINE: None, ENGINE_KEY: None}
            self._machine.compute.set_metadata(self.zone, self._settings.instance, changes)
            if self.free_memory() is None:
                progress("the machine does not say that its inference server ended")

    def free_memory(self) -> Card | None:
        """Its card's memory once no server has it; None if that is not so after two minutes."""
        machine = self._machine
        deadline = machine.clock() + ENGINE_END_SECONDS
        while True:
            report = self.report()
            if report is not None and report.engine == NO_ENGINE and report.free_gib >= machine.min_free_gib:
                return Card(report.device, report.free_gib, report.total_gib)
            if machine.clock() >= deadline:
                return None
            self.beat()
            if self._lost:
                return None
            machine.sleep(min(self._settings.poll_seconds, 5.0))

    def _waiting(self, what: str, progress: Progress) -> Iterator[None]:
        """Turns of a wait, `poll_seconds` apart. Raises DeferredError when the time to get ready is over or the machine
        goes: one that cannot be had tonight is not a failure of ours."""
        machine = self._machine
        begin = reported = machine.clock()
        while True:
            yield
            now = machine.clock()
            if now >= self._ready_by:
                raise DeferredError(
                    f"{what} within machine.ready_timeout_seconds ({self._settings.ready_timeout_seconds:.0f} s); one "
                    "without the startup-script of docs/gce.md never does"
                    if what == _UNREPORTED
                    else f"{what} within machine.ready_timeout_seconds ({self._settings.ready_timeout_seconds:.0f} s)"
                )
            if now - reported >= _PROGRESS_SECONDS:
                reported = now
                progress(f"{what}, {now - begin:.0f} s")
            machine.sleep(self._settings.poll_seconds)
            self.beat()
            if self._lost:
                raise DeferredError(self._lost)


def _answers(endpoint: Endpoint, http: httpx.Client) -> bool:
    """Whether the server is up and serves our model with our key."""
    headers = {"Authorization": f"Bearer {endpoint.api_key}"}
    try:
        if http.get(f"{endpoint.base_url}/health").status_code != 200:
            return False
        answer = http.get(f"{endpoint.base_url}/v1/models", headers=headers)
        models = [each.get("id") for each in answer.json()["data"]] if answer.status_code == 200 else []
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return endpoint.model in models

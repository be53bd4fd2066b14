"""A GPU machine that is started when a phase needs it, kept while one does, and stopped after use.

Belongs here: start, zone fall-back, stop, and the bounds on cost and starts. Does not: the machine while it runs
(`running.py`), the calls (`compute.py`), the books (`ledger.py`), and what the machine does by itself (`deploy/gce/`).

Who uses the machine holds a shared lock on `folder/in-use.lock`, and a night that may need it again one on
`reserved.lock`. The kernel frees both when their holder dies; who stops the machine must get them alone. So it is
stopped by whoever comes by once nobody uses it: the end of a run, the next start, `ec1 doctor --reconcile`. If nobody
comes by, it powers itself off (`KEEP_UNTIL`), and if even that fails Google stops it after its lifetime.
"""

import contextlib
import datetime as dt
import fcntl
import threading
import time
from collections.abc import Callable, Iterator

from ec1.errors import BusyError, DeferredError, EC1Error, PermanentError, ServiceError, SkippedError
from ec1.gpu.cards import Card
from ec1.machines.cloud import RUNNING, STOPPED, Instance, QuotaError, StockOutError
from ec1.machines.installation import Installation
from ec1.machines.ledger import Ledger, Session
from ec1.machines.patient import PatientCloud
from ec1.machines.running import Progress, Running
from ec1.machines.self_report import ENGINE, ENGINE_KEY, KEEP_UNTIL, OWNER
from ec1.machines.settings import MachineSettings

LEAST_SECONDS = 1200.0
"""A start whose cost does not allow so long is not worth its boot."""
STOP_SECONDS = 120.0
"""What a stop may take, for which the day's cost leaves room."""


class Machine:
    """One machine of a deployment. `usd_per_hour` is its price while it runs, `min_free_gib` what a phase needs free on
    its card. `clock` gives seconds since the epoch; `beat_seconds` is how often a phase looks after the machine, by
    default as often as it is polled (0: only while it waits)."""

    def __init__(
        self,
        settings: MachineSettings,
        place: Installation,
        *,
        usd_per_hour: float,
        min_free_gib: float,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        beat_seconds: float | None = None,
    ) -> None:
        self.settings = settings
        self.place = place
        self.min_free_gib = min_free_gib
        self.ledger = Ledger(place.folder, usd_per_hour, place.zone)
        self.clock = clock
        self.sleep = sleep
        self._beat_seconds = settings.poll_seconds if beat_seconds is None else beat_seconds
        self._client: PatientCloud | None = None

    @property
    def compute(self) -> PatientCloud:
        """The client, made when it is first needed: a night with nothing to do asks Google nothing. It asks again for
        less than the dead man waits."""
        if self._client is None:
            self._client = PatientCloud(
                self.settings.open(self.sleep),
                patience_seconds=self.settings.dead_man_seconds / 3,
                pause_seconds=self.settings.poll_seconds,
                clock=self.clock,
                sleep=self.sleep,
            )
        return self._client

    @contextlib.contextmanager
    def up(self, phase: str, night: str, *, keep: bool, progress: Progress) -> Iterator[Running]:
        """The machine, started if need be and with a card that works, until the block ends. With `keep` it is then left
        running for the next phase (whoever ends the night stops it); otherwise it is stopped, however the block ended.

        Raises SkippedError while the kill switch is there; DeferredError if no zone has a machine now, it does not get
        ready in time, or the day's cost or starts are used up; BusyError if another installation uses it;
        PermanentError for rights, quota, a card that does not work, or a machine that would not end by itself;
        ServiceError if Google does not answer.
        """
        asked_until = self.clock() + self.settings.ready_timeout_seconds
        try:
            with self._in_use():
                with self._one_at_a_time(), self.compute.until(asked_until):
                    running = self._started(night, progress)
                with running.watch(self._beat_seconds):
                    with self.compute.until(asked_until):
                        running.wait_for_card(progress)
                    ready = self.clock()
                    try:
                        yield running
                    finally:
                        self._count(phase, self.clock() - ready)
        except BaseException as error:
            # What is wrong with it may be gone after a boot, and a broken one costs as much as a sound one.
            if not keep or isinstance(error, ServiceError | PermanentError | DeferredError):
                with contextlib.suppress(EC1Error):
                    self.stop_unused(progress, reserved=False)
            raise
        if not keep:
            with contextlib.suppress(ServiceError):
                # What was done counts; the end of the run tries again, and then the machine's dead man.
                self.stop_unused(progress, reserved=False)

    def stop_unused(self, progress: Progress = lambda message: None, *, reserved: bool = True) -> bool:
        """Stop the machine if our books say that it runs, and nobody uses it or (unless `reserved` is False) has it
        reserved. Returns whether it is known not to run. Without an open session Google is not asked.

        Raises what the API raises; the books then still say that it runs, and the next caller tries again.
        """
        if self.ledger.open_session() is None:
            return True
        alone = fcntl.LOCK_EX | fcntl.LOCK_NB
        with contextlib.ExitStack() as locks:
            if reserved and not locks.enter_context(self._locked("reserved.lock", alone)):
                return False
            if not locks.enter_context(self._locked("in-use.lock", alone)):
                return False
            locks.enter_context(self._one_at_a_time())
            session = self.ledger.open_session()
            if session is not None:
                self._end(session, progress)
        return True

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        """While the block runs the machine stays up between phases, if one starts it. Starts nothing itself."""
        done = threading.Event()

        def work() -> None:
            while not done.wait(self.settings.dead_man_seconds / 3):
                with contextlib.suppress(EC1Error):
                    if session := self.ledger.open_session():
                        Running(self, session).beat(at_once=True)

        thread = threading.Thread(target=work, name="machine", daemon=True)
        with self._locked("reserved.lock", fcntl.LOCK_SH):
            thread.start()
            try:
                yield
            finally:
                done.set()
                thread.join()

    def handover(self, progress: Progress) -> Card:
        """Make sure that no inference server has the card: it says so itself, or it is stopped. Returns its memory.

        Raises what the API raises.
        """
        session = self.ledger.open_session()
        if session is not None:
            running = Running(self, session)
            memory = running.free_memory()
            if memory is not None:
                return memory
            progress("the machine does not say that its card is free: it is stopped, which frees it")
            self.stop_unused(progress, reserved=False)
            if self.ledger.open_session() is not None:
                raise BusyError("the machine's card is not free, and another process still uses the machine")
        return Card(f"{self.settings.instance}, stopped", 0.0, 0.0)

    def seconds_left(self) -> float | None:
        """How long the machine that runs now may still run; None if none does."""
        session = self.ledger.open_session()
        return None if session is None else max(0.0, session.until - self.clock())

    def seconds_to_have(self) -> float:
        """How long it may still run, or could if it were started now."""
        left = self.seconds_left()
        if left is not None:
            return left
        return max(0.0, min(self.settings.max_lifetime_seconds, self._affordable(self.clock())))

    def why_not(self) -> EC1Error | None:
        """Why the machine may not be started now, as far as our own books say."""
        if self.place.off.exists():
            reason = self.place.off.read_text(encoding="utf-8", errors="replace").strip()[:200]
            return SkippedError(
                f"{self.place.off} is there, so no machine is started{f' ({reason})' if reason else ''}: remove it to "
                "go on"
            )
        now = self.clock()
        if (asks := self.ledger.asks_of_day(now)) >= self.settings.daily_starts:
            return DeferredError(
                f"the machine was asked for {asks} times today, and machine.daily_starts allows "
                f"{self.settings.daily_starts}"
            )
        if self._affordable(now) < LEAST_SECONDS:
            return DeferredError(
                f"the machine cost {self.ledger.cost_of_day(now):.2f} USD today, and machine.daily_cost "
                f"({self.settings.daily_cost:g}) leaves less than {LEAST_SECONDS:.0f} s"
            )
        return None

    def _affordable(self, now: float) -> float:
        """Seconds that today's cost still allows."""
        left = self.settings.daily_cost - self.ledger.cost_of_day(now)
        return left / self.ledger.usd_per_hour * 3600 - STOP_SECONDS

    def _started(self, night: str, progress: Progress) -> Running:
        if self.place.off.exists() and (refusal := self.why_not()):
            raise refusal
        session = self.ledger.open_session()
        if session is not None:
            found = self.compute.get(session.zone, self.settings.instance)
            if found is not None and found.status == RUNNING and self.clock() + LEAST_SECONDS / 2 < session.until:
                running = Running(self, session)
                running.beat(at_once=True)
                return running
            self._end(session, progress)
        if refusal := self.why_not():
            raise refusal
        return self._start_somewhere(night, progress)

    def _start_somewhere(self, night: str, progress: Progress) -> Running:
        """Try the zones in their order."""
        self._asked(night)
        refused: list[str] = []
        quota: QuotaError | None = None
        for zone in self.settings.zones:
            try:
                running = self._start_in(zone, night, progress)
            except StockOutError as error:
                refused.append(str(error))
                progress(f"no machine in {zone}: {error}")
            except QuotaError as error:
                quota = error
                progress(f"no quota in {zone}: {error}")
            else:
                if running is not None:
                    self._asked_came_to(f"started in {zone}")
                    return running
        if refused:
            self._asked_came_to("stock-out")
            raise StockOutError(f"no zone has a machine now ({'; '.join(refused)}): it is tried again on a later night")
        self._asked_came_to("quota" if quota else "absent")
        if quota is not None:
            raise quota
        raise PermanentError(
            f"there is no instance {self.settings.instance} in {', '.join(self.settings.zones)}: make one "
            "(docs/gce.md), or name machine.template"
        )

    def _start_in(self, zone: str, night: str, progress: Progress) -> Running | None:
        """Start in one zone; None if the zone has none and there is no template."""
        name, now = self.settings.instance, self.clock()
        found = self._settled(zone, name)
        if found is None and self.settings.template is None:
            return None
        if found is not None and found.metadata.get(OWNER, self.place.owner) != self.place.owner:
            until = _seconds(found.metadata.get(KEEP_UNTIL), name, zone)
            if found.status == RUNNING and until > now:
                raise BusyError(f"{name} in {zone} is used by {found.metadata[OWNER]}: name another instance")
        lifetime = int(min(self.settings.max_lifetime_seconds, self._affordable(now)))
        before = found.started if found is not None else None
        session = Session(zone=zone, night=night, asked=now, before=before, until=now + lifetime)
        with self.ledger.change() as book:
            book.sessions.append(session)
        progress(f"starting {name} in {zone}, at most for {lifetime / 3600:.1f} h")
        try:
            if found is None:
                assert self.settings.template is not None
                self.compute.create(zone, name, self.settings.template, lifetime)
                self._claim(zone)
            elif found.status == RUNNING:
                self._claim(zone)
            else:
                if found.lifetime_seconds != lifetime:
                    self.compute.set_lifetime(zone, name, lifetime)
                self._claim(zone)
                self.compute.start(zone, name)
            self._wait_until_running(session, lifetime)
        except (StockOutError, QuotaError):
            self._end(session, progress)
            raise
        return Running(self, session)

    def _settled(self, zone: str, name: str) -> Instance | None:
        """The instance once it is neither stopping nor suspended. Raises StockOutError if it does not get there."""
        waited = 0.0
        while True:
            found = self.compute.get(zone, name)
            if found is None or found.status in (RUNNING, STOPPED, "PROVISIONING", "STAGING"):
                return found
            if found.status in ("SUSPENDED", "SUSPENDING"):
                raise PermanentError(f"{name} in {zone} is suspended: resume or stop it")
            if waited >= 300:
                raise StockOutError(f"{zone}: {name} has been {found.status} for {waited:.0f} s")
            self.sleep(self.settings.poll_seconds)
            waited += self.settings.poll_seconds

    def _claim(self, zone: str) -> None:
        """Write on the machine that it is ours, that no server is to run, and until when it stays up unasked."""
        changes = {
            OWNER: self.place.owner,
            KEEP_UNTIL: str(int(self.clock() + self.settings.dead_man_seconds)),
            ENGINE: None,
            ENGINE_KEY: None,
            "enable-guest-attributes": "TRUE",
        }
        self.compute.set_metadata(zone, self.settings.instance, changes)

    def _wait_until_running(self, session: Session, lifetime: float) -> None:
        while True:
            found = self.compute.get(session.zone, self.settings.instance)
            if found is not None and found.status == RUNNING and found.address:
                break
            if found is None or found.status in ("STOPPING", STOPPED):
                raise StockOutError(f"{session.zone}: the machine was taken away while it booted")
            if self.clock() - session.asked > self.settings.ready_timeout_seconds:
                raise DeferredError(f"{session.zone}: the machine is {found.status} for too long")
            self.sleep(self.settings.poll_seconds)
        session.running = _began(session, found) or self.clock()
        session.until = session.running + lifetime
        self._replace(session)

    def _end(self, session: Session, progress: Progress) -> None:
        """End a session: stop the machine if it runs, and close the books with its own times."""
        name = self.settings.instance
        found = self.compute.get(session.zone, name)
        end = session.end or "lost"
        if found is not None and found.status not in (STOPPED, "STOPPING"):
            self.compute.stop(session.zone, name)
            found, end = self.compute.get(session.zone, name), "stopped"
        now = self.clock()
        session.running = session.running or (_began(session, found) if found is not None else None)
        if session.running is None:
            session.ended, session.end = now, "never began"
        else:
            stopped = found.stopped if found is not None else None
            # One that is gone, or has only begun to stop, has no time of this stop yet.
            if stopped is None or stopped < session.running:
                stopped = max(session.running, min(now, session.until))
            session.ended = stopped
            session.end = end
            minutes = (session.ended - session.running) / 60
            progress(f"{name} in {session.zone} is stopped; it ran for {minutes:.0f} min ({end})")
        self._replace(session)

    def _replace(self, session: Session) -> None:
        with self.ledger.change() as book:
            book.sessions = [
                session if (each.asked, each.zone) == (session.asked, session.zone) else each for each in book.sessions
            ]

    def _count(self, phase: str, seconds: float) -> None:
        with self.ledger.change() as book:
            for each in book.sessions:
                if each.ended is None:
                    each.phases[phase] = round(each.phases.get(phase, 0.0) + seconds, 1)

    def _asked(self, night: str) -> None:
        from ec1.machines.ledger import Ask

        with self.ledger.change() as book:
            book.asks.append(Ask(at=self.clock(), night=night))

    def _asked_came_to(self, outcome: str) -> None:
        with self.ledger.change() as book:
            book.asks[-1].outcome = outcome

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[None]:
        """Hold the lock of those who use the machine. Any number may."""
        with self._locked("in-use.lock", fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Only one process starts or stops the machine at a time."""
        with self._locked("change.lock", fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _locked(self, name: str, how: int) -> Iterator[bool]:
        """Hold a lock file; yields whether it was got."""
        self.place.folder.mkdir(parents=True, exist_ok=True)
        with (self.place.folder / name).open("w") as stream:
            try:
                fcntl.flock(stream, how)
            except BlockingIOError:
                yield False
            else:
                yield True


def _seconds(text: str | None, name: str, zone: str) -> float:
    """A time that stands in an instance's metadata. Raises PermanentError for what is not a time."""
    try:
        return float(text or 0)
    except ValueError:
        raise PermanentError(
            f"the metadata key {KEEP_UNTIL} of {name} in {zone} is {text!r:.60}, not seconds since the epoch: remove it"
        ) from None


def _began(session: Session, found: Instance) -> float | None:
    """When the machine began to run in this session, by its own record."""
    return None if found.started == session.before else found.started


def when(seconds: float | None) -> str:
    """A time for people, UTC."""
    return "" if seconds is None else f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M} UTC"

"""The GPU lease: an operating-system lock that one phase holds while any of its processes may use the card.

The lock is `flock`, which the kernel frees when its holder dies, so a crashed holder never blocks the next night, and
a live one cannot be robbed. What a crashed holder left running is found by a mark in its environment and killed by the
next holder, before it is granted anything. Processes that use the card are started through the grant only.

On a machine without a GPU the same lease guards the slot for a model on the CPU. All homes that share a card share one
lock file (`Deployment.gpu_locks`), and so does what a crashed holder left, whichever home it worked for. Each card of
a machine has its own.

Serving (`ec1/serving`) is the one phase that gives way: while any other phase waits, it holds a shared lock on a second
file, `<lock>.waiting`, which the kernel frees when the waiter dies. So the holder can ask whether it is `wanted`, and a
waiter that was killed wants nothing any more.
"""

import contextlib
import datetime as dt
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from ec1.errors import BusyError, InputError, ServiceError
from ec1.gpu.cards import Card, CardName, index_of, read_card
from ec1.launch.process import SupervisedProcess

MARK = "EC1_GPU_LEASE"
VISIBLE = "CUDA_VISIBLE_DEVICES"
_SETTLE_SECONDS = 30.0
HOLDER_MARK = "EC1_GPU_HOLDER"
"""Beside it: the holder that started the process, by process id and start."""
Phase = Literal["inference", "handover", "training", "evaluation", "serving", "forgetting"]


@dataclass(frozen=True)
class Holder:
    """Who holds the lease, as written in the lock file. `night` is empty for serving."""

    phase: Phase
    night: str
    holder: str
    pid: int
    since: str

    def __str__(self) -> str:
        night = f" of night {self.night}" if self.night else ""
        return f"{self.holder} ({self.phase}{night}, process {self.pid}, since {self.since})"


@dataclass
class Grant:
    """Proof that the lease is held; the only way to start a process that uses the card."""

    locks: tuple[Path, ...]
    cards: tuple[Card, ...]
    """As they were measured when this was granted."""
    swept: tuple[int, ...]
    """Processes of a crashed holder that had to be killed before this grant."""
    pins: bool = True
    """Whether what is started sees these cards only."""
    _processes: list[SupervisedProcess] = field(default_factory=list)
    _open: bool = True

    @property
    def lock(self) -> Path:
        """The lock that names the holder."""
        return self.locks[0]

    @property
    def memory(self) -> Card:
        """The card that has the least memory free."""
        return min(self.cards, key=_free)

    def start(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        grace_seconds: float = 10,
        cwd: Path | None = None,
    ) -> SupervisedProcess:
        """Start a command under this lease, which sees its cards only. It is stopped at the latest when the lease is
        given back."""
        if not self._open:
            raise RuntimeError("this grant was given back already")
        # Without SPT_NOENV, setproctitle (used by vLLM's engine) overwrites the environment that carries the mark.
        marked = {**env, MARK: _mark(self.locks), HOLDER_MARK: _identity(psutil.Process()), "SPT_NOENV": "1"}
        if self.pins and all(card.uuid for card in self.cards):
            # By UUID: CUDA may count cards in another order than NVML, which measured them.
            marked[VISIBLE] = ",".join(card.uuid for card in self.cards)
        process = SupervisedProcess(command, env=marked, log=log, grace_seconds=grace_seconds, cwd=cwd)
        self._processes.append(process)
        return process

    def _give_back(self) -> None:
        self._open = False
        for process in self._processes:
            process.stop()
        for lock in self.locks:
            _sweep(lock)


class GpuLease:
    """The lease on one card (or CPU slot), or on several. `lock` is one file for all that share the card."""

    def __init__(
        self,
        lock: Path,
        *,
        device: Literal["cuda", "cpu"],
        min_free_gib: float,
        cards: Sequence[CardName] = (0,),
        more_locks: Sequence[Path] = (),
        pins: bool = True,
    ) -> None:
        """`cards` are those that are leased, `more_locks` the locks of all but the first, where each has its own,
        always in one order: two leases must not wait for each other. `pins`: what is started sees these cards only."""
        # The folder only: where all may write, a link in the file's place was put there by somebody else.
        self.locks = tuple(each.parent.resolve() / each.name for each in (lock, *more_locks))
        self.lock = self.locks[0]
        self.device = device
        self.min_free_gib = min_free_gib
        self.cards = tuple(cards)
        self._pins = pins

    def holder(self) -> Holder | None:
        """Who holds the lease now, or None if it is free."""
        if not self.lock.exists():
            return None
        with self.lock.open("r") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _read_holder(stream.read())
        return None

    def why_busy(self) -> str | None:
        """Why work would have to wait for the card now, in words; None if it would not. Raises InputError for a card
        that can never be had."""
        for lock in self.locks:
            one = GpuLease(lock, device=self.device, min_free_gib=0)
            if (holder := one.held_by()) is not None:
                return f"{lock.name} is held by {holder}"
        try:
            card = min((read_card(self.device, each) for each in self.cards), key=_free)
        except ServiceError as error:
            return str(error)
        return None if card.free_gib >= self.min_free_gib else self._too_full(card)

    def held_by(self) -> str | None:
        """Who has the card, or any of the cards, in words; also a live holder whose lock file was deleted. None if
        nobody has."""
        alone = [GpuLease(lock, device=self.device, min_free_gib=0) for lock in self.locks]
        found = (str(each.holder() or "") or _living_holders(each.lock) for each in alone)
        return "; ".join(dict.fromkeys(filter(None, found))) or None

    def wanted(self) -> bool:
        """Whether a phase of a night waits for the lease now."""
        try:
            descriptor = os.open(_waiting(self.lock), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def _in_the_queue(self, phase: Phase) -> Iterator[None]:
        """Show the holder that somebody waits. Serving does not: it takes the lease only when nobody else wants it."""
        if phase == "serving":
            yield
            return
        with contextlib.ExitStack() as stack:
            for lock in self.locks:
                # Shared: any number may wait. `wanted` holds it alone for an instant, so this one waits for that
                # instant.
                fcntl.flock(stack.enter_context(_opened(_waiting(lock))), fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def hold(
        self,
        phase: Phase,
        *,
        night: str,
        holder: str,
        wait_seconds: float,
        progress: Callable[[str], None] = lambda message: None,
    ) -> Iterator[Grant]:
        """Queue for the lease, make sure that the card is free, and hold it until the block ends.

        Raises BusyError if another holder keeps it longer than `wait_seconds`, or if less than `min_free_gib` of
        memory is free for so long although the lease is free (something outside EC1 uses the card); InputError and
        ServiceError as `read_card`.
        """
        deadline = time.monotonic() + wait_seconds
        with contextlib.ExitStack() as stack:
            descriptors = []
            with self._in_the_queue(phase):
                for lock in self.locks:
                    descriptors.append(stack.enter_context(_opened(lock)))
                    self._wait(lock, descriptors[-1], deadline, wait_seconds, progress)
            me = Holder(phase, night, holder, os.getpid(), dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
            for descriptor in descriptors:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(asdict(me)).encode(), 0)
            swept = tuple(sorted({process for lock in self.locks for process in _sweep(lock)}))
            if swept:
                progress(f"killed what a crashed holder left behind: processes {', '.join(map(str, swept))}")
            # A card that somebody else uses is waited for as one that is leased. On a CPU nobody gives memory back.
            settle = max(_SETTLE_SECONDS, deadline - time.monotonic() if self.device == "cuda" else 0.0)
            grant = Grant(self.locks, self._enough_memory(settle, progress), swept, self._pins)
            try:
                yield grant
            finally:
                grant._give_back()

    def _wait(
        self, lock: Path, descriptor: int, deadline: float, wait_seconds: float, progress: Callable[[str], None]
    ) -> None:
        told = 0.0
        living = ""
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Whoever deletes the lock file of a live holder gives the next one a lock that guards nothing.
                if not (living := _living_holders(lock)):
                    return
                fcntl.flock(descriptor, fcntl.LOCK_UN)
                raise BlockingIOError
            except BlockingIOError:
                now = time.monotonic()
                other: object = _read_holder(os.pread(descriptor, 4096, 0).decode()) or living
                if now >= deadline:
                    raise BusyError(
                        f"the GPU lease {lock} is held by {other or 'a process'}; waited {wait_seconds:.0f} s: "
                        "let it finish or stop its run"
                    ) from None
                if now - told >= 30:
                    told = now
                    progress(f"waiting for the GPU, held by {other or 'a process'}")
                time.sleep(min(0.2, max(0.0, deadline - now)))

    def _enough_memory(
        self, settle_seconds: float = _SETTLE_SECONDS, progress: Callable[[str], None] = lambda message: None
    ) -> tuple[Card, ...]:
        """The cards, each with enough memory. A killed process releases its own shortly after it is gone, and one of
        somebody else ends some day, so measure more than once."""
        begin = told = time.monotonic()
        while True:
            cards = tuple(read_card(self.device, each) for each in self.cards)
            least = min(cards, key=_free)
            if least.free_gib >= self.min_free_gib:
                return cards
            now = time.monotonic()
            if now >= begin + settle_seconds or least.total_gib < self.min_free_gib:
                raise BusyError(self._too_full(least))
            if now - told >= 30:
                told = now
                progress(f"waiting for memory: {self._too_full(least)}")
            time.sleep(0.5)

    def _too_full(self, card: Card) -> str:
        users = f" (used by processes {', '.join(map(str, card.users))})" if card.users else ""
        return (
            f"{card} has {card.free_gib:.1f} GiB free of {card.total_gib:.1f}, "
            f"gpu.min_free_gib asks for {self.min_free_gib:g}{users}: free the card or lower the bound"
        )


def marked_processes(lock: Path) -> list[psutil.Process]:
    """All live processes that were started under the lease of this lock file, by any holder."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                str(lock) in process.environ().get(MARK, "").split(os.pathsep)
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def _mark(locks: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, locks))


def _waiting(lock: Path) -> Path:
    return lock.with_name(lock.name + ".waiting")


@contextlib.contextmanager
def _opened(lock: Path) -> Iterator[int]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _open(lock)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(lock: Path) -> int:
    """Open a lock file, made if need be. In a folder that all users share (sticky, such as /run/lock) it is everybody's
    to lock: otherwise the user who came first would keep the card from the others. Raises InputError.
    """
    # Without O_CREAT where it is there: the kernel refuses that for a file of somebody else (fs.protected_regular).
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            descriptor = os.open(lock, flags)
        except FileNotFoundError:
            try:
                descriptor = os.open(lock, flags | os.O_CREAT | os.O_EXCL, 0o644)
                if lock.parent.stat().st_mode & stat.S_ISVTX:
                    os.fchmod(descriptor, 0o666)
            except FileExistsError:
                descriptor = os.open(lock, flags)
    except (PermissionError, IsADirectoryError) as error:
        raise InputError(f"the lock {lock} cannot be used ({error.strerror}): remove it, or set gpu.lock") from None
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise InputError(f"the lock {lock} is a link, and nobody's to follow: remove it, or set gpu.lock") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(f"the lock {lock} is not a plain file: remove it, or set gpu.lock")
    return descriptor


def _free(card: Card) -> float:
    return card.free_gib


def _identity(process: psutil.Process) -> str:
    return f"{process.pid}:{process.create_time()}"


def _living_holders(lock: Path) -> str:
    """The live holders, other than this process, of processes that run under this lock file; empty if none."""
    found = set()
    for process in marked_processes(lock):
        with contextlib.suppress(psutil.Error):
            holder = process.environ().get(HOLDER_MARK, "")
            number, _, _ = holder.partition(":")
            if not number or int(number) == os.getpid():
                continue
            owner = psutil.Process(int(number))
            if _identity(owner) == holder and owner.status() != psutil.STATUS_ZOMBIE:
                found.add(number)
    return f"process {', '.join(sorted(found))}, whose lock file was deleted" if found else ""


def _sweep(lock: Path) -> tuple[int, ...]:
    """Kill every process marked with this lock and wait until the last is gone. Call only while holding the lock."""
    swept: set[int] = set()
    while left := [process for process in marked_processes(lock) if process.pid != os.getpid()]:
        for process in left:
            swept.add(process.pid)
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1)
    return tuple(sorted(swept))


def _read_holder(text: str) -> Holder | None:
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):
        return None


def card_lock(folder: Path, card: CardName) -> Path:
    """The lock of a card in the folder of this machine's locks: the same file, by whichever name it is asked for."""
    index = index_of(card)
    return folder / (f"ec1-gpu-{index}.lock" if index else "ec1-gpu.lock")


def shared_lock_folder() -> Path:
    """Where locks of all users can be: the same answer for each of them, whoever asks."""
    folder = Path("/run/lock")
    everybody = stat.S_ISVTX | stat.S_IWOTH
    return folder if folder.is_dir() and folder.stat().st_mode & everybody == everybody else Path("/tmp")

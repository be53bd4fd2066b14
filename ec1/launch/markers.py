"""Training-pending markers (docs/contracts.md): a small file that asks for work, claimed by one worker.

`<name>-<YYYY-MM-DD>.json` waits, `….claimed` is being worked on, `….completed` is done, `….failed` holds the reason,
`….malformed` was not a marker, and `….malformed.reason` says why. A claim is one rename, so workers in other languages
can take part. What a format that is not known here asks for is left alone.

Ours also number their attempts: `.attempts/<file>/<n>` is written before the claim, and only if it is not there, so it
has one winner; its worker writes it again as its heartbeat. When an attempt has been silent for too long, whoever
writes the next number owns the marker, and the silent worker, should it wake up, finds that and stops. All times are
the store's, so clocks may differ.
"""

import datetime as dt
import logging
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from ec1.errors import BusyError, InputError, ServiceError
from ec1.files import canonical_json
from ec1.launch.marker_formats import MAX_BYTES, AnyMarker, UnknownFormat, WorkMarker, read_marker
from ec1.launch.untrusted import json_object
from ec1.nights import Night
from ec1.storage.store import AlreadyExists, NotFound, ObjectInfo, ObjectStore

log = logging.getLogger(__name__)

PREFIX = "training-pending/"
CLAIMED, COMPLETED, FAILED, MALFORMED = ".claimed", ".completed", ".failed", ".malformed"
REASON = MALFORMED + ".reason"
_ATTEMPTS, _CLOCKS, _STOP, _RELEASED = f"{PREFIX}.attempts/", f"{PREFIX}.clocks/", "stop", ".released"
_UNBEGUN = ".unbegun"

_FILE = re.compile(r"([a-z0-9-]{1,64})-(\d{4}-\d{2}-\d{2})\.json")
_NUMBER = re.compile(r"[0-9]{1,6}")
_HALF_WRITTEN = dt.timedelta(minutes=2)
_FORGOTTEN = dt.timedelta(hours=1)


@dataclass(frozen=True)
class Claim:
    """A marker that is ours: `file` is its name without the `.claimed`; `attempt` counts who worked on it."""

    file: str
    night: str
    marker: AnyMarker
    since: dt.datetime
    """When it was written, by the store's clock: that of who asks may be wrong."""
    attempt: int = 0


@dataclass(frozen=True)
class MarkerState:
    """How far a marker is, which attempt works on it, and that one's last heartbeat."""

    name: Literal["waiting", "claimed", "completed", "failed", "gone"]
    attempt: int
    heartbeat: dt.datetime | None

    @property
    def goes_on(self) -> bool:
        """Whether somebody works on it, or may still take it."""
        return self.name in ("waiting", "claimed")


class LostClaim(BusyError):
    """The claim is no longer ours: another worker has taken it, or who asked has withdrawn it."""


class Withdrawn(LostClaim):
    """Nobody needs the work any more."""


@dataclass
class _Seen:
    """What a listing shows of one marker."""

    states: dict[str, ObjectInfo] = field(default_factory=dict)
    attempts: dict[int, ObjectInfo] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    unbegun: set[int] = field(default_factory=set)
    """Of those, the attempts that began nothing, as the card was taken."""
    stopped: bool = False
    malformed: bool = False

    @property
    def settled(self) -> bool:
        return COMPLETED in self.states or FAILED in self.states

    @property
    def newest(self) -> int:
        return max(self.attempts, default=0)


class PendingMarkers:
    """The markers in a store, under `training-pending/`."""

    def __init__(self, store: ObjectStore, *, expire_seconds: float = 180, max_attempts: int = 3) -> None:
        self.store = store
        self._expire = dt.timedelta(seconds=expire_seconds)
        self._max_attempts = max_attempts
        self.unknown: dict[str, str] = {}
        """Markers whose format is not known here, by their files, with the words that say so; as far as seen."""
        self._said: set[str] = set()
        self._known: dict[str, tuple[ObjectInfo, AnyMarker]] = {}
        """Markers that were read before: a listing says whether one is still the same."""

    @property
    def expire_seconds(self) -> float:
        """How long a claim lives without a heartbeat."""
        return self._expire.total_seconds()

    def write(self, marker: AnyMarker, night: str) -> bool:
        """Ask for work; False if there is a marker of that name for that night already, in any state.

        Raises InputError for something that is not a night.
        """
        file = f"{marker.adapter}-{Night.of(night).date}.json"
        if self._look(file).states:
            return False
        try:
            body = canonical_json(marker.model_dump(mode="json")) + b"\n"
            self.store.put_bytes(PREFIX + file, body, if_absent=True)
        except AlreadyExists:
            return False
        return True

    def pending(self) -> list[Claim]:
        """What waits to be claimed, the oldest first. What is not a marker is set aside."""
        seen, now = self._look_at_all(), cache(self.now)
        return _sorted(
            claim
            for file, each in seen.items()
            if set(each.states) == {""} and not each.newest and (claim := self._read(file, "", each, now))
        )

    def claimed(self) -> list[Claim]:
        """What is being worked on, or was when its worker died."""
        seen, now = self._look_at_all(), cache(self.now)
        return _sorted(
            claim
            for file, each in seen.items()
            if CLAIMED in each.states and not each.settled and (claim := self._read(file, CLAIMED, each, now))
        )

    def claim(self, worker: str = "", accept: Callable[[Claim], bool] = lambda claim: True) -> Claim | None:
        """Claim the oldest free marker that `accept` takes, also one whose worker died; None if there is none.

        A marker whose workers died `max_attempts` times is given up: it becomes `.failed`.
        """
        seen, now = self._look_at_all(), cache(self.now)
        # The listing knows which is the oldest, so only as many are read as it takes.
        free = [
            (each.states[suffix].updated, file, suffix)
            for file, each in seen.items()
            if self._is_free(each, now)
            for suffix in ["" if "" in each.states else CLAIMED]
        ]
        for _, file, suffix in sorted(free):
            waiting = self._read(file, suffix, seen[file], now)
            if waiting is not None and accept(waiting):
                claim = self._take(waiting, seen[file], worker)
                if claim is not None:
                    return claim
        return None

    def beat(self, claim: Claim, worker: str, state: str) -> None:
        """Show that the claim's worker lives. Raises LostClaim if it is not ours any more."""
        self.check(claim)
        self.store.put_bytes(_attempt(claim.file, claim.attempt), _body(worker, state))

    def check(self, claim: Claim) -> None:
        """Raises LostClaim if the claim is not ours any more."""
        seen = self._look(claim.file)
        if seen.stopped:
            raise Withdrawn(f"{claim.file} was withdrawn by who asked for it")
        if seen.newest != claim.attempt or seen.settled:
            raise LostClaim(f"{claim.file} was taken by another worker (attempt {seen.newest})")

    def complete(self, claim: Claim) -> None:
        """Every step has succeeded. Raises NotFound if the claim is not held any more."""
        # A rename in a bucket that was cut off leaves both, and what waits would be claimed again.
        self.store.delete(PREFIX + claim.file)
        self.store.rename(PREFIX + claim.file + CLAIMED, PREFIX + claim.file + COMPLETED)
        self._forget_attempts(claim.file)

    def fail(self, claim: Claim, reason: str, worker: str = "") -> None:
        """It cannot succeed: `.failed` holds the marker and the reason."""
        said = {"reason": reason, "worker": worker, "at": _now().isoformat(timespec="seconds")}
        body = {**claim.marker.model_dump(mode="json"), "failed": said}
        self.store.put_bytes(PREFIX + claim.file + FAILED, canonical_json(body) + b"\n")
        self.store.delete(PREFIX + claim.file)
        self.store.delete(PREFIX + claim.file + CLAIMED)
        self._forget_attempts(claim.file)

    def release(self, claim: Claim, reason: str = "", *, counts: bool = True) -> None:
        """Give a claim up, to be taken again at once; not as one of the `max_attempts` unless it `counts`. Raises
        NotFound if the claim is not held any more."""
        if not claim.attempt:
            self.store.rename(PREFIX + claim.file + CLAIMED, PREFIX + claim.file)
            return
        suffix = _RELEASED if counts else _UNBEGUN
        self.store.put_bytes(_attempt(claim.file, claim.attempt) + suffix, _body("", reason))

    # What who asked needs.

    def ask(self, marker: WorkMarker, night: str) -> str:
        """Ask for a piece of work, also again after it failed. Returns the marker's file."""
        file = f"{marker.adapter}-{Night.of(night).date}.json"
        seen = self._look(file)
        if seen.settled or not seen.states:
            self.forget(file)
        self.store.delete(f"{_ATTEMPTS}{file}/{_STOP}")
        self.write(marker, night)
        return file

    def state(self, file: str) -> "MarkerState":
        """How far it is."""
        seen = self._look(file)
        beat = seen.attempts[seen.newest].updated if seen.newest else None
        if not seen.states:
            return MarkerState("failed" if seen.malformed else "gone", seen.newest, beat)
        if seen.settled:
            return MarkerState("completed" if COMPLETED in seen.states else "failed", seen.newest, beat)
        working = CLAIMED in seen.states and seen.newest not in seen.released
        return MarkerState("claimed" if working else "waiting", seen.newest, beat)

    def reason(self, file: str) -> str:
        """Why it failed."""
        try:
            said = json_object(self.store.get_bytes(PREFIX + file + FAILED), file).get("failed")
        except NotFound:
            return f"it was set aside: {self._told(PREFIX + file + REASON)}"
        except InputError as error:
            return str(error)
        return str(said.get("reason", "no reason is given")) if isinstance(said, dict) else "no reason is given"

    def idle(self) -> bool:
        """Whether nothing waits and nobody works."""
        return not any(each.states and not each.settled for each in self._look_at_all().values())

    def withdraw(self, file: str) -> None:
        """Nobody needs it any more: what waits is removed, and who works on it is told to stop."""
        self.store.put_bytes(f"{_ATTEMPTS}{file}/{_STOP}", b"")
        self.store.delete(PREFIX + file)

    def withdraw_others(self, file: str) -> None:
        """Withdraw whatever else waits or is worked on, for a store in which nobody else asks."""
        for other, seen in self._look_at_all().items():
            if other != file and seen.states and not seen.settled:
                self.withdraw(other)

    def forget(self, file: str) -> None:
        """Remove a settled marker, so that the same can be asked for again."""
        for suffix in (FAILED, COMPLETED, MALFORMED, REASON):
            self.store.delete(PREFIX + file + suffix)
        self._forget_attempts(file)

    def now(self) -> dt.datetime:
        """The store's time: of an object that is written now."""
        key = f"{_CLOCKS}{uuid.uuid4().hex}"
        self.store.put_bytes(key, b"")
        times = {item.key: item.updated for item in self.store.list(_CLOCKS)}
        self.store.delete(key)
        if key not in times:
            raise ServiceError(f"{key} was written and is not there: who removed it?")
        for other, updated in times.items():
            # Of somebody who died between the two.
            if updated < times[key] - _FORGOTTEN:
                self.store.delete(other)
        return times[key]

    def _is_free(self, seen: _Seen, now: Callable[[], dt.datetime]) -> bool:
        if seen.settled or not seen.states:
            return False
        if not seen.newest:
            # Claimed without an attempt: a worker of others, whose life we cannot judge.
            return CLAIMED not in seen.states
        if seen.newest in seen.released or seen.stopped:
            return True
        return now() - seen.attempts[seen.newest].updated > self._expire

    def _take(self, waiting: Claim, seen: _Seen, worker: str) -> Claim | None:
        number = seen.newest + 1
        claim = replace(waiting, attempt=number)
        try:
            self.store.put_bytes(_attempt(claim.file, number), _body(worker, "claimed"), if_absent=True)
        except AlreadyExists:
            log.info("%s was claimed by another worker", claim.file)
            return None
        now = self._look(claim.file)
        if now.settled or not now.states or now.newest != number:
            # It was settled since we looked, and what was left of its attempts with it.
            self.store.delete(_attempt(claim.file, number))
            return None
        if now.stopped:
            self.fail(claim, "withdrawn by who asked for it", worker)
            return None
        if number - len(seen.unbegun) > self._max_attempts:
            self.fail(
                claim,
                f"given up after {seen.newest - len(seen.unbegun)} attempts; {self._last_words(claim.file, seen)}",
                worker,
            )
            return None
        if CLAIMED not in now.states:
            try:
                self.store.rename(PREFIX + claim.file, PREFIX + claim.file + CLAIMED)
            except (NotFound, AlreadyExists):
                log.info("%s was claimed by another worker", claim.file)
                self.store.delete(_attempt(claim.file, number))
                return None
        return claim

    def _last_words(self, file: str, seen: _Seen) -> str:
        if seen.newest not in seen.released:
            return "its worker died each time: see its log"
        return self._told(_attempt(file, seen.newest) + _RELEASED)

    def _told(self, key: str) -> str:
        """What somebody wrote down there; empty if that cannot be read."""
        try:
            return str(json_object(self.store.get_bytes(key), key).get("state", ""))
        except (NotFound, InputError):
            return ""

    def _look(self, file: str) -> _Seen:
        seen = self._collected([*self.store.list(f"{PREFIX}{file}"), *self.store.list(f"{_ATTEMPTS}{file}/")])
        return seen.get(file, _Seen())

    def _look_at_all(self) -> dict[str, _Seen]:
        seen = self._collected(self.store.list(PREFIX))
        self._known = {file: known for file, known in self._known.items() if file in seen}
        return seen

    def _collected(self, items: Iterable[ObjectInfo]) -> dict[str, _Seen]:
        seen: dict[str, _Seen] = defaultdict(_Seen)
        for item in items:
            if item.key.startswith(_ATTEMPTS):
                file, _, name = item.key.removeprefix(_ATTEMPTS).partition("/")
                if name == _STOP:
                    seen[file].stopped = True
                elif _NUMBER.fullmatch(number := name.removesuffix(_RELEASED).removesuffix(_UNBEGUN)):
                    if number == name:
                        seen[file].attempts[int(number)] = item
                    else:
                        seen[file].released.add(int(number))
                    if name.endswith(_UNBEGUN):
                        seen[file].unbegun.add(int(number))
                continue
            name = item.key.removeprefix(PREFIX)
            if name.endswith(".json" + MALFORMED):
                seen[name.removesuffix(MALFORMED)].malformed = True
                continue
            for suffix in (CLAIMED, COMPLETED, FAILED, ""):
                if name.endswith(".json" + suffix):
                    seen[name.removesuffix(suffix) if suffix else name].states[suffix] = item
                    break
        return seen

    def _read(self, file: str, suffix: str, seen: _Seen, now: Callable[[], dt.datetime]) -> Claim | None:
        """The marker of a file, or None: it has gone, is for others, or is none and set aside."""
        key, info = PREFIX + file + suffix, seen.states[suffix]
        try:
            match = _FILE.fullmatch(file)
            if match is None:
                raise InputError(f"{file[:80]!r} is not the name of a marker")
            night = Night.of(match[2]).date
            if info.size > MAX_BYTES:
                raise InputError(f"{file} has {info.size} bytes, and a marker has at most {MAX_BYTES}")
            known = self._known.get(file)
            if known is None or known[0] != info:
                known = info, read_marker(self.store.get_bytes(key), file)
                self._known[file] = known
            return Claim(file, night, known[1], info.updated, seen.newest)
        except NotFound:
            return None
        except UnknownFormat as error:
            self.unknown[file] = str(error)
        except InputError as error:
            # A writer that does not rename may be at work on a young one; what others have claimed is theirs.
            if (not suffix or seen.newest) and info.updated < now() - _HALF_WRITTEN:
                self._set_aside(key, file, str(error))
        return None

    def _set_aside(self, key: str, file: str, reason: str) -> None:
        aside, why = PREFIX + file + MALFORMED, PREFIX + file + REASON
        try:
            self.store.put_bytes(why, _body("", reason))
            # One of that name that was set aside before makes room.
            self.store.delete(aside)
            self.store.rename(key, aside)
            self._forget_attempts(file)
            log.warning("%s is set aside as %s: %s", key, aside, reason)
        except (NotFound, AlreadyExists):
            log.info("%s was set aside by another worker", key)
        except InputError as error:
            # A name that no store takes: what lies there under it was not put there by one.
            if file not in self._said:
                self._said.add(file)
                log.warning("%r is not a marker and stays where it is: %s", key, error)

    def _forget_attempts(self, file: str) -> None:
        for item in list(self.store.list(f"{_ATTEMPTS}{file}/")):
            self.store.delete(item.key)


def _attempt(file: str, number: int) -> str:
    return f"{_ATTEMPTS}{file}/{number:04}"


def _body(worker: str, state: str) -> bytes:
    return canonical_json({"worker": worker, "state": state, "at": _now().isoformat(timespec="milliseconds")})


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _sorted(claims: Iterable[Claim]) -> list[Claim]:
    return sorted(claims, key=lambda claim: (claim.since, claim.marker.triggered_at, claim.file))

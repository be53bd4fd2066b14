"""Which version a request is answered by: names, the version in use, trials of two versions, withdrawals.

Belongs here: from the name in a request to `tenant/role@vN`, as the registry says now. Does not: whether the engine
really has that version (`backend.py`), and HTTP (`gateway.py`).

An engine keeps what it once loaded under a name, weights and prefix cache alike, so it is only ever asked for names
that carry a version; `tenant/role` becomes one for each request.
"""

import asyncio
import hashlib
import logging
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from ec1.adapters.decisions import IN_USE, ReleaseDecision
from ec1.adapters.registry import AdapterRegistry, vllm_name
from ec1.errors import EC1Error, InputError, PermanentError, ServiceError

log = logging.getLogger(__name__)

_NAME = re.compile(r"([a-z0-9-]{1,64})/([a-z0-9-]{1,64})(?:@v([1-9][0-9]{0,8}))?")

_MAX_REMEMBERED = 4096
_PATIENCE_SECONDS = 2.0

Key = TypeVar("Key")
Value = TypeVar("Value")


class RefusedError(EC1Error):
    """A request that is not answered. `status` is HTTP's."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True)
class ServedVersion:
    """One version of one role."""

    tenant: str
    role: str
    number: int

    @property
    def name(self) -> str:
        """`tenant/role@vN`, the only kind of name that an engine is asked for."""
        return vllm_name(self.tenant, self.role, self.number)


@dataclass(frozen=True)
class RoleState:
    """What answers a role's requests: the version in use (None: the base alone), and the trial, if one runs."""

    in_use: ServedVersion | None
    trial: ReleaseDecision | None


def parse_name(name: str) -> tuple[str, str, int | None] | None:
    """`tenant/role` or `tenant/role@vN` as (tenant, role, N); None for anything else."""
    match = _NAME.fullmatch(name)
    return None if match is None else (match[1], match[2], int(match[3]) if match[3] else None)


def arm_of(arms: Mapping[str, int], role: str, user: str) -> str:
    """The arm that a user gets, always the same one while the weights stay.

    Weighted rendezvous hashing: a changed weight or arm moves only as many users as it must.
    https://doi.org/10.1109/90.663936
    """

    def score(arm: str) -> float:
        digest = hashlib.sha256(f"{role}\0{arm}\0{user}".encode()).digest()
        # In (0, 1), never either end.
        share = (int.from_bytes(digest[:8]) + 0.5) / 2**64
        return -arms[arm] / math.log(share)

    return max(sorted(arms), key=score)


class Versions:
    """The registry as requests see it: what was asked a moment ago is remembered, and refreshed in the background.

    A change in the registry counts after at most twice `refresh_seconds`. While the registry does not answer, what was
    last known counts for `stale_seconds`.
    """

    def __init__(
        self,
        registry: AdapterRegistry,
        base_model: str,
        *,
        refresh_seconds: float,
        stale_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.registry = registry
        self.base_model = base_model
        self._roles: _Remembered[tuple[str, str], RoleState] = _Remembered(
            self._look_up_role, refresh_seconds, stale_seconds, clock
        )
        self._versions: _Remembered[ServedVersion, None] = _Remembered(
            self._check, refresh_seconds, stale_seconds, clock
        )

    async def role(self, tenant: str, role: str) -> RoleState:
        """What answers a role's requests now. Raises RefusedError."""
        return await self._roles.get((tenant, role))

    async def resolve(self, name: str, user: str | None) -> ServedVersion | None:
        """The version that answers a request for `name` by `user`; None for the base model itself.

        Raises RefusedError: unknown name or version, withdrawn, of another base, registry away.
        """
        if name == self.base_model:
            return None
        parsed = parse_name(name)
        if parsed is None:
            raise RefusedError(404, f"{name[:200]!r} is not served: ask for tenant/role, tenant/role@vN or the base")
        tenant, role, number = parsed
        if number is not None:
            version = ServedVersion(tenant, role, number)
            await self._versions.get(version)
            return version
        state = await self.role(tenant, role)
        if state.trial is not None:
            # Whoever is nobody in particular gets an arm at random.
            arm = arm_of(state.trial.arms, f"{tenant}/{role}", user or uuid.uuid4().hex)
            if arm != IN_USE:
                version = ServedVersion(tenant, role, int(arm.removeprefix("v")))
                try:
                    await self._versions.get(version)
                except RefusedError as error:
                    if error.status == 503:
                        raise
                    # An arm that was withdrawn since ends its part of the trial; the version in use takes it over.
                else:
                    return version
        if state.in_use is None:
            raise RefusedError(404, f"{tenant}/{role} has no version in use: ask for {self.base_model}")
        return state.in_use

    def listed(self) -> list[str]:
        """All names that can be asked for now: the base, each role, each usable version. Reads the registry."""
        names = [self.base_model]
        for tenant, role in self.registry.roles():
            try:
                found = [
                    (number, self.registry.get(tenant, role, number)) for number in self.registry.usable(tenant, role)
                ]
            except PermanentError as error:
                # One stopped role must not stop the others.
                log.warning("%s", error)
                continue
            numbers = [number for number, manifest in found if manifest.base_model.id == self.base_model]
            names += [f"{tenant}/{role}"] if numbers else []
            names += [vllm_name(tenant, role, number) for number in numbers]
        return names

    def _look_up_role(self, role: tuple[str, str]) -> RoleState:
        manifest = self.registry.incumbent(*role)
        trial = self.registry.state(*role).trial
        if manifest is None or manifest.version is None:
            return RoleState(None, trial)
        self._of_this_base(manifest.name, manifest.base_model.id)
        return RoleState(ServedVersion(*role, manifest.version), trial)

    def _check(self, version: ServedVersion) -> None:
        manifest = self.registry.get(version.tenant, version.role, version.number)
        if withdrawn := self.registry.withdrawal(version.tenant, version.role, version.number):
            raise RefusedError(410, f"{version.name} was withdrawn: {withdrawn.reason}")
        self._of_this_base(version.name, manifest.base_model.id)

    def _of_this_base(self, name: str, base: str) -> None:
        if base != self.base_model:
            raise RefusedError(409, f"{name} belongs to {base}; this server has {self.base_model}")


@dataclass
class _Entry(Generic[Value]):
    at: float
    value: Value | None
    refused: RefusedError | None


class _Remembered(Generic[Key, Value]):
    """The answers of a slow, blocking function, asked in a thread, once at a time for each key."""

    def __init__(
        self,
        look_up: Callable[[Key], Value],
        refresh_seconds: float,
        stale_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._look_up = look_up
        self._refresh_seconds = refresh_seconds
        self._stale_seconds = stale_seconds
        self._clock = clock
        self._entries: dict[Key, _Entry[Value]] = {}
        self._running: dict[Key, asyncio.Task[_Entry[Value]]] = {}

    async def get(self, key: Key) -> Value:
        """Raises RefusedError, also a remembered one."""
        entry = self._entries.get(key)
        age = math.inf if entry is None else self._clock() - entry.at
        if age >= self._refresh_seconds:
            task = self._running.get(key)
            if task is None:
                task = self._running[key] = asyncio.create_task(self._refresh(key))
                task.add_done_callback(lambda _: self._running.pop(key, None))
            # In the first moments after it expired nobody waits for the new one; later on nobody waits long if the
            # old one may still count. A caller that goes away does not take the look-up from the others.
            if entry is None:
                entry = await asyncio.shield(task)
            elif age >= 2 * self._refresh_seconds:
                patience = _PATIENCE_SECONDS if age < self._stale_seconds else None
                done, _ = await asyncio.wait({task}, timeout=patience)
                entry = task.result() if done else entry
        assert entry is not None
        if entry.refused is not None:
            raise RefusedError(entry.refused.status, str(entry.refused), retry_after=entry.refused.retry_after)
        return cast(Value, entry.value)

    async def _refresh(self, key: Key) -> _Entry[Value]:
        before = self._entries.get(key)
        try:
            entry = _Entry(self._clock(), await asyncio.to_thread(self._look_up, key), None)
        except RefusedError as error:
            entry = _Entry(self._clock(), None, error)
        except InputError as error:
            entry = _Entry(self._clock(), None, RefusedError(404, str(error)))
        except PermanentError as error:
            entry = _Entry(self._clock(), None, RefusedError(503, str(error), retry_after=60))
        except ServiceError as error:
            log.warning("the registry does not answer: %s", error)
            if before is not None and self._clock() - before.at < self._stale_seconds:
                return before
            entry = _Entry(self._clock(), None, RefusedError(503, "the registry does not answer", retry_after=5))
        if len(self._entries) >= _MAX_REMEMBERED:
            # Names come from outside: what is remembered must not grow with them.
            self._entries.clear()
        self._entries[key] = entry
        return entry

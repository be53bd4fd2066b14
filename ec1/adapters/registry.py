"""The registry of adapters: numbered versions that appear whole or not at all and never change afterwards.

Keys in the store (docs/contracts.md): `adapters/<tenant>/<role>/v<N>/`, whose `manifest.json` makes the version exist;
`adapters/.events/` announces publications; `quarantine/<tenant>/<role>/<night>-<digest>/` keeps what was not accepted.
Which version is the incumbent follows from the versions themselves, so that publishing changes no file: it is the
highest one that was not withdrawn, unless a person chose another (`decisions/`, see `book.py`) since. What cannot be
trusted (a damaged manifest, or one that no trusted key has signed) is skipped, and can be withdrawn. A withdrawal is a
decision; `withdrawn.json` beside the version says so to whoever looks at the files, and counts alone, too.

Belongs here: publishing, finding, checking and choosing versions. Does not: what makes one acceptable (`gate.py`).
"""

import contextlib
import datetime as dt
import logging
import math
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from ec1.adapters.book import DecisionBook, Fault
from ec1.adapters.card import card_of
from ec1.adapters.checks import adapter_problems
from ec1.adapters.decisions import (
    IN_USE,
    Action,
    ArmResult,
    ReleaseDecision,
    ReleaseState,
    Withdrawal,
    choice_of,
    in_use,
)
from ec1.adapters.manifest import CARD, MANIFEST, AdapterManifest
from ec1.adapters.scores import BASE
from ec1.adapters.signing import SIGNATURE, SigningKeys
from ec1.adapters.version_files import check_scored, collect, file_entry, file_problems
from ec1.damage import damaged
from ec1.errors import InputError, PermanentError
from ec1.files import canonical_json, checked_name, staged_directory, write_atomic
from ec1.settings import Settings, unknown_keys
from ec1.storage.store import TEMPORARY, AlreadyExists, NotFound, ObjectStore

log = logging.getLogger(__name__)

_MANIFEST_KEY = re.compile(r"adapters/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})/v([1-9][0-9]*)/manifest\.json")
_WITHDRAWN = "withdrawn.json"
_BESIDE = (MANIFEST, SIGNATURE, _WITHDRAWN, ".claim")


def vllm_name(tenant: str, role: str, version: int) -> str:
    """The name under which an engine serves a version. It carries the version: an engine caches by name."""
    return f"{checked_name(tenant, 'tenant')}/{checked_name(role, 'role')}@v{version}"


class AdapterRegistry:
    """Adapters in a store. `local` is this machine's folder of versions, `<local>/<tenant>/<role>/v<N>/`.

    Quarantined candidates lie in `quarantine` beside `local`, the keys that sign versions in `keys`. Methods raise
    InputError for a bad name or an unknown version, and what the store raises.
    """

    def __init__(self, store: ObjectStore, local: Path) -> None:
        self.store = store
        self.local = local
        self.keys = SigningKeys(local.parent / "keys")

    def publish(
        self, candidate: Path, manifest: AdapterManifest, attachments: Mapping[str, Path] | None = None
    ) -> AdapterManifest:
        """Make the candidate the next version, signed; return its manifest with version, files and `created_at`.

        `attachments` (name of `ATTACHMENTS` -> file) lie beside it, and a model card. The same candidate again is the
        same version.
        Raises InputError if the gate did not accept it and `override` gives no reason, PermanentError if the files
        are not an adapter that can be served.
        """
        verdict = manifest.evaluation.verdict if manifest.evaluation else None
        if verdict != "accepted" and not manifest.override:
            raise InputError(
                f"{manifest.name} is not published: the gate says {verdict or 'nothing'}; evaluate it, or give a "
                "reason in `override`"
            )
        with self._staging() as temporary:
            staging = Path(temporary)
            files = collect(candidate, staging, attachments or {})
            if manifest.files and manifest.files != files:
                raise PermanentError(f"{candidate}: the files are not those that the manifest lists: train again")
            check_scored(candidate, manifest, files)
            problems = adapter_problems(staging, manifest.base_model.id)
            if problems:
                raise PermanentError(f"{candidate} is not published: {'; '.join(problems)}")
            manifest = manifest.model_copy(
                update={
                    "status": "accepted",
                    "files": files,
                    "created_at": manifest.created_at or dt.datetime.now(dt.UTC).replace(microsecond=0),
                }
            )
            published = self._publish(staging, manifest)
        self._announce(published)
        return published

    def _publish(self, staging: Path, manifest: AdapterManifest) -> AdapterManifest:
        prefix, claimed = self._folder(manifest.tenant, manifest.role), 0
        while True:
            versions = self.versions(manifest.tenant, manifest.role)
            for existing in self._readable(manifest.tenant, manifest.role, self.get):
                if existing.identity == manifest.identity:
                    log.info("%s is already published", existing.name)
                    return existing
            # A number whose claim belongs to a publisher that died is left out: numbers are never used twice.
            number = max([claimed, *versions]) + 1
            numbered = manifest.model_copy(update={"version": number})
            (staging / CARD).write_text(card_of(numbered), encoding="utf-8")
            numbered = _checked(
                numbered.model_copy(update={"files": {**manifest.files, CARD: file_entry(staging / CARD)}})
            )
            (staging / MANIFEST).write_bytes(_encoded(numbered))
            (staging / SIGNATURE).write_bytes(self.keys.sign(_encoded(numbered)))
            contents = {name: staging / name for name in (*numbered.files, SIGNATURE, MANIFEST)}
            try:
                self.store.put_folder(f"{prefix}/v{number}", contents, seal=MANIFEST, claim=manifest.identity)
                return numbered
            except AlreadyExists:
                claimed = number

    def _announce(self, manifest: AdapterManifest) -> None:
        assert manifest.created_at is not None and manifest.version is not None
        moment = manifest.created_at.astimezone(dt.UTC)
        path = f"{manifest.tenant}/{manifest.role}/v{manifest.version}"
        event = {"event": "adapter-published", "path": path, "at": moment.isoformat()}
        key = f"adapters/.events/{moment:%Y%m%dT%H%M%SZ}-{path.replace('/', '_')}.json"
        try:
            self.store.put_bytes(key, canonical_json(event), if_absent=True)
        except AlreadyExists:
            log.info("%s was announced before", manifest.name)

    def roles(self) -> list[tuple[str, str]]:
        """All (tenant, role) that have a version, sorted."""
        found = (_MANIFEST_KEY.fullmatch(item.key) for item in self.store.list("adapters/"))
        return sorted({(match[1], match[2]) for match in found if match})

    def versions(self, tenant: str, role: str) -> list[int]:
        """The numbers of all versions, ascending, withdrawn ones included."""
        found = (_MANIFEST_KEY.fullmatch(item.key) for item in self.store.list(f"{self._folder(tenant, role)}/v"))
        return sorted(int(match[3]) for match in found if match)

    def get(self, tenant: str, role: str, version: int) -> AdapterManifest:
        """The manifest of a version, for use. Raises as `read`, and PermanentError if no trusted key has signed it."""
        manifest, data = self._read(tenant, role, version)
        if problem := self.keys.problem(data, self._signature(tenant, role, version)):
            raise PermanentError(f"{manifest.name} {problem}")
        return manifest

    def read(self, tenant: str, role: str, version: int) -> AdapterManifest:
        """The manifest of a version, signed or not: to look at, not for use.

        Raises InputError if there is none, PermanentError if it is damaged.
        """
        return self._read(tenant, role, version)[0]

    def _read(self, tenant: str, role: str, version: int) -> tuple[AdapterManifest, bytes]:
        key = f"{self._folder(tenant, role)}/v{version}/{MANIFEST}"
        try:
            data = self.store.get_bytes(key)
            manifest = AdapterManifest.model_validate_json(data)
        except NotFound:
            known = ", ".join(f"v{number}" for number in self.versions(tenant, role))
            there = f"its versions are {known}" if known else "the role has no version yet"
            raise InputError(f"there is no {tenant}/{role}@v{version}: {there}") from None
        except ValidationError as error:
            if unknown := unknown_keys(error):
                raise PermanentError(f"{key} is of another release of EC1: this one does not know {unknown}") from None
            raise PermanentError(f"{key} is damaged: {error.error_count()} errors; restore it") from None
        if (manifest.tenant, manifest.role, manifest.version) != (tenant, role, version):
            raise PermanentError(f"{key} is the manifest of {manifest.name}: it was moved; restore it")
        return manifest, data

    def _signature(self, tenant: str, role: str, version: int) -> bytes | None:
        try:
            return self.store.get_bytes(f"{self._folder(tenant, role)}/v{version}/{SIGNATURE}")
        except NotFound:
            return None

    def sign(self, tenant: str, role: str, version: int, reason: str, who: str = "") -> bool:
        """Sign a version that no trusted key has signed, on a person's word; False if one has.

        Raises PermanentError if its files are not those of its manifest.
        """
        manifest, data = self._read(tenant, role, version)
        if self.keys.problem(data, self._signature(tenant, role, version)) is None:
            return False
        with self._staging() as temporary:
            if problems := self._download(manifest, Path(temporary)):
                raise PermanentError(f"{manifest.name} is not signed: {'; '.join(problems)}")
        self.store.put_bytes(f"{self._folder(tenant, role)}/v{version}/{SIGNATURE}", self.keys.sign(data))
        self._decide("sign", tenant, role, version, reason, who)
        return True

    def usable(self, tenant: str, role: str) -> list[int]:
        """The numbers of all versions that are intact and were not withdrawn, ascending."""
        return [manifest.version for manifest in self._trusted(tenant, role) if manifest.version is not None]

    def _trusted(self, tenant: str, role: str) -> list[AdapterManifest]:
        return list(self._each_trusted(tenant, role, self.versions(tenant, role), self.state(tenant, role)))

    def _each_trusted(
        self, tenant: str, role: str, numbers: Iterable[int], state: ReleaseState
    ) -> Iterator[AdapterManifest]:
        """Of some versions those that are intact and were not withdrawn. Each is read, and its signature checked, when
        it is asked for."""
        for number in numbers:
            try:
                if self._withdrawal(tenant, role, number, state) is None:
                    yield self.get(tenant, role, number)
            except PermanentError as error:
                log.warning("%s/%s@v%s is left out: %s", tenant, role, number, error)

    def incumbent(self, tenant: str, role: str) -> AdapterManifest | None:
        """The version in use: the highest usable one, unless a person chose another since; None: the base alone.

        Raises PermanentError if what was decided about the role cannot be trusted (`faults`)."""
        return self._in_use(tenant, role, self.state(tenant, role))

    def _in_use(self, tenant: str, role: str, state: ReleaseState) -> AdapterManifest | None:
        numbers = self.versions(tenant, role)[::-1]
        chosen = [number for number in numbers if number == state.version]
        left = [number for number in numbers if number not in state.left]
        # What decides are the newest, the chosen and the newest that no rollback left: of thousands no other is read.
        each = (self._each_trusted(tenant, role, some, state) for some in (numbers, chosen, left))
        usable = {found.version or 0: found for some in each if (found := next(some, None)) is not None}
        version = in_use(state, sorted(usable))
        return None if version is None else usable[version]

    def best(self, tenant: str, role: str) -> AdapterManifest | None:
        """The version that was furthest above the base when it was judged; withdrawn and damaged ones are left out."""
        readable = self._readable(tenant, role, self.read)
        # The first of those that are equally far, as it was published.
        order = sorted(readable, key=lambda manifest: (-_above_base(manifest), manifest.version))
        numbers = [manifest.version for manifest in order if manifest.version is not None]
        return next(self._each_trusted(tenant, role, numbers, self.state(tenant, role)), None)

    def _book(self, tenant: str, role: str) -> DecisionBook:
        folder = self._folder(tenant, role)
        return DecisionBook(self.store, self.keys, f"{tenant}/{role}", f"{folder}/decisions")

    def decisions(self, tenant: str, role: str) -> list[ReleaseDecision]:
        """What people decided about a role, oldest first. Raises PermanentError for a record that was changed, or is
        gone."""
        return self._book(tenant, role).read()

    def state(self, tenant: str, role: str) -> ReleaseState:
        """What follows from these decisions. Raises as `decisions`."""
        return choice_of(self.decisions(tenant, role))

    def faults(self, tenant: str, role: str) -> list[Fault]:
        """What is wrong with the decisions about a role; empty if nothing is."""
        return self._book(tenant, role).faults()

    def repair(self, tenant: str, role: str, faults: list[Fault], reason: str, who: str = "") -> None:
        """Go on without the faulty decisions that a person has seen, but for those from before signatures, which count
        from now on. Versions beside which a withdrawal lies stay withdrawn."""
        at = dt.datetime.now(dt.UTC)
        newest = max(self.versions(tenant, role), default=0)
        decision = ReleaseDecision(action="repair", as_of=newest, who=who, reason=reason, at=at)
        self._book(tenant, role).repair(decision, faults)

    def history(self, tenant: str, role: str) -> list[ReleaseDecision]:
        """Publications and decisions in the order of time: who, when, from, to, why."""
        published = [
            ReleaseDecision(
                action="publish",
                after=manifest.version,
                who="the gate" if manifest.override is None else "a person, against the gate",
                reason=manifest.override or "; ".join(manifest.evaluation.reasons if manifest.evaluation else ()),
                at=manifest.created_at,
            )
            for manifest in self._readable(tenant, role, self.read)
            if manifest.created_at is not None
        ]
        return sorted([*published, *self.decisions(tenant, role)], key=lambda decision: decision.at)

    def _readable(
        self, tenant: str, role: str, read: Callable[[str, str, int], AdapterManifest]
    ) -> Iterator[AdapterManifest]:
        for number in self.versions(tenant, role):
            try:
                yield read(tenant, role, number)
            except PermanentError as error:
                log.warning("%s", error)

    def withdrawal(self, tenant: str, role: str, version: int) -> Withdrawal | None:
        """Why a version was withdrawn; None if it was not. Raises PermanentError if that cannot be told."""
        return self._withdrawal(tenant, role, version, self.state(tenant, role))

    def _withdrawal(self, tenant: str, role: str, version: int, state: ReleaseState) -> Withdrawal | None:
        return state.withdrawn.get(version) or self._marker(tenant, role, version)

    def _marker(self, tenant: str, role: str, version: int) -> Withdrawal | None:
        key = f"{self._folder(tenant, role)}/v{version}/{_WITHDRAWN}"
        try:
            return Withdrawal.model_validate_json(self.store.get_bytes(key))
        except NotFound:
            return None
        except ValidationError as error:
            raise PermanentError(f"{key} is damaged: {error.error_count()} errors; write it again") from None

    def promote(self, tenant: str, role: str, version: int, reason: str, who: str = "") -> AdapterManifest:
        """Make a version the incumbent until a newer one is published. Raises InputError if it was withdrawn."""
        return self._choose("promote", tenant, role, version, reason, who)

    def pin(self, tenant: str, role: str, version: int, reason: str, who: str = "") -> AdapterManifest:
        """Make a version the incumbent until it is unpinned, whatever is published. Raises as `promote`."""
        return self._choose("pin", tenant, role, version, reason, who)

    def unpin(self, tenant: str, role: str, reason: str, who: str = "") -> AdapterManifest | None:
        """Let the newest version be the incumbent again; return it. Raises InputError if none is pinned."""
        if not self.state(tenant, role).pinned:
            raise InputError(f"{tenant}/{role} has no pinned version")
        self._decide("unpin", tenant, role, None, reason, who)
        return self.incumbent(tenant, role)

    def promote_base(self, tenant: str, role: str, reason: str, who: str = "") -> None:
        """Let the base serve without an adapter until a newer version is published."""
        self._decide("base", tenant, role, None, reason, who)

    def _choose(self, action: Action, tenant: str, role: str, version: int, reason: str, who: str) -> AdapterManifest:
        manifest = self.get(tenant, role, version)
        if withdrawn := self.withdrawal(tenant, role, version):
            raise InputError(f"{manifest.name} was withdrawn ({withdrawn.reason}): choose another version")
        self._decide(action, tenant, role, version, reason, who)
        return manifest

    def _decide(
        self,
        action: Action,
        tenant: str,
        role: str,
        version: int | None,
        reason: str,
        who: str,
        *,
        arms: Mapping[str, int] | None = None,
        result: Mapping[str, ArmResult] | None = None,
    ) -> None:
        incumbent = self.incumbent(tenant, role)
        decision = ReleaseDecision(
            action=action,
            before=incumbent.version if incumbent else None,
            after=version,
            as_of=max(self.versions(tenant, role), default=0),
            arms=dict(arms or {}),
            result=dict(result or {}),
            who=who,
            reason=reason,
            at=dt.datetime.now(dt.UTC),
        )
        self._book(tenant, role).add(decision)

    def start_trial(self, tenant: str, role: str, arms: Mapping[str, int], reason: str, who: str = "") -> None:
        """Let several versions answer (`in-use` or `vN` -> weight), until the trial ends. Raises InputError for an arm
        that cannot answer now."""
        state = self.state(tenant, role)
        for arm in arms:
            if arm == IN_USE or not arm.removeprefix("v").isdecimal():
                # What is neither is refused with the decision.
                continue
            manifest = self.get(tenant, role, int(arm.removeprefix("v")))
            if withdrawn := self._withdrawal(tenant, role, manifest.version or 0, state):
                raise InputError(f"{manifest.name} was withdrawn ({withdrawn.reason})")
        try:
            self._decide("trial", tenant, role, None, reason, who, arms=arms)
        except ValidationError as error:
            raise InputError(f"split: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None

    def end_trial(
        self,
        tenant: str,
        role: str,
        reason: str,
        who: str = "",
        *,
        arms: Mapping[str, int] | None = None,
        result: Mapping[str, ArmResult] | None = None,
    ) -> bool:
        """End the trial that runs, or leave only `arms` of it; False if none runs. `result`: what its arms came to."""
        if not self.state(tenant, role).arms:
            return False
        self._decide("end-trial", tenant, role, None, reason, who, arms=arms, result=result)
        return True

    def rollback(self, tenant: str, role: str, reason: str, who: str = "") -> AdapterManifest:
        """Make the usable version below the incumbent the incumbent; the one that it leaves never comes back by itself.

        Raises InputError if there is none below.
        """
        incumbent = self.incumbent(tenant, role)
        left = self.state(tenant, role).left
        below = [
            number
            for number in self.usable(tenant, role)
            if incumbent and number < (incumbent.version or 0) and number not in left
        ]
        if not below:
            raise InputError(
                f"{tenant}/{role} has no version to go back to: `ec1 adapters promote {tenant}/{role}@base` lets the "
                "base serve without an adapter"
            )
        return self._choose("rollback", tenant, role, below[-1], reason, who)

    def withdraw(self, tenant: str, role: str, version: int, reason: str, who: str = "") -> None:
        """Take a published version out of use for good; its files stay. A second reason changes nothing.

        A damaged version can be withdrawn too. Raises InputError for one that was never published.
        """
        if version not in self.versions(tenant, role):
            self.get(tenant, role, version)
        record = self.state(tenant, role).withdrawn.get(version)
        if record is None:
            self._decide("withdraw", tenant, role, version, reason, who)
            record = self.state(tenant, role).withdrawn[version]
        else:
            log.info("%s/%s@v%s was withdrawn before", tenant, role, version)
        with contextlib.suppress(AlreadyExists):
            key = f"{self._folder(tenant, role)}/v{version}/{_WITHDRAWN}"
            self.store.put_bytes(key, _encoded(record), if_absent=True)

    def expendable(self, tenant: str, role: str, keep: int) -> list[AdapterManifest]:
        """Versions that may be removed when only `keep` are wanted, the worst first.

        Never the incumbent, the best or the newest; nor withdrawn ones, which are kept for audits.
        """
        usable = self._trusted(tenant, role)
        kept = {manifest.version for manifest in self._needed(tenant, role)}
        ranked = sorted(usable, key=lambda manifest: (_above_base(manifest), manifest.version or 0))
        return [manifest for manifest in ranked[: max(0, len(ranked) - keep)] if manifest.version not in kept]

    def remove(self, tenant: str, role: str, version: int, reason: str) -> None:
        """Delete a version's files permanently; its manifest stays under `adapters/.removed/`, for the auditor.

        Raises InputError for the incumbent, the best and the newest version: one could not go back to them.
        """
        manifest = self.read(tenant, role, version)
        if any(each.version == version for each in self._needed(tenant, role)):
            raise InputError(f"{manifest.name} is not removed: it is the version in use, the best or the newest one")
        prefix = f"{self._folder(tenant, role)}/v{version}/"
        record = {"manifest": manifest.model_dump(mode="json"), "reason": reason}
        self.store.put_bytes(f"adapters/.removed/{tenant}_{role}_v{version}.json", canonical_json(record) + b"\n")
        # The manifest first: it is what makes the version exist.
        self.store.delete(f"{prefix}{MANIFEST}")
        for item in list(self.store.list(prefix)):
            self.store.delete(item.key)
        shutil.rmtree(self.local / tenant / role / f"v{version}", ignore_errors=True)

    def _needed(self, tenant: str, role: str) -> list[AdapterManifest]:
        usable = self._trusted(tenant, role)
        newest = usable[-1] if usable else None
        found = (self.incumbent(tenant, role), self.best(tenant, role), newest)
        return [manifest for manifest in found if manifest is not None]

    def verify(self, tenant: str, role: str, version: int) -> list[str]:
        """Everything that is wrong with a version as it is stored; empty if nothing is."""
        try:
            manifest = self.get(tenant, role, version)
        except PermanentError as error:
            return [str(error)]
        prefix = f"{self._folder(tenant, role)}/v{version}/"
        stored = {item.key for item in self.store.list(prefix)}
        faults = self.faults(tenant, role)
        decided = [f"decision {fault.number} {fault.what}" for fault in faults]
        if not faults and version in self.state(tenant, role).withdrawn and f"{prefix}{_WITHDRAWN}" not in stored:
            decided = [f"{_WITHDRAWN} is gone: it is withdrawn all the same"]
        strangers = {key.removeprefix(prefix) for key in stored} - {*manifest.files, *_BESIDE}
        problems = decided + [f"{name} is not in the manifest" for name in sorted(strangers)]
        with self._staging() as temporary:
            return problems + self._download(manifest, Path(temporary))

    def fetch(self, tenant: str, role: str, version: int) -> Path:
        """This machine's folder of a version, downloaded if needed and checked against the manifest every time.

        Raises PermanentError if the version is damaged in the store.
        """
        manifest = self.get(tenant, role, version)
        final = self.local / tenant / role / f"v{version}"
        wrong = file_problems(final, manifest)
        if not wrong and (final / MANIFEST).is_file():
            return final
        if wrong and final.is_dir():
            damaged(log, final, f"{final}: {'; '.join(wrong)}: it is fetched again")
        final.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=TEMPORARY) as temporary:
            good, old = Path(temporary) / "good", Path(temporary) / "old"
            good.mkdir()
            problems = self._download(manifest, good)
            if problems:
                raise PermanentError(f"{manifest.name} is damaged in the store: {'; '.join(problems)}")
            write_atomic(good / MANIFEST, _encoded(manifest))
            if final.exists():
                final.rename(old)
            good.rename(final)
        return final

    def quarantine(
        self,
        candidate: Path,
        manifest: AdapterManifest,
        reason: str,
        attachments: Mapping[str, Path] | None = None,
    ) -> Path:
        """Keep a candidate that was not accepted, with its evaluation; return the folder.

        It takes no version number, and may lack what a whole adapter has. The same candidate again is the same folder.
        """
        with self._staging() as temporary:
            staging = Path(temporary)
            files = collect(candidate, staging, attachments or {})
            verdict = manifest.evaluation.verdict if manifest.evaluation else "rejected"
            manifest = manifest.model_copy(
                update={
                    "status": "rejected" if verdict == "accepted" else verdict,
                    "files": files,
                    "created_at": manifest.created_at or dt.datetime.now(dt.UTC).replace(microsecond=0),
                }
            )
            place = f"{manifest.tenant}/{manifest.role}/{manifest.night}-{manifest.identity[:12]}"
            (staging / MANIFEST).write_bytes(_encoded(_checked(manifest)))
            (staging / "reason.txt").write_text(reason + "\n", encoding="utf-8")
            contents = {path.name: path for path in staging.iterdir()}
            try:
                self.store.put_folder(f"quarantine/{place}", contents, seal=MANIFEST, claim=manifest.identity)
            except AlreadyExists:
                log.info("%s is in quarantine already", place)
            final = self.local.parent / "quarantine" / place
            if not final.exists():
                with staged_directory(final) as folder:
                    for name, path in contents.items():
                        shutil.copyfile(path, folder / name)
        return final

    def _download(self, manifest: AdapterManifest, folder: Path) -> list[str]:
        """Get the files of a version into an empty folder; return what is wrong with them."""
        prefix = f"{self._folder(manifest.tenant, manifest.role)}/v{manifest.version}"
        for name in manifest.files:
            try:
                self.store.get_file(f"{prefix}/{name}", folder / name)
            except NotFound:
                log.warning("%s: %s is missing", manifest.name, name)
        return file_problems(folder, manifest) or adapter_problems(folder, manifest.base_model.id)

    def _folder(self, tenant: str, role: str) -> str:
        return f"adapters/{checked_name(tenant, 'tenant')}/{checked_name(role, 'role')}"

    def _staging(self) -> tempfile.TemporaryDirectory[str]:
        self.local.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=self.local, prefix=TEMPORARY)


def _above_base(manifest: AdapterManifest) -> float:
    difference = manifest.evaluation.differences.get(BASE) if manifest.evaluation else None
    return difference.mean if difference else -math.inf


def _encoded(record: Settings) -> bytes:
    return record.model_dump_json(indent=2).encode() + b"\n"


def _checked(manifest: AdapterManifest) -> AdapterManifest:
    """The manifest after all its checks: a copy with changed fields was not validated."""
    return AdapterManifest.model_validate(manifest.model_dump())

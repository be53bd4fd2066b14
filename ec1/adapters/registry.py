"""The registry of adapters: numbered versions that appear whole or not at all and never change afterwards.

Keys in the store (docs/contracts.md): `adapters/<tenant>/<role>/v<N>/`, whose `manifest.json` makes the version exist;
`adapters/.events/` announces publications; `quarantine/<tenant>/<role>/<night>-<digest>/` keeps what was not accepted.
Which version is the incumbent follows from the versions themselves, so that publishing changes no file: it is the
highest one that was not withdrawn, unless an operator chose another (`current.json`) since.

Belongs here: publishing, finding, checking and choosing versions. Does not: what makes one acceptable (`gate.py`).
"""

import datetime as dt
import logging
import math
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import Field, ValidationError

from ec1.adapters.checks import adapter_problems
from ec1.adapters.manifest import ADAPTER_FILES, ATTACHMENTS, MANIFEST, WEIGHTS, AdapterManifest, FileEntry
from ec1.adapters.scores import BASE
from ec1.errors import InputError, PermanentError
from ec1.files import canonical_json, checked_name, sha256_file, staged_directory, write_atomic
from ec1.settings import Settings
from ec1.storage.store import TEMPORARY, AlreadyExists, NotFound, ObjectStore

log = logging.getLogger(__name__)

_MANIFEST_KEY = re.compile(r"adapters/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})/v([1-9][0-9]*)/manifest\.json")
_WITHDRAWN = "withdrawn.json"
_CURRENT = "current.json"
_BESIDE = (MANIFEST, _WITHDRAWN, ".claim")


Record = TypeVar("Record", bound=Settings)


class Current(Settings):
    """An operator's choice of the incumbent; it holds until a version above `as_of` is published."""

    version: int = Field(ge=1)
    as_of: int = Field(ge=1)
    reason: str
    at: dt.datetime


class Withdrawal(Settings):
    """Why a published version must not be used any more. The version is kept for audits."""

    reason: str
    at: dt.datetime


def vllm_name(tenant: str, role: str, version: int) -> str:
    """The name under which an engine serves a version. It carries the version: an engine caches by name."""
    return f"{checked_name(tenant, 'tenant')}/{checked_name(role, 'role')}@v{version}"


class AdapterRegistry:
    """Adapters in a store. `local` is this machine's folder of versions, `<local>/<tenant>/<role>/v<N>/`.

    Quarantined candidates lie in `quarantine` beside `local`. Methods raise InputError for a bad name or an unknown
    version, and what the store raises.
    """

    def __init__(self, store: ObjectStore, local: Path) -> None:
        self.store = store
        self.local = local

    def publish(
        self, candidate: Path, manifest: AdapterManifest, attachments: Mapping[str, Path] | None = None
    ) -> AdapterManifest:
        """Make the candidate the next version; return its manifest with version, files and `created_at`.

        `attachments` (name of `ATTACHMENTS` -> file) lie beside it. The same candidate again is the same version.
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
            files = _collect(candidate, staging, attachments or {})
            if manifest.files and manifest.files != files:
                raise PermanentError(f"{candidate}: the files are not those that the manifest lists: train again")
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
            for version in reversed(versions):
                existing = self.get(manifest.tenant, manifest.role, version)
                if existing.identity == manifest.identity:
                    log.info("%s is already published", existing.name)
                    return existing
            # A number whose claim belongs to a publisher that died is left out: numbers are never used twice.
            number = max([claimed, *versions]) + 1
            numbered = _checked(manifest.model_copy(update={"version": number}))
            (staging / MANIFEST).write_bytes(_encoded(numbered))
            files = {name: staging / name for name in (*manifest.files, MANIFEST)}
            try:
                self.store.put_folder(f"{prefix}/v{number}", files, seal=MANIFEST, claim=manifest.identity)
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
        """The manifest of a version. Raises InputError if there is none, PermanentError if it is damaged."""
        key = f"{self._folder(tenant, role)}/v{version}/{MANIFEST}"
        try:
            manifest = AdapterManifest.model_validate_json(self.store.get_bytes(key))
        except NotFound:
            known = ", ".join(f"v{number}" for number in self.versions(tenant, role)) or "none"
            raise InputError(f"there is no {tenant}/{role}@v{version}: versions are {known}") from None
        except ValidationError as error:
            raise PermanentError(f"{key} is damaged: {error.error_count()} errors; restore it") from None
        if (manifest.tenant, manifest.role, manifest.version) != (tenant, role, version):
            raise PermanentError(f"{key} is the manifest of {manifest.name}: it was moved; restore it")
        return manifest

    def usable(self, tenant: str, role: str) -> list[int]:
        """The numbers of all versions that were not withdrawn, ascending."""
        return [number for number in self.versions(tenant, role) if not self.withdrawal(tenant, role, number)]

    def incumbent(self, tenant: str, role: str) -> AdapterManifest | None:
        """The version in use: the highest that was not withdrawn, unless an operator chose another since."""
        versions = self.usable(tenant, role)
        if not versions:
            return None
        chosen = self.current(tenant, role)
        version = chosen.version if chosen and versions[-1] <= chosen.as_of else versions[-1]
        return self.get(tenant, role, version if version in versions else versions[-1])

    def best(self, tenant: str, role: str) -> AdapterManifest | None:
        """The version that was furthest above the base when it was judged, withdrawn ones left out."""
        manifests = [self.get(tenant, role, version) for version in self.usable(tenant, role)]
        return max(manifests, key=_above_base, default=None)

    def current(self, tenant: str, role: str) -> Current | None:
        """The last choice of an operator, if there was one."""
        return self._record(f"{self._folder(tenant, role)}/{_CURRENT}", Current)

    def withdrawal(self, tenant: str, role: str, version: int) -> Withdrawal | None:
        """Why a version was withdrawn; None if it was not."""
        return self._record(f"{self._folder(tenant, role)}/v{version}/{_WITHDRAWN}", Withdrawal)

    def promote(self, tenant: str, role: str, version: int, reason: str) -> AdapterManifest:
        """Make a version the incumbent until a newer one is published. Raises InputError if it was withdrawn."""
        manifest = self.get(tenant, role, version)
        if withdrawn := self.withdrawal(tenant, role, version):
            raise InputError(f"{manifest.name} was withdrawn ({withdrawn.reason}): choose another version")
        choice = Current(
            version=version, as_of=self.versions(tenant, role)[-1], reason=reason, at=dt.datetime.now(dt.UTC)
        )
        self.store.put_bytes(f"{self._folder(tenant, role)}/{_CURRENT}", _encoded(choice))
        return manifest

    def rollback(self, tenant: str, role: str, reason: str) -> AdapterManifest:
        """Make the usable version below the incumbent the incumbent. Raises InputError if there is none."""
        incumbent = self.incumbent(tenant, role)
        below = [number for number in self.usable(tenant, role) if incumbent and number < (incumbent.version or 0)]
        if not below:
            raise InputError(f"{tenant}/{role} has no version to go back to: the base serves without an adapter")
        return self.promote(tenant, role, below[-1], reason)

    def withdraw(self, tenant: str, role: str, version: int, reason: str) -> None:
        """Withdraw a published version permanently; its files are kept. Idempotent: the first reason stays."""
        self.get(tenant, role, version)
        record = Withdrawal(reason=reason, at=dt.datetime.now(dt.UTC))
        try:
            key = f"{self._folder(tenant, role)}/v{version}/{_WITHDRAWN}"
            self.store.put_bytes(key, _encoded(record), if_absent=True)
        except AlreadyExists:
            log.info("%s/%s@v%s was withdrawn before", tenant, role, version)

    def expendable(self, tenant: str, role: str, keep: int) -> list[AdapterManifest]:
        """Versions that may be removed when only `keep` are wanted, the worst first.

        Never the incumbent, the best or the newest; nor withdrawn ones, which are kept for audits.
        """
        usable = [self.get(tenant, role, version) for version in self.usable(tenant, role)]
        kept = {manifest.version for manifest in self._needed(tenant, role)}
        ranked = sorted(usable, key=lambda manifest: (_above_base(manifest), manifest.version or 0))
        return [manifest for manifest in ranked[: max(0, len(ranked) - keep)] if manifest.version not in kept]

    def remove(self, tenant: str, role: str, version: int, reason: str) -> None:
        """Delete a version's files permanently; its manifest stays under `adapters/.removed/`, for the auditor.

        Raises InputError for the incumbent, the best and the newest version: one could not go back to them.
        """
        manifest = self.get(tenant, role, version)
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
        usable = self.usable(tenant, role)
        newest = self.get(tenant, role, usable[-1]) if usable else None
        found = (self.incumbent(tenant, role), self.best(tenant, role), newest)
        return [manifest for manifest in found if manifest is not None]

    def verify(self, tenant: str, role: str, version: int) -> list[str]:
        """Everything that is wrong with a version as it is stored; empty if nothing is."""
        try:
            manifest = self.get(tenant, role, version)
        except PermanentError as error:
            return [str(error)]
        prefix = f"{self._folder(tenant, role)}/v{version}/"
        strangers = {item.key.removeprefix(prefix) for item in self.store.list(prefix)} - {*manifest.files, *_BESIDE}
        problems = [f"{name} is not in the manifest" for name in sorted(strangers)]
        with self._staging() as temporary:
            return problems + self._download(manifest, Path(temporary))

    def fetch(self, tenant: str, role: str, version: int) -> Path:
        """This machine's folder of a version, downloaded if needed and checked against the manifest every time.

        Raises PermanentError if the version is damaged in the store.
        """
        manifest = self.get(tenant, role, version)
        final = self.local / tenant / role / f"v{version}"
        if not _file_problems(final, manifest) and (final / MANIFEST).is_file():
            return final
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
            files = _collect(candidate, staging, attachments or {})
            verdict = manifest.evaluation.verdict if manifest.evaluation else "rejected"
            manifest = manifest.model_copy(
                update={
                    "status": "review" if verdict == "review" else "rejected",
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
        return _file_problems(folder, manifest) or adapter_problems(folder, manifest.base_model.id)

    def _record(self, key: str, model: type[Record]) -> Record | None:
        try:
            return model.model_validate_json(self.store.get_bytes(key))
        except NotFound:
            return None
        except ValidationError as error:
            raise PermanentError(f"{key} is damaged: {error.error_count()} errors; write it again") from None

    def _folder(self, tenant: str, role: str) -> str:
        return f"adapters/{checked_name(tenant, 'tenant')}/{checked_name(role, 'role')}"

    def _staging(self) -> tempfile.TemporaryDirectory[str]:
        self.local.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=self.local, prefix=TEMPORARY)


def _collect(candidate: Path, staging: Path, attachments: Mapping[str, Path]) -> dict[str, FileEntry]:
    """Copy what may be published into `staging`; return the entries of the copies."""
    if not candidate.is_dir():
        raise InputError(f"{candidate} is not a folder: give the folder of a trained adapter")
    for name in attachments:
        if name not in ATTACHMENTS:
            raise InputError(f"{name!r} is not published beside an adapter: use one of {', '.join(ATTACHMENTS)}")
    sources = {name: candidate / name for name in (*ADAPTER_FILES, *ATTACHMENTS) if (candidate / name).is_file()}
    left_out = sorted({path.name for path in candidate.iterdir()} - sources.keys())
    if left_out:
        log.info("%s: not published: %s", candidate, ", ".join(left_out))
    files = {}
    for name, source in {**sources, **attachments}.items():
        shutil.copyfile(source, staging / name)
        files[name] = FileEntry(sha256=sha256_file(staging / name), size=(staging / name).stat().st_size)
    return files


def _file_problems(folder: Path, manifest: AdapterManifest) -> list[str]:
    problems = []
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            problems.append(f"{name} is missing")
        elif path.stat().st_size != entry.size or sha256_file(path) != entry.sha256:
            problems.append(f"{name} is not the file that was published (SHA-256 differs)")
    if WEIGHTS not in manifest.files:
        problems.append(f"the manifest lists no {WEIGHTS}")
    return problems


def _above_base(manifest: AdapterManifest) -> float:
    difference = manifest.evaluation.differences.get(BASE) if manifest.evaluation else None
    return difference.mean if difference else -math.inf


def _encoded(record: Settings) -> bytes:
    return record.model_dump_json(indent=2).encode() + b"\n"


def _checked(manifest: AdapterManifest) -> AdapterManifest:
    """The manifest after all its checks: a copy with changed fields was not validated."""
    return AdapterManifest.model_validate(manifest.model_dump())

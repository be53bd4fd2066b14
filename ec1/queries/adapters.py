"""What faces ask of the registry: its versions, where one comes from, which learnt from a tuple or a person.

A version learnt from the training rows of its dataset, and from all that the version learnt that it went on from.
Belongs here: reading versions, and following manifests to datasets, snapshots and tuples. Does not: choosing a version
(`ec1.adapters.registry`), taking anything out (`ec1.night.forgetting`).
"""

import contextlib
import datetime as dt
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ec1.adapters.decisions import IN_USE, ArmResult, ReleaseDecision, Withdrawal
from ec1.adapters.manifest import AdapterManifest, RecipeRef
from ec1.adapters.registry import AdapterRegistry
from ec1.adapters.scores import EVALUATION
from ec1.corpus.served import giver_of
from ec1.corpus.snapshots import load_snapshot
from ec1.corpus.tuples import metadata_of, sources_of
from ec1.errors import InputError, PermanentError
from ec1.home import Home
from ec1.night.forgetting.wanted import Wanted
from ec1.queries.page import Page, page_of
from ec1.storage.store import NotFound

_DIGEST = re.compile(r"[0-9a-f]{6,64}")
_KEYED = re.compile(r"[a-z_.]+:\S.*")
_VERSION = re.compile(r"([a-z0-9-]{1,64})/([a-z0-9-]{1,64})@v([1-9][0-9]*)")

VersionId = tuple[str, str, int]
"""Tenant, role and number."""


@dataclass(frozen=True)
class VersionSummary:
    """One version in a list. Of a damaged one nothing is known but its name, and why it cannot be used."""

    name: str
    in_use: bool
    withdrawn: bool
    damaged: str | None = None
    night: str | None = None
    objective: str | None = None
    base_model: str | None = None
    tuples: int | None = None
    verdict: str | None = None


@dataclass(frozen=True)
class TrialRun:
    """A trial in which a version was an arm. `ended` is None while it runs; `result` is what each arm came to."""

    began: dt.datetime
    ended: dt.datetime | None
    arms: Mapping[str, int]
    arm: str
    reason: str
    outcome: str
    result: Mapping[str, ArmResult]


@dataclass(frozen=True)
class VersionPage:
    """One version with what became of it. `stopped`: why nothing of its role is used, if that is so."""

    manifest: AdapterManifest
    in_use: bool
    withdrawn: Withdrawal | None
    trials: tuple[TrialRun, ...]
    stopped: str | None


@dataclass(frozen=True)
class Origin:
    """One tuple that a version was trained on: its digest, where it stood in the corpus, and what it was cut from, or
    which judgement of a person it is."""

    digest: str
    place: str
    author: str | None
    commit: str | None
    document: str | None
    session: str | None
    judgement: str | None = None


@dataclass(frozen=True)
class Lineage:
    """A version with its tuples and the versions that it rests on. `dataset` and `snapshot` are digests.

    `missing` says why `tuples` is empty although it was trained on some: its snapshot or dataset is no longer here.
    """

    name: str
    night: str
    method: str
    recipe: RecipeRef
    git_commit: str | None
    dataset: str
    bucket: str
    snapshot: str
    tuples: tuple[Origin, ...]
    missing: str | None
    parents: "tuple[Lineage, ...]"


@dataclass(frozen=True)
class Learners:
    """The versions that learnt from something -> from how many tuples of their own (0: by a version that they rest on),
    and the versions that it cannot be told of, because their data is not here."""

    versions: Mapping[str, int]
    unknown: tuple[str, ...]


def version_id(name: str) -> VersionId:
    """Parse `tenant/role@vN`. Raises InputError."""
    match = _VERSION.fullmatch(name)
    if match is None:
        raise InputError(f"{name!r} is not an adapter: write tenant/role@vN, as `ec1 adapters list` does")
    return match[1], match[2], int(match[3])


def version_ids(registry: AdapterRegistry) -> list[VersionId]:
    """Every version, by tenant and role and then by number."""
    return [(tenant, role, each) for tenant, role in registry.roles() for each in registry.versions(tenant, role)]


def versions(registry: AdapterRegistry, limit: int | None = None, cursor: str | None = None) -> Page[VersionSummary]:
    """All versions by tenant and role, the newest first. Only the manifests of the page are read."""
    ordered = sorted(version_ids(registry), key=lambda each: (each[0], each[1], -each[2]))
    page = page_of(ordered, limit, cursor)
    roles = {(tenant, role) for tenant, role, _ in page.items}
    states = {role: _state_of(registry, role) for role in roles}
    return Page(tuple(_version(registry, each, states[each[:2]]) for each in page.items), page.next)


def _state_of(registry: AdapterRegistry, role: tuple[str, str]) -> str | int | None:
    """The number of a role's version in use, or why the role is stopped."""
    try:
        incumbent = registry.incumbent(*role)
    except PermanentError as error:
        return str(error)
    return None if incumbent is None else incumbent.version


def _version(registry: AdapterRegistry, version: VersionId, state: str | int | None) -> VersionSummary:
    name = _name(version)
    try:
        if isinstance(state, str):
            raise PermanentError(state)
        withdrawn = registry.withdrawal(*version) is not None
    except PermanentError as error:
        return VersionSummary(name, False, False, damaged=str(error))
    try:
        manifest = registry.get(*version)
    except PermanentError as error:
        return VersionSummary(name, state == version[2], withdrawn, damaged=str(error))
    return VersionSummary(
        name,
        state == version[2],
        withdrawn,
        night=manifest.night,
        objective=manifest.objective,
        base_model=manifest.base_model.id,
        tuples=manifest.snapshot.tuples,
        verdict=manifest.evaluation.verdict if manifest.evaluation else None,
    )


def version_page(registry: AdapterRegistry, version: VersionId) -> VersionPage:
    """One version, its manifest as it stands. Raises as `AdapterRegistry.read`."""
    manifest = registry.read(*version)
    state = _state_of(registry, version[:2])
    if isinstance(state, str):
        return VersionPage(manifest, False, None, (), state)
    withdrawn = registry.withdrawal(*version)
    trials = tuple(_trials(registry.decisions(*version[:2]), version[2]))
    return VersionPage(manifest, state == version[2], withdrawn, trials, None)


@dataclass(frozen=True)
class HeldOutAnswer:
    """What a version and the models beside it answered to a held-out prompt; `faults`: what is wrong with whose.
    `kind`: by what the answers were judged, and whose are `right`; empty where nobody judged them."""

    prompt: str
    expected: str
    answers: Mapping[str, str]
    faults: Mapping[str, tuple[str, ...]]
    kind: str
    right: Mapping[str, bool]


def answers_of(registry: AdapterRegistry, version: VersionId) -> tuple[HeldOutAnswer, ...]:
    """The answers that were written when a version was judged; none where its evaluation wrote none."""
    tenant, role, number = version
    try:
        found = json.loads(registry.store.get_bytes(f"adapters/{tenant}/{role}/v{number}/{EVALUATION}"))
    except NotFound:
        return ()
    except ValueError:
        raise PermanentError(
            f"the evaluation of {_name(version)} is damaged: `ec1 adapters verify` says more"
        ) from None
    return tuple(
        HeldOutAnswer(
            each["prompt"],
            each["expected"],
            each["answers"],
            each.get("faults", {}),
            each.get("kind", ""),
            each.get("right", {}),
        )
        for each in found.get("samples", ())
    )


def _trials(decisions: list[ReleaseDecision], number: int) -> Iterator[TrialRun]:
    """The trials in which a version was an arm, by its number or as the one in use when the trial began."""
    running: tuple[ReleaseDecision, str] | None = None
    for each in decisions:
        if each.action not in ("trial", "end-trial"):
            continue
        if running is not None:
            began, arm = running
            yield TrialRun(began.at, each.at, began.arms, arm, began.reason, each.reason, each.result)
        arms = [arm for arm in each.arms if arm == f"v{number}" or (arm == IN_USE and each.before == number)]
        running = (each, arms[0]) if arms else None
    if running is not None:
        began, arm = running
        yield TrialRun(began.at, None, began.arms, arm, began.reason, "", {})


def _name(version: VersionId) -> str:
    tenant, role, number = version
    return f"{tenant}/{role}@v{number}"


def parents_of(manifest: AdapterManifest) -> list[VersionId]:
    """The versions that a version rests on: what its training went on from, or compared with, or what it adds up."""
    names = [*manifest.composed_of, manifest.started_from or "", manifest.reference or ""]
    return list(dict.fromkeys(version_id(name) for name in names if _VERSION.fullmatch(name)))


def lineage_of(registry: AdapterRegistry, home: Home, tenant: str, role: str, version: int) -> Lineage:
    """Follow a version to its tuples. Raises InputError if there is none, PermanentError if its manifest is damaged."""
    return _follow(registry, home, (tenant, role, version), frozenset())


def _follow(registry: AdapterRegistry, home: Home, version: VersionId, seen: frozenset[VersionId]) -> Lineage:
    manifest = registry.read(*version)
    tuples: tuple[Origin, ...] = ()
    missing = None
    try:
        rows = trained_rows(home, manifest)
        tuples = tuple(
            _origin(digest, place, record) for digest, place, record in _records(home, manifest) if digest in rows
        )
    except PermanentError as error:
        missing = str(error)
    # A manifest that was edited could name itself.
    parents = [parent for parent in parents_of(manifest) if parent not in seen and parent != version]
    return Lineage(
        name=manifest.name,
        night=manifest.night,
        method=manifest.method,
        recipe=manifest.recipe,
        git_commit=manifest.git_commit,
        dataset=manifest.dataset.digest,
        bucket=manifest.snapshot.bucket,
        snapshot=manifest.snapshot.digest,
        tuples=tuples,
        missing=missing,
        parents=tuple(_follow(registry, home, each, seen | {version}) for each in parents),
    )


def trained_rows(home: Home, manifest: AdapterManifest) -> frozenset[str]:
    """The digests of the tuples that a version was trained on. Raises PermanentError if its dataset is not here."""
    import pyarrow.parquet as pq

    path = home.datasets / manifest.dataset.digest / "train" / "rows.parquet"
    if not path.is_file():
        raise PermanentError(f"dataset {manifest.dataset.digest[:12]} of {manifest.name} is not in this home")
    return frozenset(pq.read_table(path, columns=["row"])["row"].to_pylist())


def _records(home: Home, manifest: AdapterManifest) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for row in load_snapshot(home, manifest.snapshot.bucket, manifest.snapshot.digest).rows():
        yield row.digest, row.origin, row.record


def _origin(digest: str, place: str, record: Mapping[str, Any]) -> Origin:
    def value(*keys: str) -> str | None:
        for key in keys:
            for part in (record, metadata_of(record), record.get("brief")):
                if isinstance(part, Mapping) and isinstance(part.get(key), str | int) and part[key] != "":
                    return str(part[key])
        return None

    return Origin(
        digest=digest,
        place=place,
        author=value("author", "senior_identity"),
        commit=value("source_commit", "commit"),
        document=value("document_id", "document"),
        session=value("session_id", "brief_id"),
        judgement=_judgement(metadata_of(record)) if giver_of(record) is not None else None,
    )


def _judgement(noted: Mapping[str, Any]) -> str:
    of = noted.get("judged") or noted.get("adapter") or "a served answer"
    why = f", because {noted['why']}" if noted.get("why") else ""
    return f"{noted.get('verdict')} of {of}, released by {noted.get('released_by')}{why}"


def matcher(text: str) -> Callable[[str, Mapping[str, Any]], bool]:
    """What a person asks for: the beginning of a tuple's digest, `key:value`, or a name or address of somebody."""
    if _DIGEST.fullmatch(text):
        return lambda digest, record: digest.startswith(text)
    query = Wanted(source=text) if _KEYED.fullmatch(text) else Wanted(person=text)
    return lambda digest, record: query.in_record(record)


def containing(registry: AdapterRegistry, home: Home, text: str) -> Learners:
    """The versions that learnt from what `text` names (`matcher`). Raises InputError for a key that no tuple has: that
    none learnt from it would be a false all-clear."""
    if not text.strip():
        raise InputError("say what to look for: a tuple's digest, key:value, or an author")
    wanted, cache = matcher(text), dict[str, frozenset[str]]()
    key = text.partition(":")[0] if _KEYED.fullmatch(text) else None
    keyed = key is None
    own: dict[str, int] = {}
    unknown, parents = [], {}
    for manifest in _all_versions(registry):
        parents[manifest.name] = list(map(_name, parents_of(manifest)))
        try:
            digest = manifest.snapshot.digest
            if digest not in cache:
                rows = set()
                for row, _, record in _records(home, manifest):
                    keyed = keyed or _has(record, str(key))
                    if wanted(row, record):
                        rows.add(row)
                cache[digest] = frozenset(rows)
            if count := len(trained_rows(home, manifest) & cache[digest]):
                own[manifest.name] = count
        except PermanentError:
            unknown.append(manifest.name)
    if not keyed and not own and cache:
        raise InputError(f"no tuple here has {key!r}: write a key of its record or metadata, such as source_commit:…")
    return Learners({name: own.get(name, 0) for name in with_descendants(parents, set(own))}, tuple(unknown))


def _has(record: Mapping[str, Any], key: str) -> bool:
    """Whether a record says anything under a key, with dots for what is further inside."""
    places = (record, metadata_of(record))
    return any(place.get(key) is not None for place in places) or any(
        source.startswith(f"{key}:") for source in sources_of(record, [key])
    )


def with_descendants(parents: Mapping[str, list[str]], versions: set[str]) -> list[str]:
    """These versions and all that rest on one of them, in the order of `parents` (version -> what it rests on)."""
    found = set(versions)
    while True:
        more = {name for name, rests_on in parents.items() if name not in found and not found.isdisjoint(rests_on)}
        if not more:
            return [name for name in parents if name in found]
        found |= more


def descendants(registry: AdapterRegistry, versions: set[str]) -> list[str]:
    """These versions and all that went on from one of them."""
    parents = {manifest.name: list(map(_name, parents_of(manifest))) for manifest in _all_versions(registry)}
    return with_descendants(parents, versions)


def _all_versions(registry: AdapterRegistry) -> Iterator[AdapterManifest]:
    for version in version_ids(registry):
        with contextlib.suppress(PermanentError):
            yield registry.read(*version)

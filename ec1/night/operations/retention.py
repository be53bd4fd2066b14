"""What is removed when it is old, so that a disk does not fill: versions, the weights of runs, quarantine, leftovers,
and what nothing that is kept refers to (`unused.py`).

Belongs here: the choice. Does not: how a version is removed (`registry.py`, which refuses the incumbent and the best),
and the log book of runs: recipe, lock, figures and curves of every run are always kept.
"""

import logging
import re
import shutil
from collections.abc import Iterator

from ec1.adapters.manifest import MANIFEST
from ec1.adapters.registry import AdapterRegistry
from ec1.errors import PermanentError
from ec1.home import Home
from ec1.night.operations.cleanup import QUIET_SECONDS, Removed, age_of, remove
from ec1.night.operations.unused import clean_unused
from ec1.night_settings import RetentionSettings
from ec1.storage.store import ObjectInfo
from ec1.training.copies import STEPS
from ec1.training.spec import ADAPTER, CHECKPOINTS, MODEL

log = logging.getLogger(__name__)

# How temporary files and folders are called here: `.name.` and eight characters, or one of these prefixes.
_TEMPORARY = re.compile(r"\.(?:ec1-tmp-|building-).*|\..+\.[a-z0-9_]{8}")
_QUARANTINED = re.compile(r"quarantine/([a-z0-9-]{1,64})/([a-z0-9-]{1,64})/([^/]+)/(.+)")


def clean(
    registry: AdapterRegistry, home: Home, settings: RetentionSettings, *, dry_run: bool = False
) -> list[Removed]:
    """Remove what `settings` do not keep. Safe to repeat, and while a night or a backfill runs."""
    return [
        *_versions(registry, settings.versions, dry_run),
        *_runs(home, settings.runs, dry_run),
        *_quarantined(registry, home, settings.quarantined, dry_run),
        *_leftovers(home, dry_run),
        *clean_unused(registry, home, settings, dry_run=dry_run),
    ]


def _versions(registry: AdapterRegistry, keep: int, dry_run: bool) -> Iterator[Removed]:
    for tenant, role in registry.roles():
        try:
            expendable = registry.expendable(tenant, role, keep)
        except PermanentError as error:
            # What a role needs cannot be told: nothing of it is removed, and the other roles are none the worse.
            log.warning("%s", error)
            continue
        for manifest in expendable:
            assert manifest.version is not None
            size = sum(entry.size for entry in manifest.files.values())
            why = f"not among the {keep} best, nor the newest or the one in use"
            if not dry_run:
                registry.remove(tenant, role, manifest.version, why)
            yield Removed("version", manifest.name, size, why)


def _runs(home: Home, keep: int, dry_run: bool) -> Iterator[Removed]:
    """Weights and checkpoints of a role's older nights."""
    for role in sorted(home.runs.glob("*/*")):
        nights = sorted((path for path in role.iterdir() if path.is_dir()), key=lambda path: path.name)
        for night in nights[:-keep]:
            if age_of(night) < QUIET_SECONDS:
                continue
            for name in (CHECKPOINTS, STEPS, ADAPTER, MODEL):
                for folder in sorted(night.glob(f"**/{name}")):
                    if folder.is_dir():
                        where = folder.relative_to(home.runs).as_posix()
                        yield remove(folder, "run", where, f"older than the {keep} newest nights", dry_run)


def _quarantined(registry: AdapterRegistry, home: Home, keep: int, dry_run: bool) -> Iterator[Removed]:
    places: dict[tuple[str, str], dict[str, list[ObjectInfo]]] = {}
    for item in registry.store.list("quarantine/"):
        if match := _QUARANTINED.fullmatch(item.key):
            tenant, role, place, _ = match.groups()
            places.setdefault((tenant, role), {}).setdefault(place, []).append(item)
    for (tenant, role), found in sorted(places.items()):
        # Not by their nights: a backfill's candidate is new, however old its night.
        for place in sorted(found, key=lambda place: (max(item.updated for item in found[place]), place))[:-keep]:
            if not dry_run:
                # The manifest first: without it the rest is not a candidate any more.
                for item in sorted(found[place], key=lambda item: not item.key.endswith(f"/{MANIFEST}")):
                    registry.store.delete(item.key)
                shutil.rmtree(home.quarantine / tenant / role / place, ignore_errors=True)
            why = f"older than the {keep} newest candidates"
            yield Removed("quarantine", f"{tenant}/{role}/{place}", sum(item.size for item in found[place]), why)


def _leftovers(home: Home, dry_run: bool) -> Iterator[Removed]:
    """What writers that were killed left behind under a hidden, temporary name."""
    places = (home.adapters, home.quarantine, home.runs, home.datasets, home.snapshots, home.models, home.pending)
    for root in places:
        for path in sorted(root.rglob(".*")):
            if _TEMPORARY.fullmatch(path.name) and path.exists() and age_of(path) > QUIET_SECONDS:
                why = "left by a process that was killed more than a day ago"
                yield remove(path, "leftover", path.relative_to(home.root).as_posix(), why, dry_run)

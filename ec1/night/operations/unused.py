"""What a home holds and nobody needs any more: snapshots, datasets, extractions of extractors that are gone, logs, and
the bulky part of old nights.

Belongs here: what still needs what. Does not: versions, weights of runs and quarantine (`retention.py`), and Dagster's
runs (`jobs/retention.py`). Records, failures, reports, evaluations and the log book of trainings are always kept; so
are removals, splits and high-water marks.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ec1.adapters.manifest import MANIFEST
from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.threshold import HighWaterMark
from ec1.documents.ledger import extractor_fingerprint
from ec1.errors import PermanentError
from ec1.files import read_json
from ec1.graph.reader import published_ledger
from ec1.home import Home
from ec1.night.operations.cleanup import QUIET_SECONDS, Removed, age_of, newest, remove
from ec1.night_settings import RetentionSettings

_BULK = ("*.png", "source_documents.json")
"""Of an old night: plots, and the listing of all documents. What they were made from is in the records."""


@dataclass
class _Needed:
    """Digests that something refers to."""

    snapshots: set[str] = field(default_factory=set)
    datasets: set[str] = field(default_factory=set)


def clean_unused(
    registry: AdapterRegistry, home: Home, settings: RetentionSettings, *, dry_run: bool = False
) -> Iterator[Removed]:
    """Remove what nothing that is kept refers to. Safe to repeat, and while a night or a backfill runs.

    Raises EC1Error, before anything is removed, if a record that says what is needed cannot be read.
    """
    needed = _needed(registry, home, settings)
    yield from _unreferenced(home, needed, dry_run)
    yield from _outbox(home, settings.unused_days * 24 * 3600, dry_run)
    yield from _logs(home, settings.log_days * 24 * 3600, dry_run)
    yield from _nights(home, settings.nights, dry_run)


def _needed(registry: AdapterRegistry, home: Home, settings: RetentionSettings) -> _Needed:
    """What versions, quarantined candidates, high-water marks and the newest nights refer to."""
    needed = _Needed()
    # Versions, withdrawn ones too, and candidates.
    for item in (*registry.store.list("adapters/"), *registry.store.list("quarantine/")):
        if item.key.endswith(f"/{MANIFEST}"):
            manifest = _manifest(registry, item.key)
            needed.snapshots.add(manifest["snapshot"])
            needed.datasets.add(manifest["dataset"])
    for path in home.high_water_marks.glob("*/*.json"):
        last: dict[str, str] = {}
        entries = HighWaterMark(home, path.parent.name, path.stem).history()
        kept = newest({entry["night"]: float(place) for place, entry in enumerate(entries)}, settings.nights)
        for entry in sorted(entries, key=lambda entry: entry["night"]):
            last[entry.get("recipe", "")] = entry["digest"]
            if entry["night"] in kept:
                needed.snapshots.add(entry["digest"])
        needed.snapshots.update(last.values())
    for role in home.runs.glob("*/*"):
        for night in _kept_folders(role, settings.nights):
            for record in night.glob("records/corpus_snapshot/*.json"):
                needed.snapshots.add(read_json(record)["digest"])
            for record in night.glob("records/training_dataset/*.json"):
                needed.datasets.add(read_json(record)["digest"])
                needed.snapshots.add(read_json(record)["snapshot"])
            for spec in night.glob("**/spec.json"):
                needed.datasets.add(read_json(spec)["dataset_digest"])
    return needed


def _unreferenced(home: Home, needed: _Needed, dry_run: bool) -> Iterator[Removed]:
    why = "no kept version, candidate, high-water mark or night refers to it"
    for what, folders, digests in (
        ("snapshot", sorted(home.snapshots.glob("*/*")), needed.snapshots),
        ("dataset", sorted(home.datasets.glob("*")), needed.datasets),
    ):
        for folder in folders:
            hidden = folder.name.startswith(".")
            if not hidden and folder.is_dir() and folder.name not in digests and age_of(folder) > QUIET_SECONDS:
                yield remove(folder, what, folder.relative_to(home.root).as_posix(), why, dry_run)


def _outbox(home: Home, unused_seconds: float, dry_run: bool) -> Iterator[Removed]:
    """Results of extractors that no document in the graph counts under and that were not added to for long."""
    old = [path for path in sorted(home.outbox.glob("*")) if path.is_dir() and age_of(path) > unused_seconds]
    if not old:
        return
    used = {extractor_fingerprint(entry.fingerprint) for entry in published_ledger(home.published_graph).values()}
    # Without a graph, the outbox is what it is filled from again.
    for folder in old if used else ():
        if folder.name not in used:
            why = f"no document counts as this extractor read it, and it read none for {unused_seconds / 86400:g} days"
            yield remove(folder, "extractions", f"outbox/{folder.name[:12]}", why, dry_run)


def _logs(home: Home, keep_seconds: float, dry_run: bool) -> Iterator[Removed]:
    for path in sorted(home.logs.rglob("*")):
        if path.is_file() and age_of(path) > keep_seconds:
            name = path.relative_to(home.root).as_posix()
            yield remove(path, "log", name, f"older than {keep_seconds / 86400:g} days", dry_run)


def _nights(home: Home, keep: int, dry_run: bool) -> Iterator[Removed]:
    """Plots and listings of old nights, and the plots of old trainings."""
    for parent in (home.nights, *sorted(home.runs.glob("*/*"))):
        kept = set(_kept_folders(parent, keep))
        for night in sorted(_night_folders(parent)):
            if night in kept or age_of(night) < QUIET_SECONDS:
                continue
            for pattern in _BULK:
                for path in sorted(night.glob(pattern)):
                    name = path.relative_to(home.root).as_posix()
                    yield remove(path, "night", name, f"older than the {keep} newest nights", dry_run)


def _kept_folders(parent: Path, keep: int) -> list[Path]:
    folders = _night_folders(parent)
    kept = newest({path.name: path.stat().st_mtime for path in folders}, keep)
    return [path for path in folders if path.name in kept]


def _night_folders(parent: Path) -> list[Path]:
    return [path for path in parent.glob("*") if path.is_dir() and not path.name.startswith(".")]


def _manifest(registry: AdapterRegistry, key: str) -> dict[str, Any]:
    try:
        value = json.loads(registry.store.get_bytes(key))
        return {"snapshot": value["snapshot"]["digest"], "dataset": value["dataset"]["digest"]}
    except (ValueError, KeyError, TypeError):
        raise PermanentError(
            f"{key} is damaged, so nobody knows what it rests on: nothing is cleaned up until it is restored or removed"
        ) from None

"""What is removed when it is old, and what never is."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from scoring_registry import ScoringRegistry

from ec1.adapters.manifest import AdapterManifest
from ec1.adapters.registry import AdapterRegistry
from ec1.errors import InputError
from ec1.home import Home
from ec1.night.operations.retention import clean
from ec1.night_settings import RetentionSettings
from ec1.storage.directory import DirectoryStore
from ec1.storage.store import ObjectStore

MakeCandidate = Callable[..., Path]
Manifest = Callable[..., AdapterManifest]
WHO = ("fernhollow", "engineering")
GAINS = (0.10, 0.50, 0.20, 0.30, 0.05)
"""How far each version was above the base: v2 is the best, v5 the newest and the one in use."""


@pytest.fixture
def home(store: ObjectStore, tmp_path: Path) -> Home:
    return Home(store.root if isinstance(store, DirectoryStore) else tmp_path / "home")


@pytest.fixture
def registry(store: ObjectStore, home: Home, make_candidate: MakeCandidate, manifest: Manifest) -> AdapterRegistry:
    registry = ScoringRegistry(store, home.adapters)
    for number, gain in enumerate(GAINS, start=1):
        registry.publish(make_candidate(number), manifest(f"2026-06-0{number}", gain=gain))
        registry.fetch(*WHO, number)
    return registry


def keeping(versions: int = 99, runs: int = 99, quarantined: int = 99) -> RetentionSettings:
    return RetentionSettings(versions=versions, runs=runs, quarantined=quarantined)


def age(path: Path) -> None:
    """Let a file, or a folder with all that is in it, look two days old."""
    old = time.time() - 2 * 24 * 3600
    for each in (*path.rglob("*"), path):
        os.utime(each, (old, old))


def test_the_best_versions_stay_and_so_do_the_best_and_the_one_in_use(registry: AdapterRegistry, home: Home) -> None:
    foreseen = clean(registry, home, keeping(versions=2), dry_run=True)
    assert registry.versions(*WHO) == [1, 2, 3, 4, 5], "a dry run removes nothing"
    removed = clean(registry, home, keeping(versions=2))
    assert removed == foreseen
    assert [each.name for each in removed] == ["fernhollow/engineering@v1", "fernhollow/engineering@v3"]
    assert all(each.bytes > 0 for each in removed)
    assert registry.versions(*WHO) == [2, 4, 5]
    assert [path.name for path in sorted((registry.local / "/".join(WHO)).glob("v*"))] == ["v2", "v4", "v5"]
    assert (registry.best(*WHO), registry.incumbent(*WHO)) == (registry.get(*WHO, 2), registry.get(*WHO, 5))
    assert all(registry.verify(*WHO, version) == [] for version in (2, 4, 5))
    assert clean(registry, home, keeping(versions=2)) == []
    # An auditor still finds what v3 was.
    record = json.loads(registry.store.get_bytes("adapters/.removed/fernhollow_engineering_v3.json"))
    assert AdapterManifest.model_validate(record["manifest"]).night == "2026-06-03"


def test_a_person_s_choice_and_withdrawn_versions_are_never_removed(registry: AdapterRegistry, home: Home) -> None:
    registry.promote(*WHO, 1, "the newer ones answer too long")
    registry.withdraw(*WHO, 3, "made things up")
    clean(registry, home, keeping(versions=1))
    assert registry.versions(*WHO) == [1, 2, 3, 5], "in use, best, withdrawn, newest"
    incumbent = registry.incumbent(*WHO)
    assert incumbent is not None and incumbent.version == 1
    for version in (1, 2, 5):
        with pytest.raises(InputError, match="is not removed: it is the version in use, the best or the newest"):
            registry.remove(*WHO, version, "no room")


def test_a_number_is_not_used_again(
    registry: AdapterRegistry, home: Home, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    clean(registry, home, keeping(versions=1))
    assert registry.publish(make_candidate(9), manifest("2026-06-09")).version == 6


def test_old_candidates_leave_quarantine(
    registry: AdapterRegistry, home: Home, make_candidate: MakeCandidate, manifest: Manifest
) -> None:
    for night in range(1, 5):
        registry.quarantine(
            make_candidate(20 + night), manifest(f"2026-06-0{night}", verdict="rejected"), "worse than the base"
        )
    removed = clean(registry, home, keeping(quarantined=2))
    assert [(each.what, each.name.split("/")[-1][:10]) for each in removed] == [
        ("quarantine", "2026-06-01"),
        ("quarantine", "2026-06-02"),
    ]
    for places in (
        {item.key.split("/")[3][:10] for item in registry.store.list("quarantine/")},
        {path.name[:10] for path in (home.quarantine / "/".join(WHO)).iterdir()},
    ):
        assert places == {"2026-06-03", "2026-06-04"}


def test_the_log_book_outlives_the_weights(registry: AdapterRegistry, home: Home) -> None:
    for night in range(1, 4):
        folder = home.run(*WHO, f"2026-06-0{night}") / "training"
        for name in ("adapter/adapter_model.safetensors", "checkpoints/checkpoint-5/optimizer.pt", "metrics.parquet"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"x" * 1000)
        (folder / "run.json").write_text("{}")
    assert clean(registry, home, keeping(runs=2)) == [], "a backfill may be at work on that old night"
    age(home.runs)
    removed = clean(registry, home, keeping(runs=2))
    assert [each.name for each in removed] == [
        "fernhollow/engineering/2026-06-01/training/checkpoints",
        "fernhollow/engineering/2026-06-01/training/adapter",
    ]
    assert sum(each.bytes for each in removed) == 2000
    oldest = home.run(*WHO, "2026-06-01") / "training"
    assert sorted(path.name for path in oldest.iterdir()) == ["metrics.parquet", "run.json"]
    assert (home.run(*WHO, "2026-06-02") / "training" / "adapter").is_dir()


def test_leftovers_of_killed_writers_go_after_a_day(registry: AdapterRegistry, home: Home) -> None:
    dead, alive = home.datasets / ".building-a1b2c3d4", home.adapters / "fernhollow" / ".v7.k3j4h5g6"
    for folder in (dead, alive):
        folder.mkdir(parents=True)
        (folder / "part").write_bytes(b"x" * 10)
    stray = home.runs / ".summary.json.abcd1234"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"x")
    age(dead)
    age(stray)
    removed = clean(registry, home, keeping())
    assert [(each.what, each.name) for each in removed] == [
        ("leftover", "runs/.summary.json.abcd1234"),
        ("leftover", "datasets/.building-a1b2c3d4"),
    ]
    assert alive.is_dir(), "somebody is at work there"
    assert [key for key in (item.key for item in registry.store.list("adapters/.events/"))], "announcements stay"

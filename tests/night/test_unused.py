"""What nothing refers to any more is removed, and nothing else: each kind of reference is tried."""

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from published import ROLE, TENANT, publish

from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.threshold import HighWaterMark
from ec1.errors import PermanentError
from ec1.files import write_json
from ec1.home import Home
from ec1.night.operations import unused
from ec1.night.operations.forecast import forecast_home
from ec1.night.operations.retention import clean
from ec1.night.records import Records, RetentionRecord
from ec1.night_settings import RetentionSettings
from ec1.storage.directory import DirectoryStore

KEEP = RetentionSettings(nights=2, unused_days=30, log_days=10)
NIGHTS = ("2026-06-01", "2026-06-02", "2026-06-03")


def digest(letter: str) -> str:
    return letter * 64


def filled(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def aged(root: Path, days: float) -> None:
    """Let everything below look so old."""
    moment = time.time() - days * 24 * 3600
    for each in (*root.rglob("*"), root):
        os.utime(each, (moment, moment))


@pytest.fixture
def registry(home: Home, tmp_path: Path) -> AdapterRegistry:
    """v1 was trained on snapshot c and dataset b; recipes' nights used s1 to s3 and d1 to d3."""
    registry = AdapterRegistry(DirectoryStore(home.root), home.adapters)
    publish(registry, tmp_path, 1)
    bucket = f"{ROLE}-{TENANT}"
    for letter in "cde123":
        filled(home.snapshots / bucket / digest(letter))
    for letter in "bf123":
        filled(home.datasets / digest(letter))
    mark = HighWaterMark(home, TENANT, ROLE)
    mark.advance(digest("e"), "2026-05-01", "r", recipe="this recipe")
    mark.advance(digest("d"), "2026-05-02", "r", recipe="an old recipe's newest")
    mark.advance(digest("2"), "2026-06-02", "r", recipe="this recipe")
    mark.advance(digest("3"), "2026-06-03", "r", recipe="this recipe")
    for number, night in enumerate(NIGHTS, start=1):
        records = home.run(TENANT, ROLE, night) / "records"
        write_json(records / "corpus_snapshot" / "r.json", {"digest": digest(str(number)), "bucket": bucket})
        write_json(records / "training_dataset" / "r.json", {"digest": digest(str(number)), "snapshot": digest("3")})
        (home.run(TENANT, ROLE, night) / "loss.png").write_bytes(b"png")
        folder = home.night(night)
        write_json(folder / "records" / "extraction" / "r.json", {})
        write_json(folder / "failure-r.json", {})
        for name in ("growth-entities.png", "source_documents.json"):
            (folder / name).write_text("bulk")
    return registry


def left(folder: Path) -> str:
    return "".join(sorted(path.name[0] for path in folder.iterdir()))


def test_what_something_refers_to_stays(registry: AdapterRegistry, home: Home) -> None:
    everything = {path for path in home.root.rglob("*") if path.is_file()}
    assert clean(registry, home, KEEP) == [], "a night that is at work may need what is new"
    for root in (home.snapshots, home.datasets, home.nights, home.runs):
        aged(root, 2)
    # The oldest night was worked on last: a backfill.
    os.utime(home.night(NIGHTS[0]))
    foreseen = clean(registry, home, KEEP, dry_run=True)
    assert {path for path in home.root.rglob("*") if path.is_file()} == everything
    assert clean(registry, home, KEEP) == foreseen
    # c: the version's; d, 3: the newest that each recipe was trained on; 2, 3: the newest nights'. Not e, not 1.
    assert left(home.snapshots / f"{ROLE}-{TENANT}") == "23cd"
    assert left(home.datasets) == "23b"
    assert not (home.run(TENANT, ROLE, NIGHTS[0]) / "loss.png").exists()
    assert (home.run(TENANT, ROLE, NIGHTS[1]) / "loss.png").exists()
    assert all((home.night(night) / "source_documents.json").exists() for night in (NIGHTS[0], NIGHTS[2]))
    kept = {path for path in everything if "records" in path.parts or path.name == "failure-r.json"}
    assert all(path.exists() for path in kept), "what was written down stays"
    assert clean(registry, home, KEEP) == []
    assert registry.verify(TENANT, ROLE, 1) == []


def test_a_damaged_manifest_stops_the_clean_up(registry: AdapterRegistry, home: Home) -> None:
    aged(home.snapshots, 2)
    (home.adapters / TENANT / ROLE / "v1" / "manifest.json").write_text("{")
    with pytest.raises(PermanentError, match="nobody knows what it rests on"):
        list(unused.clean_unused(registry, home, KEEP))
    assert left(home.snapshots / f"{ROLE}-{TENANT}") == "123cde"


def test_results_of_extractors_that_are_gone_and_old_logs(
    registry: AdapterRegistry, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for letter in "abc":
        filled(home.outbox / digest(letter) / "00")
    aged(home.outbox, 40)
    os.utime(home.outbox / digest("c"))
    (home.logs / "old.log").parent.mkdir(parents=True)
    for name in ("old.log", "new.log"):
        (home.logs / name).write_text(name)
    os.utime(home.logs / "old.log", (0, 0))
    assert [each.what for each in clean(registry, home, KEEP)] == ["log"], "without a graph the outbox fills it again"
    entry = SimpleNamespace(fingerprint=digest("a"))
    # Only which extractors the ledger names is asked here; the graph has tests of its own.
    monkeypatch.setattr(unused, "published_ledger", lambda path: {("stream", "path"): entry})
    assert [each.name for each in clean(registry, home, KEEP)] == [f"outbox/{digest('b')[:12]}"]
    assert left(home.outbox) == "ac" and [path.name for path in home.logs.iterdir()] == ["new.log"]


def test_the_forecast_follows_what_nights_wrote_down(home: Home) -> None:
    home.create()
    assert forecast_home(home).growth is None
    (home.root / "file").write_bytes(b"x" * 1000)
    for night, size in zip(NIGHTS, (1000, 3000, 5000), strict=True):
        Records(home.night(night)).write("r", RetentionRecord(home_bytes=size))
    found = forecast_home(home)
    assert (found.nights, found.growth) == (3, 2000.0)
    assert found.size > 1000 and found.until_full == int(found.free / 2000)
    Records(home.night("2026-06-04")).write("r", RetentionRecord(home_bytes=1000))
    assert forecast_home(home).until_full is None, "it does not grow"

"""Each kind of file of a home, cut, with a flipped bit, or gone: what the next night makes of it.

Allowed is: as if nothing had happened (built again), what a kind names (the checkpoint before, a document read again),
or one line that says what to do. Never a traceback, and never another value without a word. `make soak` prints them.
"""

import datetime as dt
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from damage import cut, flip
from graph_samples import key, result

from ec1 import seals
from ec1.adapters.manifest import AdapterManifest
from ec1.corpus.threshold import HighWaterMark
from ec1.deployment import load_deployment
from ec1.documents.listing import Listing
from ec1.errors import EC1Error
from ec1.extraction.reading.outbox import Outbox
from ec1.extraction.results import ExtractionResult
from ec1.graph.ladybug_store import LadybugStore
from ec1.graph.reader import GraphReader
from ec1.home import Home
from ec1.night.health.databases import damaged_databases
from ec1.night.records import DatasetRecord, SnapshotRecord
from ec1.night.steps.recipe_night import RecipeNight
from ec1.night.steps.recipes import nightly_recipes
from ec1.training.checkpoints import newest_checkpoint, seal

NIGHT = "2026-06-05"
MODEL = "HuggingFaceTB/SmolLM2-135M-Instruct"
DEPLOYMENT = """\
tenant: acme
recipes: [recipes]
models:
  HuggingFaceTB/SmolLM2-135M-Instruct: {{source: directory, path: {model}}}
inference: {{kind: server, base_url: "http://127.0.0.1:9", model: HuggingFaceTB/SmolLM2-135M-Instruct}}
gpu: {{device: cpu, min_free_gib: 0.5, name: this CPU, memory_gib: 8, tokens_per_second: 400}}
"""
RECIPE = f"""\
extends: pointsav/engineering
version: 1
tenant: acme
role: texts
base_model: {{id: {MODEL}}}
data: {{max_length: 64, threshold: 1}}
hardware: {{device: cpu, memory_gib: 8}}
"""
UNIT = ("f" * 64, "c" * 64)


@dataclass(frozen=True)
class Place:
    """A project and a copy of its home."""

    project: Path
    home: Home

    @property
    def step(self) -> RecipeNight:
        deployment = load_deployment("tiny", self.project)
        (resolved,) = nightly_recipes(deployment, self.project)
        return RecipeNight(resolved, deployment, self.home, deployment.night(NIGHT))


def rows(place: Place) -> object:
    dataset = place.step.built_dataset()
    return [dataset.digest, *(dataset.rows(side).to_list() for side in ("train", "heldout"))]


def snapshot_rows(place: Place) -> object:
    """What the snapshot is for: the dataset that is made of it."""
    shutil.rmtree(place.home.datasets)
    return rows(place)


def decision(place: Place) -> object:
    found = place.step.decision(place.step.taken_snapshot())
    return [found.train, found.new]


def outbox(place: Place) -> object:
    return Outbox(place.home.outbox).get(*UNIT)


def graph(place: Place) -> object:
    """The documents in the graph, applied from the outbox if they are not there."""
    with LadybugStore.open(
        place.home.graph, buffer_pool_mib=64, wait_seconds=0, published=place.home.published_graph
    ) as store:
        if store.recovered and not store.ledger():
            return "filled again"
        assert store.digest() == store.recounted_digest()
        return store.digest()


def published(place: Place) -> object:
    """What readers see after the next night."""
    with LadybugStore.open(
        place.home.graph, buffer_pool_mib=64, wait_seconds=0, published=place.home.published_graph
    ) as store:
        store.publish(place.home.published_graph)
    with GraphReader(place.home.published_graph) as reader:
        assert reader.digest() == reader.recounted_digest()
        return reader.digest()


def checkpoint(place: Place) -> object:
    found = newest_checkpoint(place.step.folder / "training" / "checkpoints")
    return None if found is None else found.name


def adapter(place: Place) -> object:
    registry = place.step.registry
    folder = registry.fetch("fernhollow", "engineering", 1)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def listing(place: Place) -> object:
    return Listing.load(place.home.night(NIGHT) / "source_documents.json")


def history(place: Place) -> object:
    for problem in damaged_databases(place.home):
        raise EC1Error(problem)
    return "whole"


@dataclass(frozen=True)
class Kind:
    """Where the file lies (a pattern in the home), who reads it, and what else than the same value is right."""

    pattern: str
    read: Callable[[Place], object]
    instead: tuple[object, ...] = ()


KINDS = {
    "snapshot: manifest": Kind("snapshots/*/*/manifest.json", snapshot_rows),
    "snapshot: tuples": Kind("snapshots/*/*/tuples-*.jsonl", snapshot_rows),
    "snapshot: index": Kind("snapshots/*/*/tuples-*.npy", snapshot_rows),
    "snapshot: index, to decide": Kind("snapshots/*/*/tuples-*.npy", decision),
    "dataset: manifest": Kind("datasets/*/manifest.json", rows),
    "dataset: train": Kind("datasets/*/train/rows.parquet", rows),
    "dataset: held out": Kind("datasets/*/heldout/rows.parquet", rows),
    "dataset: note in the cache": Kind("cache/datasets/*.json", rows),
    "checkpoint: state": Kind("runs/**/checkpoint-20/optimizer.pt", checkpoint, ("checkpoint-10",)),
    "checkpoint: seal": Kind("runs/**/checkpoint-20/sealed.json", checkpoint, ("checkpoint-10",)),
    "outbox: result": Kind("outbox/*/*/*.json", outbox, (None,)),
    "graph: live": Kind("graph/live", graph),
    "graph: published": Kind("graph/published", published),
    "graph: seal": Kind("graph/live.seal", graph),
    "adapter: manifest": Kind("adapters/*/*/v1/manifest.json", adapter),
    "adapter: weights": Kind("adapters/*/*/v1/adapter_model.safetensors", adapter),
    "adapter: configuration": Kind("adapters/*/*/v1/adapter_config.json", adapter),
    "night: listing": Kind(f"nights/{NIGHT}/source_documents.json", listing),
    "record of a step": Kind("runs/**/records/training_dataset/*.json", rows),
    "history": Kind("dagster/history/runs.db", history),
}


DAMAGE: dict[str, Callable[[Path], Any]] = {"cut": cut, "flipped": flip, "gone": Path.unlink}
# No digest is kept of these; a changed letter in a name is another name, and is told when it is not found.
UNSEALED = {("night: listing", "flipped"), ("record of a step", "flipped")}


@pytest.fixture
def place(
    tmp_path: Path,
    tiny_model: Path,
    make_candidate: Callable[..., Path],
    manifest: Callable[..., AdapterManifest],
) -> Iterator[Place]:
    """A home with one file of every kind."""
    for path, text in {
        "configs/deployments/tiny.yaml": DEPLOYMENT.format(model=tiny_model),
        "recipes/texts.yaml": RECIPE,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    place = Place(tmp_path, Home(tmp_path / "whole"))
    corpus = place.home.corpus / "texts"
    corpus.mkdir(parents=True)
    lines = [
        json.dumps({"prompt": f"What is in aisle {n}?", "completion": f"Crates, {n * 37} of them.", "session_id": n})
        for n in range(40)
    ]
    (corpus / "all.jsonl").write_text("\n".join(lines) + "\n")
    long_ago = dt.datetime(2026, 6, 1, tzinfo=dt.UTC).timestamp()
    os.utime(corpus / "all.jsonl", (long_ago, long_ago))
    step, now = place.step, dt.datetime.now(dt.UTC)
    snapshot = step.snapshot(now)
    taken = SnapshotRecord(bucket=snapshot.bucket, digest=snapshot.digest, as_of=step.night.as_of(now))
    step.records.write("r1", taken)
    dataset = step.dataset(snapshot)
    record = DatasetRecord(digest=dataset.digest, snapshot=snapshot.digest, plan=step.plan(dataset))
    step.records.write("r1", record)
    HighWaterMark(place.home, "acme", "texts").advance(snapshot.digest, NIGHT, "r1", step.resolved.digest)
    for number in (10, 20):
        folder = step.folder / "training" / "checkpoints" / f"checkpoint-{number}"
        folder.mkdir(parents=True)
        (folder / "optimizer.pt").write_bytes(os.urandom(512))
        seal(folder)
    unit = ExtractionResult(fingerprint=UNIT[0], content_sha256=UNIT[1], stream="meeting", status="complete")
    Outbox(place.home.outbox).put(unit)
    with LadybugStore.open(
        place.home.graph, buffer_pool_mib=64, wait_seconds=0, published=place.home.published_graph
    ) as store:
        store.apply(key("a.md"), "mk-a", result("a", ("Ann Ek", "Person")), NIGHT)
        store.publish(place.home.published_graph)
    step.registry.publish(make_candidate(1), manifest(gain=0.5, override="made for a test"))
    Listing(night=NIGHT, as_of=now, changed=(), vanished=(), rejected=(), unchanged={}).save(
        place.home.night(NIGHT) / "source_documents.json"
    )
    (place.home.dagster / "history").mkdir(parents=True)
    with sqlite3.connect(place.home.dagster / "history" / "runs.db") as database:
        database.execute("CREATE TABLE runs (id TEXT)")
        database.executemany("INSERT INTO runs VALUES (?)", [("x" * 500,)] * 50)
    yield place


def outcome(kind: Kind, damage: Callable[[Path], Any], place: Place, expected: object) -> tuple[str, bool]:
    """What was made of the damage, in words, and whether that is right."""
    (path, *_) = sorted(place.home.root.glob(kind.pattern))
    damage(path)
    # Another process reads it: this one may have hashed a file that had the same inode, and is no more.
    seals._hashed.clear()
    try:
        value = kind.read(place)
    except EC1Error as error:
        return f"told: {str(error).replace(str(place.home.root), '')[:140]}", "\n" not in str(error)
    except Exception as error:  # noqa: BLE001  what must not happen
        return f"TRACEBACK {type(error).__name__}: {str(error)[:140]}", False
    if value == expected:
        return "as if nothing had happened", True
    return f"another: {str(value)[:60]}", value in kind.instead


def test_a_dataset_that_was_removed_is_built_again_and_none_that_is_damaged(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Retention had removed it: the next look at its night noted damage."""
    expected = rows(place)
    shutil.rmtree(place.home.datasets)
    assert rows(place) == expected and not caplog.records
    cut(next(place.home.datasets.glob("*/manifest.json")))
    assert rows(place) == expected and "it is built again" in caplog.text


@pytest.mark.soak
def test_no_damage_is_a_traceback_or_silent(place: Place, tmp_path: Path) -> None:
    wrong = []
    for name, kind in KINDS.items():
        untouched = Place(place.project, Home(tmp_path / "untouched"))
        shutil.copytree(place.home.root, untouched.home.root)
        expected = kind.read(untouched)
        shutil.rmtree(untouched.home.root)
        for how, damage in DAMAGE.items():
            damaged = Place(place.project, Home(tmp_path / "damaged"))
            shutil.copytree(place.home.root, damaged.home.root)
            told, right = outcome(kind, damage, damaged, expected)
            print(f"{name:<28} {how:<8} {told}")
            if not right and (name, how) not in UNSEALED:
                wrong.append(f"{name}, {how}: {told}")
            shutil.rmtree(damaged.home.root)
    assert not wrong, "\n".join(wrong)

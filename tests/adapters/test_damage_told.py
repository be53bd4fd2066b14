"""What a disk damages, thing by thing: found and mended or named, and told in the words of docs/operations.md."""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from corpus_builder import NIGHT as AS_OF
from corpus_builder import edit, write_lines
from damage import flip
from failure_table import rows_of_the_table, says
from graph_samples import key, result
from night_records import NIGHT, a_night, run_of
from notice_sink import notice_sink
from scoring_registry import ScoringRegistry

from ec1.adapters.manifest import AdapterManifest
from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import build_dataset
from ec1.corpus.options import DataOptions
from ec1.corpus.snapshots import Snapshot, take_snapshot
from ec1.corpus.threshold import HighWaterMark
from ec1.deployment import Deployment
from ec1.extraction.reading.outbox import Outbox
from ec1.graph.ladybug_store import LadybugStore
from ec1.home import Home
from ec1.night.health import storage_health
from ec1.night.operations.recheck import recheck
from ec1.night.report.morning import conclude_night
from ec1.night.report.summary import night_report
from ec1.night.report.text import summary
from ec1.night.steps.marks import mend_mark
from ec1.night_settings import NotifySettings
from ec1.storage.directory import DirectoryStore

ROWS = rows_of_the_table()
DAY = dt.date(2026, 6, 1)


@dataclass(frozen=True)
class Things:
    """A home with one of each thing that a disk may damage, and what the next night does with it."""

    home: Home
    registry: ScoringRegistry

    def open_graph(self) -> None:
        with LadybugStore.open(
            self.home.graph, buffer_pool_mib=64, wait_seconds=0, published=self.home.published_graph
        ) as store:
            if not store.ledger():
                store.apply(key("a.md"), "mk-a", result("a", ("Maria Alvarez", "Person")), NIGHT)
            store.publish(self.home.published_graph)

    def recheck(self) -> None:
        recheck(self.home, self.registry, DAY)

    def mend_mark(self) -> None:
        mend_mark(self.home, "fernhollow", "engineering")

    def snapshot(self) -> Snapshot:
        write_lines(self.home.corpus / "engineering/demo/all.jsonl", [edit(number) for number in range(40)])
        of = bucket(self.home.corpus, "engineering", "acme")
        return take_snapshot(of, "sft", as_of=AS_OF, home=self.home)


@pytest.fixture
def things(home: Home) -> Things:
    storage_health.recording(home)
    return Things(home, ScoringRegistry(DirectoryStore(home.root), home.adapters))


def in_the_graph(damage: Callable[[Things], object]) -> Callable[[Things], Callable[[], None]]:
    def plant(things: Things) -> Callable[[], None]:
        things.open_graph()
        damage(things)
        return things.open_graph

    return plant


def one_byte(path: Path) -> None:
    path.write_bytes(b"x")


def in_the_outbox(things: Things) -> Callable[[], None]:
    outbox = Outbox(things.home.outbox)
    found = result("a", ("Maria Alvarez", "Person"))
    outbox.put(found)
    flip(outbox.path(found.fingerprint, found.content_sha256))
    return things.recheck


def in_a_snapshot(things: Things) -> Callable[[], None]:
    flip(next(things.snapshot().path.glob("tuples-*.jsonl")))
    return things.recheck


def in_a_mark(things: Things) -> Callable[[], None]:
    mark = HighWaterMark(things.home, "fernhollow", "engineering")
    mark.advance("a" * 64, NIGHT, "run-1")
    one_byte(mark.path)
    return things.mend_mark


def both_copies(things: Things) -> None:
    one_byte(things.home.graph)
    one_byte(things.home.published_graph)


PLANTED: dict[str, Callable[[Things], Callable[[], None]]] = {
    "a flipped bit in the graph": in_the_graph(lambda things: flip(things.home.graph)),
    "one byte left of the graph": in_the_graph(lambda things: one_byte(things.home.graph)),
    "a graph that is gone": in_the_graph(lambda things: things.home.graph.unlink()),
    "both copies of the graph damaged": in_the_graph(both_copies),
    "a flipped bit in the outbox": in_the_outbox,
    "a flipped bit in a snapshot": in_a_snapshot,
    "a damaged high-water mark": in_a_mark,
}
WITH_FIXTURES = {"a flipped bit in a dataset", "a flipped bit in the adapter in use"}


def is_told(name: str, home: Home, embedded: Deployment) -> None:
    _, reported, noticed, seen = ROWS[name]
    a_night(home).write("run-1", run_of())
    with notice_sink() as sink:
        deployment = embedded.model_copy(update={"notify": NotifySettings.model_validate({"urls": [sink.target]})})
        report = night_report(home, NIGHT)
        conclude_night(report, deployment, home, {})
    assert says(dict(summary(report))["storage"], reported), summary(report)
    assert len(sink.titles) == 1 and says(sink.titles[0], noticed), sink.titles
    (symptom,) = storage_health.symptoms(home)
    assert symptom.level == "note" and says(symptom.detail, seen), symptom


def test_every_row_of_damage_is_planted() -> None:
    damage = {name for name, (_, _, noticed, _) in ROWS.items() if noticed == ("the disk damaged",)}
    assert damage == PLANTED.keys() | WITH_FIXTURES


@pytest.mark.parametrize("name", PLANTED)
def test_damage_is_told(name: str, things: Things, embedded: Deployment) -> None:
    next_night = PLANTED[name](things)
    next_night()
    is_told(name, things.home, embedded)


def test_a_flipped_bit_in_a_dataset_is_told(things: Things, embedded: Deployment, small_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(small_model)
    made = build_dataset(things.snapshot(), DataOptions(), tokenizer, home=things.home, objective="sft")
    flip(next((things.home.datasets / made.digest).glob("train/rows.parquet")))
    things.recheck()
    is_told("a flipped bit in a dataset", things.home, embedded)


def test_a_flipped_bit_in_the_adapter_in_use_is_told(
    things: Things,
    embedded: Deployment,
    make_candidate: Callable[..., Path],
    manifest: Callable[..., AdapterManifest],
) -> None:
    things.registry.publish(make_candidate(), manifest())
    flip(things.home.adapters / "fernhollow" / "engineering" / "v1" / "adapter_model.safetensors")
    things.recheck()
    is_told("a flipped bit in the adapter in use", things.home, embedded)

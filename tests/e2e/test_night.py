"""One whole real night on the bundled sample, and what must hold of it and of the night after."""

import json

import pytest
from commandline import RealNight

from ec1.adapters.registry import AdapterRegistry
from ec1.extraction.reading.outbox import Outbox
from ec1.gpu.lease import marked_processes
from ec1.graph.reader import GraphReader, published_ledger
from ec1.night.records import CandidateRecord, EvaluationRecord, OutcomeRecord, Records
from ec1.storage.directory import DirectoryStore

pytestmark = pytest.mark.system
ROLES = ("engineering", "apprenticeship")


def registry(night: RealNight) -> AdapterRegistry:
    return AdapterRegistry(DirectoryStore(night.home.root), night.home.adapters)


def test_it_ends_well_and_says_what_it_did(real_night: RealNight) -> None:
    assert real_night.status == 0, real_night.output
    for word in ("26 read", "LLM calls", "fernhollow/engineering", "fernhollow/apprenticeship", "make ui"):
        # A table breaks its lines where they are full.
        assert word in " ".join(real_night.output.split()), real_night.output


def test_every_document_is_in_the_graph_and_every_mention_in_its_text(real_night: RealNight) -> None:
    ledger = published_ledger(real_night.home.published_graph)
    assert len(ledger) == 26
    assert {entry.status for entry in ledger.values()} == {"applied"}
    with GraphReader(real_night.home.published_graph) as graph:
        stats = graph.stats()
    assert stats.mentions > 0 and sum(stats.entities.values()) > 0
    outbox = Outbox(real_night.home.outbox)
    for entry in ledger.values():
        assert outbox.get(entry.fingerprint, entry.content_sha256) is not None


@pytest.mark.parametrize("role", ROLES)
def test_each_recipe_was_trained_judged_and_settled(real_night: RealNight, role: str) -> None:
    records = Records(real_night.home.run("fernhollow", role, real_night.night))
    trained, judged = records.read(CandidateRecord).result, records.read(EvaluationRecord)
    assert trained.status == "finished" and trained.steps > 0
    assert trained.changed_modules > 0
    assert judged.examples >= 8
    assert records.read(OutcomeRecord).verdict == judged.verdict


@pytest.mark.parametrize("role", ROLES)
def test_what_each_adapter_learnt_is_seen_in_its_answers(real_night: RealNight, role: str) -> None:
    """Answers to prompts of its own kind that nobody trained on; what the base writes is never right."""
    success = Records(real_night.home.run("fernhollow", role, real_night.night)).read(EvaluationRecord).success
    assert success is not None and success.prompts >= 50
    assert success.right["candidate"] >= 0.6 * success.prompts, success
    assert success.right["base"] <= 0.05 * success.prompts, success
    assert not success.pairs or success.wins["candidate"] >= 0.8 * success.pairs, success


def test_the_engineering_adapter_is_published_as_v1_and_intact(real_night: RealNight) -> None:
    found = registry(real_night)
    assert found.versions("fernhollow", "engineering") == [1]
    assert found.verify("fernhollow", "engineering", 1) == []
    manifest = found.get("fernhollow", "engineering", 1)
    snapshot = real_night.home.snapshots / manifest.snapshot.bucket / manifest.snapshot.digest
    assert json.loads((snapshot / "manifest.json").read_text())["trainable"] == manifest.snapshot.tuples


def test_nothing_is_left_running(real_night: RealNight) -> None:
    assert marked_processes(real_night.home.gpu_lock.resolve()) == []


def test_a_second_run_with_nothing_new_loads_no_model_and_calls_no_llm(real_night: RealNight) -> None:
    before = {path: path.stat().st_mtime_ns for path in real_night.home.logs.glob("inference-*")}
    graph = real_night.home.published_graph.stat().st_mtime_ns
    again = real_night.ec1.run("night", "--date", real_night.night, "--json")
    assert again.returncode == 0, again.stdout
    report = json.loads(again.stdout[again.stdout.index("\n{") :])
    assert report["this_run"]["documents_read"] == 0 and report["this_run"]["llm_calls"] == 0
    assert report["done"]["documents_read"] == 26 and report["done"]["llm_calls"] > 0, "the night's, not the run's"
    assert all("in an earlier run of this night" in each["detail"] for each in report["recipes"]), report["recipes"]
    assert {path: path.stat().st_mtime_ns for path in real_night.home.logs.glob("inference-*")} == before
    assert real_night.home.published_graph.stat().st_mtime_ns == graph
    assert registry(real_night).versions("fernhollow", "engineering") == [1]

"""The assets of phase 1, run in one process against servers that speak real HTTP: what they show and keep."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from fake_doorman import fake_doorman
from fake_openai import FakeServer
from fake_service_content import FakeServiceContent, fake_service_content

from ec1.home import Home
from ec1_assets import datagraph
from ec1_assets.definitions import build_defs
from resources.environment import DeploymentChoice

NIGHT = "2026-06-01"
ASSETS = ("source_documents", "meeting_entities", "research_entities", "contact_entities", "graph_mutations")
DEPLOYMENT = """
tenant: acme
recipes: [recipes]
models: {{some/model: {{source: directory, path: model}}}}
inference: {{kind: doorman, base_url: "{doorman}", model: some/model, ready_timeout_seconds: 0.3, poll_seconds: 0.05}}
extraction: {{chunk_tokens: 40, overlap_tokens: 0, max_answer_tokens: 100, max_attempts: 1, gold: gold.jsonl}}
graph_stores: [{stores}]
service_content: {{base_url: "{service}", max_attempts: 1}}
graph: {{buffer_pool_mib: 64}}
schedule: {{first_night: 2026-06-01}}
"""


class Project:
    """One deployment in a separate folder, and its nights."""

    def __init__(self, folder: Path, words: Path, doorman: FakeServer, service: FakeServiceContent) -> None:
        self.folder, self.home = folder, Home(folder / "home")
        self.urls = {"doorman": doorman.url, "service": service.url}
        (folder / "configs" / "deployments").mkdir(parents=True)
        (folder / "recipes").mkdir()
        shutil.copytree(words, folder / "model")
        (folder / "model" / "config.json").write_text("{}")
        gold = {"stream": "meeting", "path": "service-minutebook/assets/0.md"}
        entities = [{"name": "Alma Reyes", "class": "Person"}, {"name": "Harbour Hall", "class": "Location"}]
        (folder / "gold.jsonl").write_text(json.dumps({**gold, "entities": entities}) + "\n")
        self.use("ladybug, service_content")

    def use(self, stores: str, more: str = "") -> None:
        path = self.folder / "configs" / "deployments" / "here.yaml"
        path.write_text(DEPLOYMENT.format(stores=stores, **self.urls) + more)

    def write(self, path: str, text: str) -> None:
        file = self.home.documents / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (1_780_300_000, 1_780_300_000))

    def night(self, date: str = NIGHT) -> dg.ExecuteInProcessResult:
        definitions = build_defs(DeploymentChoice("here", self.home.root, self.folder))
        job = definitions.resolve_implicit_global_asset_job_def()
        selection = [dg.AssetKey(name) for name in ASSETS]
        return job.execute_in_process(asset_selection=selection, partition_key=date, raise_on_error=True)

    def shown(self, result: dg.ExecuteInProcessResult, asset: str) -> dict[str, Any]:
        """The metadata of an asset's materialisation."""
        [event] = [each for each in result.get_asset_materialization_events() if each.asset_key == dg.AssetKey(asset)]
        return {name: value.value for name, value in event.materialization.metadata.items()}


@pytest.fixture
def doorman() -> Iterator[FakeServer]:
    with fake_doorman() as state:
        yield state


@pytest.fixture
def service() -> Iterator[FakeServiceContent]:
    with fake_service_content() as state:
        yield state


@pytest.fixture
def project_here(tmp_path: Path, words: Path, doorman: FakeServer, service: FakeServiceContent) -> Project:
    project = Project(tmp_path, words, doorman, service)
    minutes = "service-minutebook/assets/{}.md"
    project.write(minutes.format(0), "Alma Reyes came to the hall.")
    project.write(minutes.format(1), "Boris Tanaka came as well. [[prose]]")
    project.write("service-agents/note.md", "Chidi Obi wrote this.")
    return project


@pytest.mark.slow
def test_a_night_shows_what_was_found_what_waits_and_how_good_it_is(
    project_here: Project, doorman: FakeServer, service: FakeServiceContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datagraph, "OBSERVATION_SECONDS", 0.0)
    result = project_here.night()
    meeting = project_here.shown(result, "meeting_entities")
    assert (meeting["complete"], meeting["deferred"], meeting["llm_calls"]) == (1, 1, doorman.calls)
    assert meeting["documents_per_second"] > 0 and meeting["tokens_per_second"] > 0
    [row] = meeting["put_off"].records
    assert row.data["path"] == "service-minutebook/assets/1.md" and "not JSON" in str(row.data["reason"])
    graph = project_here.shown(result, "graph_mutations")
    [row] = graph["deferred_and_quarantined"].records
    assert (row.data["status"], row.data["nights"], row.data["stream"]) == ("deferred", 1, "meeting")
    assert graph["deferred_meeting"] == 1
    assert (graph["precision"], graph["recall"]) == (1.0, 0.5)
    by_class = {row.data["class"]: row.data for row in graph["scores"].records}
    assert (by_class["Person"]["recall"], by_class["Location"]["recall"]) == (1.0, 0.0)
    assert all("baseline_recall" in row for row in by_class.values())
    assert (graph["grounding_rate"], graph["hallucination_rate"]) == (1.0, 0.0)
    assert (graph["service_content_sent"], graph["service_content_held"], graph["service_content_differ"]) == (2, 2, 0)
    assert sorted(service.of("acme")) == ["alma_reyes", "chidi_obi"]
    checks = {each.check_name: each.passed for each in result.get_asset_check_evaluations()}
    assert checks == {"graph_not_shrunk": True, "grounding": True, "hallucination": True}
    observed = [each for each in result.all_events if each.event_type_value == "ASSET_OBSERVATION"]
    assert {each.asset_key.to_user_string() for each in observed if each.asset_key} >= {
        "meeting_entities",
        "research_entities",
    }


@pytest.mark.slow
def test_a_service_without_labels_gets_what_everybody_may_read(
    project_here: Project, service: FakeServiceContent
) -> None:
    project_here.use("ladybug, service_content", "documents: {labels: {service-agents: [hr]}}\n")
    graph = project_here.shown(project_here.night(), "graph_mutations")
    # Our own graph has both; it shows each reader what that one may read.
    assert graph["entities"] == 3 and sorted(service.of("acme")) == ["alma_reyes"]
    # What was taken out of the labels is sent from then on.
    project_here.use("ladybug, service_content")
    project_here.night("2026-06-02")
    assert sorted(service.of("acme")) == ["alma_reyes", "chidi_obi"]


@pytest.mark.slow
def test_a_gold_file_that_is_gone_costs_figures_and_no_night(project_here: Project) -> None:
    (project_here.folder / "gold.jsonl").unlink()
    graph = project_here.shown(project_here.night(), "graph_mutations")
    assert graph["entities"] == 3 and "there is no gold file" in graph["scores"]


@pytest.mark.slow
def test_a_gateway_or_graph_service_that_is_down_fails_no_night(
    project_here: Project, doorman: FakeServer, service: FakeServiceContent
) -> None:
    service.always = 500
    first = project_here.shown(project_here.night(), "graph_mutations")
    # The third is in the part of the deferred document that was answered: the graph has it, service-content not yet.
    assert first["entities"] == 3 and first["service_content_deferred"] == 2
    assert "status 500" in first["service_content_problem"]
    doorman.ready = {"health_up": False, "circuit": "closed"}  # type: ignore[attr-defined]
    service.always = None
    second = project_here.night("2026-06-02")
    meeting = project_here.shown(second, "meeting_entities")
    assert (meeting["postponed"], meeting["complete"]) == (1, 0) and "was not ready" in meeting["stopped"]
    assert project_here.shown(second, "graph_mutations")["service_content_sent"] == 2


@pytest.mark.slow
def test_a_graph_that_is_switched_on_later_fills_from_the_outbox(
    project_here: Project, doorman: FakeServer, service: FakeServiceContent
) -> None:
    project_here.use("service_content")
    first = project_here.shown(project_here.night(), "graph_mutations")
    assert (first["entities"], first["service_content_sent"], first["documents_applied"]) == (0, 2, 2)
    calls = doorman.calls
    project_here.write("service-minutebook/assets/1.md", "Nobody came.")
    project_here.use("ladybug, service_content")
    second = project_here.shown(project_here.night("2026-06-02"), "graph_mutations")
    assert (second["entities"], second["service_content_sent"]) == (2, 0)
    # One question, about the document that is new.
    assert doorman.calls == calls + 1

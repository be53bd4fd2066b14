"""The resolved asset graph: what must come before what, who queues for the GPU, and a snapshot that review can see."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from ec1_assets.definitions import build_defs
from ec1_assets.recipe_chain import STEPS
from resources.environment import DeploymentChoice

SNAPSHOT = Path(__file__).with_name("asset_graph.json")
USES_THE_GPU = ("meeting_entities", "research_entities", "contact_entities", "gpu_handover")
TRAINS = ("adapter_candidate", "evaluation")


@pytest.fixture(scope="module")
def graph(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    choice = DeploymentChoice("embedded", tmp_path_factory.mktemp("home"), project)
    return build_defs(choice).resolve_asset_graph()


def test_the_snapshot_of_the_graph(graph: Any) -> None:
    """If this fails because the graph was meant to change, put the new snapshot in its place and have it reviewed."""
    found = {
        node.key.to_user_string(): {
            "group": node.group_name,
            "kinds": sorted(node.kinds),
            "owners": sorted(node.owners),
            "parents": sorted(parent.to_user_string() for parent in node.parent_keys),
            "pools": sorted(node.pools or []),
            "checks": sorted(check.name for check in node.check_keys),
        }
        for node in graph.asset_nodes
    }
    assert found == json.loads(SNAPSHOT.read_text()), json.dumps(found, indent=2, sort_keys=True)


def test_every_check_is_one_of_a_night(graph: Any) -> None:
    found = [graph.get(key) for key in graph.asset_check_keys]
    assert found and all(check.partitions_def is not None for check in found)


def test_training_comes_after_the_handover(graph: Any) -> None:
    handover = dg.AssetKey("gpu_handover")
    trained = [node.key for node in graph.asset_nodes if node.key.path[-1] in (*TRAINS, "adapter")]
    assert trained
    for key in trained:
        assert handover in graph.get_ancestor_asset_keys(key), key


def test_the_handover_comes_after_every_extraction(graph: Any) -> None:
    before = graph.get_ancestor_asset_keys(dg.AssetKey("gpu_handover"))
    assert {dg.AssetKey(f"{stream}_entities") for stream in ("meeting", "research", "contact")} <= before


def test_exactly_the_assets_that_use_the_gpu_queue_for_it(graph: Any) -> None:
    pooled = {node.key.path[-1] for node in graph.asset_nodes if node.pools}
    assert pooled == {*USES_THE_GPU, *TRAINS}
    assert {pool for node in graph.asset_nodes for pool in node.pools or []} == {"gpu"}


def test_what_trains_elsewhere_does_not_queue_for_this_machine(project: Path, tmp_path: Path) -> None:
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    own = (project / "configs" / "deployments" / "embedded.yaml").read_text()
    (tmp_path / "configs" / "deployments" / "far.yaml").write_text(f"{own}\nlauncher: ray\n")
    graph = build_defs(DeploymentChoice("far", tmp_path / "home", tmp_path)).resolve_asset_graph()
    assert {node.key.path[-1] for node in graph.asset_nodes if node.pools} == set(USES_THE_GPU)


def test_every_asset_says_what_it_is(graph: Any) -> None:
    for node in graph.asset_nodes:
        assert node.description and node.owners and node.kinds and node.code_version, node.key
        assert node.partitions_def is not None, node.key


def test_a_recipe_file_is_a_chain(graph: Any) -> None:
    for role in ("engineering", "apprenticeship"):
        assert {dg.AssetKey(["fernhollow", role, step]) for step in STEPS} <= set(graph.get_all_asset_keys())


def test_one_more_file_is_one_more_chain_without_code(project: Path, tmp_path: Path) -> None:
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    recipes = tmp_path / "more"
    recipes.mkdir()
    (tmp_path / "configs" / "recipes").symlink_to(project / "configs" / "recipes")
    (recipes / "crew.yaml").write_text("extends: pointsav/engineering\nversion: 1\ntenant: acme\nrole: crew\n")
    (tmp_path / "configs" / "deployments" / "here.yaml").write_text(
        "tenant: acme\nrecipes: [more]\ninference: {kind: vllm, model: some/model}\n"
    )
    keys = build_defs(DeploymentChoice("here", tmp_path / "home", tmp_path)).resolve_asset_graph().get_all_asset_keys()
    assert {dg.AssetKey(["acme", "crew", step]) for step in STEPS} <= set(keys)


def test_a_stream_that_came_or_went_is_an_asset_more_or_less(tmp_path: Path) -> None:
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    deployment = tmp_path / "configs" / "deployments" / "here.yaml"

    def streams(*names: str) -> set[str]:
        folders = ", ".join(f"{name}: {{folder: {name}}}" for name in names)
        inference = "inference: {kind: vllm, model: some/model}"
        deployment.write_text(f"tenant: acme\nrecipes: []\n{inference}\ndocuments: {{streams: {{{folders}}}}}\n")
        graph = build_defs(DeploymentChoice("here", tmp_path / "home", tmp_path)).resolve_asset_graph()
        keys = [key.path[-1] for key in graph.get_all_asset_keys()]
        assert graph.get(dg.AssetKey("gpu_handover")).parent_keys >= {dg.AssetKey(f"{name}_entities") for name in names}
        return {key for key in keys if key.endswith("_entities")}

    assert streams("mail", "reports") == {"mail_entities", "reports_entities"}
    assert streams("mail", "minutes") == {"mail_entities", "minutes_entities"}

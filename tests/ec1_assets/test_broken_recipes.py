"""A broken recipe breaks itself: the others, phase 1, the schedule and the sensors stay."""

from pathlib import Path

import dagster as dg
import pytest

from ec1.night.steps.recipes import broken_recipes, recipe_folders
from ec1.recipes.lint import lint
from ec1_assets.definitions import build_defs
from resources.environment import DeploymentChoice
from resources.project import ProjectResource

GOOD = "extends: pointsav/engineering\nversion: 1\ntenant: acme\nrole: {role}\n"
BROKEN = {
    "misspelt": "extends: pointsav/engineering\nversion: 1\ntenant: acme\nrole: misspelt\nlora: {alhpa: 4}\n",
    "no-yaml": "version: [1\n",
    "no_yaml": "version: [2\n",
    "rival": GOOD.format(role="one"),
    "no-base": "extends: gone\nversion: 1\ntenant: acme\nrole: nobase\n",
}


@pytest.fixture
def choice(tmp_path: Path, project: Path) -> DeploymentChoice:
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    text = (project / "configs" / "deployments" / "embedded.yaml").read_text()
    text = text.replace("examples/recipes", "recipes, nowhere").replace("sample: examples", "sample: null")
    text = text.replace("schedule:\n", "schedule:\n  first_night: 2026-06-01\n")
    (tmp_path / "configs" / "deployments" / "here.yaml").write_text(text)
    (tmp_path / "recipes").mkdir()
    for role in ("one", "two"):
        (tmp_path / "recipes" / f"{role}.yaml").write_text(GOOD.format(role=role))
    return DeploymentChoice("here", tmp_path / "home", tmp_path)


def test_the_sound_ones_stay(choice: DeploymentChoice) -> None:
    for name, text in BROKEN.items():
        (choice.project / "recipes" / f"{name}.yaml").write_text(text)
    defs = build_defs(choice)
    graph = defs.resolve_asset_graph()
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert {"source_documents", "graph_mutations", "acme/one/adapter", "acme/two/adapter"} <= keys
    assert not any(key.startswith("acme/misspelt") for key in keys)
    broken = {key for key in keys if key.startswith("broken_recipe/")}
    assert broken == {
        f"broken_recipe/{name}" for name in ("misspelt", "no_yaml", "no_yaml_", "rival", "no_base", "nowhere")
    }
    assert defs.resolve_schedule_def("nightly_schedule") and defs.resolve_sensor_def("night_failure_sensor")


def test_it_fails_its_check_with_lints_own_sentence_and_no_run(choice: DeploymentChoice) -> None:
    (choice.project / "recipes" / "misspelt.yaml").write_text(BROKEN["misspelt"])
    defs = build_defs(choice)
    deployment = ProjectResource.of(choice).deployment()
    folders = recipe_folders(deployment, choice.project)
    (said,) = [finding for finding in lint([choice.project / "recipes"], folders) if finding.level == "error"]
    job = defs.resolve_job_def("training_job")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            instance=instance,
            partition_key="2026-06-05",
            asset_selection=[dg.AssetKey(["broken_recipe", "misspelt"])],
        )
    assert result.success
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert check.description == f"{said.where}: {said.message}" and "did you mean 'alpha'?" in check.description


def test_one_that_was_mended_meanwhile_passes(choice: DeploymentChoice) -> None:
    path = choice.project / "recipes" / "misspelt.yaml"
    path.write_text(BROKEN["misspelt"])
    defs = build_defs(choice)
    path.write_text(GOOD.format(role="misspelt"))
    assert broken_recipes(ProjectResource.of(choice).deployment(), choice.project)[0].name == "nowhere"
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs.resolve_job_def("training_job").execute_in_process(
            instance=instance,
            partition_key="2026-06-05",
            asset_selection=[dg.AssetKey(["broken_recipe", "misspelt"])],
        )
    (check,) = result.get_asset_check_evaluations()
    assert check.passed

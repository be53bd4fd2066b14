"""A night that trains nothing leaves no asset of a chain without a materialisation, and no check without a result."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from light import light_project
from published import NAME, publish

from ec1.deployment import load_deployment
from ec1.home import Home
from ec1.night.stores import open_registry
from ec1_assets.definitions import build_defs
from ec1_assets.recipe_chain import STEPS
from resources.environment import DeploymentChoice

NIGHTS = ("2026-06-03", "2026-06-04")
KEYS = {step: dg.AssetKey([*NAME.split("/"), step]) for step in STEPS}
AFTER = STEPS[2:]
CHECKS = {"corpus_threshold", "no_leak", "not_a_no_op", "evaluation_gate"}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def job(tmp_path: Path, project: Path) -> dg.JobDefinition:
    """All assets of a light project without the sample: its one bucket is empty."""
    home = light_project(tmp_path, project, tmp_path).home
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    deployment.write_text("".join(line for line in deployment.open() if not line.startswith("sample:")))
    return build_defs(DeploymentChoice("light", home.root, tmp_path)).resolve_implicit_global_asset_job_def()


def night(job: dg.JobDefinition, instance: dg.DagsterInstance, date: str) -> dg.ExecuteInProcessResult:
    """The whole chain of the recipe."""
    return job.execute_in_process(asset_selection=list(KEYS.values()), partition_key=date, instance=instance)


def shown(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetMaterialization]:
    """What the run materialised, by step."""
    found = {each.asset_key: each.materialization for each in result.get_asset_materialization_events()}
    return {step: found[key] for step, key in KEYS.items() if key in found}


def test_a_quiet_night_shows_the_version_in_use_and_every_check_passes(
    job: dg.JobDefinition, instance: dg.DagsterInstance, home: Home, tmp_path: Path
) -> None:
    first = night(job, instance, NIGHTS[0])
    assert first.success and list(shown(first)) == list(STEPS)
    assert shown(first)["adapter"].metadata["in_use"].value == "the base model (no version yet)"
    publish(open_registry(load_deployment("light", tmp_path), home), tmp_path, seed=1)
    second = night(job, instance, NIGHTS[1])
    assert {shown(second)[step].metadata["in_use"].value for step in AFTER} == {f"{NAME}@v1 of night 2026-06-01"}
    assert {(shown(second)[step].tags or {})["dagster/data_version"] for step in AFTER} == {f"{NAME}@v1"}
    for step in AFTER:
        assert "nothing to train: " in str(shown(second)[step].metadata["status"].value)
        assert instance.get_materialized_partitions(KEYS[step]) == set(NIGHTS)
    results = {each.check_name: each for each in second.get_asset_check_evaluations()}
    assert results.keys() == CHECKS and all(each.passed for each in results.values())
    assert f"nothing new to check; in use: {NAME}@v1" in str(results["evaluation_gate"].description)


def test_a_later_run_of_a_night_that_trained_shows_what_it_made(
    job: dg.JobDefinition, instance: dg.DagsterInstance
) -> None:
    made: dict[str, dict[str, Any]] = {
        "threshold_check": {"train": True, "new_tuples": 61},
        "adapter": {"verdict": "accepted", "version": 3},
    }
    for step, metadata in made.items():
        event = dg.AssetMaterialization(KEYS[step], partition=NIGHTS[0], metadata=metadata)
        instance.report_runless_asset_event(event)
    again = shown(night(job, instance, NIGHTS[0]))
    assert {name: value.value for name, value in again["threshold_check"].metadata.items()} == made["threshold_check"]
    assert {name: value.value for name, value in again["adapter"].metadata.items()} == made["adapter"]
    assert "in_use" in again["evaluation"].metadata, "of this one nothing is known"
    other = shown(night(job, instance, NIGHTS[1]))
    assert other["threshold_check"].metadata["train"].value is False, "each night has its own"

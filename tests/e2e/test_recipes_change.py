"""A run that waited in the queue follows the recipes as they are when it begins."""

import json
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from light import LightCommandLine, light_project

from ec1.home import Home
from ec1.night.operations.sample import install_sample
from ec1.night.records import DecisionRecord, Records
from jobs.instance import prepare_instance

pytestmark = pytest.mark.system
NIGHT = "2026-06-05"
# None has enough to train on, so no model is needed.
RECIPE = "extends: pointsav/engineering\nversion: 1\ntenant: fernhollow\nrole: {role}\ndata: {{threshold: 5000}}\n"


def recipe(ec1: LightCommandLine, role: str) -> Path:
    path = ec1.home.root.parent / "recipes" / f"{role}.yaml"
    path.write_text(RECIPE.format(role=role))
    return path


def queued(ec1: LightCommandLine, instance: dg.DagsterInstance, job: str) -> dg.DagsterRun:
    """A run that Dagster's own command put into the queue."""
    tags = json.dumps({"dagster/partition": NIGHT})
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "job", "launch", "-w", "workspace.yaml", "-j", job, "--tags", tags],
        cwd=ec1.project,
        env={**ec1.environment, "DAGSTER_HOME": str(ec1.home.dagster)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]))
    return run


def decided(ec1: LightCommandLine, run: dg.DagsterRun) -> set[str]:
    """The roles for which a run decided."""
    return {
        folder.parent.name
        for folder in ec1.home.runs.glob(f"fernhollow/*/{NIGHT}")
        if Records(folder).find(DecisionRecord, run.run_id)
    }


def test_what_came_joins_and_what_went_is_left_out(
    tmp_path: Path, project: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
    ec1 = light_project(tmp_path, project, tiny_model, train=False)
    install_sample(project / "examples", ec1.home)
    recipe(ec1, "engineering")
    goes = recipe(ec1, "apprenticeship")
    with prepare_instance(Home(ec1.home.root)) as instance:
        run = queued(ec1, instance, "training_job")
        goes.unlink()
        recipe(ec1, "feedback")
        (goes.parent / "broken.yaml").write_text("version: [1\n")
        instance.report_dagster_event(
            dg.DagsterEvent(dg.DagsterEventType.PIPELINE_STARTING.value, run.job_name), run_id=run.run_id
        )
        done = subprocess.run(
            [sys.executable, "-m", "jobs.worker", run.run_id],
            cwd=ec1.project,
            env=ec1.environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        found = instance.get_run_by_id(run.run_id)
        assert found is not None and found.status == dg.DagsterRunStatus.SUCCESS
        assert decided(ec1, run) == {"engineering", "feedback"}
        assert found.execution_plan_snapshot_id is not None
        steps = instance.get_execution_plan_snapshot(found.execution_plan_snapshot_id).step_keys_to_execute
        assert any(step.startswith("fernhollow__feedback") for step in steps)
        assert not any(step.startswith("fernhollow__apprenticeship") for step in steps)
        checks = [
            event.dagster_event.event_specific_data
            for event in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
            if event.dagster_event
        ]
        assert [check.passed for check in checks if check.check_name == "recipe_lint"] == [False]

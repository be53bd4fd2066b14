"""A night that is too short for its training: real runs, with a stand-in for the engine."""

from pathlib import Path

import pytest
from light import light_project

from ec1.night.records import OutcomeRecord, PostponedRecord, Records
from ec1.night.report.summary import night_report

NIGHT, LATER = "2026-06-05", "2026-06-06"


@pytest.mark.soak
def test_a_training_that_does_not_fit_waits_for_a_night_with_room(
    small_model: Path, project: Path, tmp_path: Path
) -> None:
    ec1 = light_project(tmp_path, project, small_model)
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    whole = deployment.read_text()
    deployment.write_text(whole.replace("lease_wait", "night_seconds: 30, training_floor_seconds: 2, lease_wait"))
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode == 3, night.stdout
    report = night_report(ec1.home, NIGHT)
    assert report.status == "partial" and report.failure is None
    (recipe,) = report.recipes
    assert recipe.outcome == "postponed" and "the night ran out" in recipe.detail
    steps = {part.name: part.status for part in next(iter(report.timeline.values())).parts}
    assert steps["fernhollow/engineering/evaluation"] == "skipped"
    assert "the night ran out" in ec1.run("report", "--date", NIGHT).stdout
    deployment.write_text(whole)
    night = ec1.run("night", "--date", LATER)
    assert night.returncode == 0, night.stdout
    records = Records(ec1.home.run("fernhollow", "engineering", LATER))
    assert records.find(OutcomeRecord) is not None and records.find(PostponedRecord) is None
    assert night_report(ec1.home, LATER).recipes[0].outcome != "postponed"

"""A night that cannot begin is told in the same way whoever starts it: its worker asks what `ec1 night` asks."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from light import LightCommandLine, light_project
from notice_sink import Sink, notice_sink

from ec1.home import Home
from ec1.night.report.failure import find_failure
from ec1.night.report.morning import REPORT
from ec1.night.report.summary import night_report
from ec1.night.report.text import headline
from ec1_assets.night_report import KEY
from jobs.conclusion import is_concluded
from jobs.failure import PARTITION_TAG
from jobs.instance import prepare_instance
from jobs.nightly import NIGHTLY_JOB
from jobs.worker import execute, repository

NIGHT = "2026-06-05"
WHY = "is not at "
ORIGINS = {
    "schedule": {"dagster/schedule_name": "nightly_schedule"},
    "sensor": {"dagster/sensor_name": "corpus_growth_sensor"},
    "backfill": {"dagster/backfill": "asked"},
}


@pytest.fixture
def sink() -> Iterator[Sink]:
    with notice_sink() as sink:
        yield sink


def project_of(
    folder: Path, checkout: Path, model: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> LightCommandLine:
    """A project that tells the sink, chosen by the environment of this process."""
    ec1 = light_project(folder, checkout, model)
    deployment = folder / "configs" / "deployments" / "light.yaml"
    deployment.write_text(f"{deployment.read_text()}notify: {{urls: ['{sink.target}']}}\n")
    for name in ("EC1_DEPLOYMENT", "EC1_HOME", "EC1_PROJECT"):
        monkeypatch.setenv(name, ec1.environment[name])
    return ec1


@pytest.fixture
def instance(
    tmp_path: Path, project: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dg.DagsterInstance]:
    """The instance of a project whose model is not there."""
    ec1 = project_of(tmp_path, project, tmp_path / "nowhere", sink, monkeypatch)
    with prepare_instance(ec1.home) as instance:
        yield instance


@pytest.mark.parametrize("by", ORIGINS)
def test_whoever_starts_a_night_that_cannot_begin_is_told_why(
    by: str, instance: dg.DagsterInstance, home: Home, sink: Sink
) -> None:
    job = repository().get_definition().get_job(NIGHTLY_JOB)
    for _ in range(2):
        run = instance.create_run_for_job(job, tags={PARTITION_TAG: NIGHT, **ORIGINS[by]})
        assert execute(instance, run.run_id) == dg.DagsterRunStatus.FAILURE
        failure = find_failure(home, NIGHT, run.run_id)
        assert failure is not None and WHY in failure.cause and "put it there" in failure.cause
        kept = json.loads((home.night(NIGHT) / REPORT).read_text())
        assert (kept["status"], kept["failure"]["cause"]) == ("did not begin", failure.cause)
        assert headline(night_report(home, NIGHT)) == f"Night {NIGHT} did not begin: {failure.cause}"
        # What the sensor for failures asks: it has nothing to add.
        assert is_concluded(home, run)
        shown = instance.get_latest_materialization_event(KEY)
        assert shown is not None and shown.run_id == run.run_id and shown.asset_materialization is not None
        assert shown.asset_materialization.metadata["why"].value == failure.cause
    assert sink.titles == [f"EC1: night {NIGHT} did not begin"], "once, however often it is tried"
    assert WHY in sink.bodies[0]


def test_a_run_whose_history_is_damaged_is_told_by_its_worker(
    tmp_path: Path, project: Path, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    ec1 = project_of(tmp_path, project, tmp_path, sink, monkeypatch)
    (ec1.home.dagster / "history" / "runs").mkdir(parents=True)
    (ec1.home.dagster / "history" / "runs" / "index.db").write_bytes(b"\7" * 8192)
    command = [sys.executable, "-m", "jobs.worker", "0a1b2c3d-0000", "--night", NIGHT]
    done = subprocess.run(command, cwd=project, env=ec1.environment, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "index.db is not an SQLite file any more" in done.stderr.splitlines()[-1]
    report = night_report(ec1.home, NIGHT)
    assert report.status == "did not begin" and "begins a new history" in headline(report)
    assert sink.titles == [f"EC1: night {NIGHT} did not begin"]

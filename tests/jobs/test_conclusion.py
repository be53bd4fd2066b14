"""What is left when a run has ended: its timeline, and the night's report as the graph's last asset."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ec1.home import Home
from ec1.night.records import Records, RunRecord
from ec1.night.report.morning import PAGE, REPORT
from ec1.night.report.summary import night_report
from ec1.night.report.text import headline
from ec1_assets.night_report import KEY
from ec1_assets.run_tags import VERDICT_TAG
from jobs.conclusion import conclude, is_concluded
from jobs.failure import PARTITION_TAG
from jobs.timeline import run_record
from resources.gpu import CARDS_COST, LEASE_HELD, LEASE_WAIT

NIGHT = "2026-06-05"
DAYS = dg.DailyPartitionsDefinition("2026-06-01")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def a_run(instance: dg.DagsterInstance, fail: bool) -> dg.ExecuteInProcessResult:
    """Three assets in a row; the second uses the GPU and perhaps fails."""

    @dg.asset(partitions_def=DAYS)
    def listed() -> None:
        time.sleep(0.05)

    @dg.asset(partitions_def=DAYS, deps=[listed])
    def extracted(context: dg.AssetExecutionContext) -> None:
        metadata = {LEASE_WAIT: 0.02, LEASE_HELD: 3.5, CARDS_COST: 0.25}
        context.log_event(dg.AssetObservation("extracted", partition=NIGHT, metadata=metadata))
        time.sleep(0.1)
        if fail:
            raise ValueError("no model")

    @dg.asset(partitions_def=DAYS, deps=[extracted])
    def applied() -> None:
        """Comes last."""

    return dg.materialize([listed, extracted, applied], instance=instance, partition_key=NIGHT, raise_on_error=False)


def test_the_timeline_of_a_run(instance: dg.DagsterInstance) -> None:
    record = run_record(instance, a_run(instance, fail=False).run_id)
    assert record.status == "done" and [part.name for part in record.parts] == ["listed", "extracted", "applied"]
    assert {part.status for part in record.parts} == {"done"}
    middle = record.parts[1]
    assert (middle.lease_waited, middle.gpu, record.gpu_seconds) == (0.02, 3.5, 3.5)
    assert (middle.usd, record.cost) == (0.25, 0.25)
    assert middle.worked is not None and middle.worked >= 0.08, "all but the wait for the lease"
    assert middle.began is not None and record.parts[0].began is not None
    assert record.asked <= record.began <= middle.began <= record.ended  # type: ignore[operator]
    failed = run_record(instance, a_run(instance, fail=True).run_id)
    assert failed.status == "failed"
    assert [part.status for part in failed.parts] == ["done", "failed", "not reached"]


@pytest.mark.parametrize("fail", [False, True])
def test_every_ended_run_leaves_a_report(
    instance: dg.DagsterInstance, home: Home, monkeypatch: pytest.MonkeyPatch, project: Path, fail: bool
) -> None:
    monkeypatch.setenv("EC1_HOME", str(home.root))
    run = instance.get_run_by_id(a_run(instance, fail).run_id)
    assert run is not None and not is_concluded(home, run)
    conclude(instance, home, run.run_id)
    assert is_concluded(home, run)
    assert Records(home.night(NIGHT)).find(RunRecord, run.run_id) is not None
    report = night_report(home, NIGHT)
    assert {each.recipe for each in report.recipes} == {"fernhollow/engineering", "fernhollow/apprenticeship"}
    assert report.status == ("failed" if fail else "unfinished")
    for name in (PAGE, REPORT):
        assert (home.night(NIGHT) / name).is_file()
    event = instance.get_latest_materialization_event(KEY)
    assert event is not None and event.asset_materialization is not None and event.run_id == run.run_id
    assert event.asset_materialization.partition == NIGHT
    shown = event.asset_materialization.metadata
    assert shown["status"].value == report.status
    assert ("no model" in str(shown["report"].value)) is fail
    assert ("no model" in str(shown["why"].value)) if fail else "why" not in shown


def test_a_run_that_dagster_left_going_is_failed_with_what_broke_it(
    instance: dg.DagsterInstance, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EC1_HOME", str(home.root))
    job = dg.Definitions([dg.asset(lambda: None, name="one")], jobs=[dg.define_asset_job("job")])
    run = instance.create_run_for_job(
        job.resolve_job_def("job"), status=dg.DagsterRunStatus.STARTED, tags={PARTITION_TAG: NIGHT}
    )
    conclude(instance, home, run.run_id, broke="the disk is full: free some space")
    report = night_report(home, NIGHT)
    assert report.status == "failed" and report.failure is not None
    assert report.failure.cause == "the disk is full: free some space"


@pytest.mark.parametrize("who", ["SIGINT", "SIGTERM", "a request (the UI)"])
def test_a_run_that_somebody_stopped_is_interrupted_in_record_tag_and_report(
    instance: dg.DagsterInstance, home: Home, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    monkeypatch.setenv("EC1_HOME", str(home.root))
    run_id = a_run(instance, fail=True).run_id
    conclude(instance, home, run_id, stopped_by=who)
    report = night_report(home, NIGHT)
    assert report.status == "interrupted" and report.failure is None
    assert re.fullmatch(
        rf"Night {NIGHT}: interrupted \(stopped at \d\d:\d\d UTC by {re.escape(who)}\)", headline(report)
    )
    run = instance.get_run_by_id(run_id)
    assert run is not None and run.tags[VERDICT_TAG] == f"stopped by {who}"


def test_a_report_that_cannot_be_written_fails_nothing(
    instance: dg.DagsterInstance, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EC1_HOME", str(home.root))
    home.root.mkdir(parents=True)
    home.nights.write_text("a file in the way")
    conclude(instance, home, a_run(instance, fail=False).run_id)
    assert "the report could not be written: " in capsys.readouterr().err

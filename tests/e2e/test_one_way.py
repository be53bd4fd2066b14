"""However a night is started it is the same run, and a killed one needs no manual repair."""

import datetime as dt
import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import psutil
import pytest
from dagster_ui import Ui
from light import LightCommandLine, light_project
from loopback_server import free_port
from patience import until

pytestmark = pytest.mark.system
NIGHT = "2026-06-05"
AGAIN = """mutation {
    launchRunReexecution(reexecutionParams: {parentRunId: "%s", strategy: ALL_STEPS}) { __typename } }"""

BACKFILL = """mutation {
    launchPartitionBackfill(backfillParams: {partitionNames: ["%s"], selector: {
        partitionSetName: "nightly_job_partition_set",
        repositorySelector: {repositoryName: "__repository__", repositoryLocationName: "ec1"} } }) {
    __typename ... on PythonError { message } } }"""
# What started a run: all else is alike.
ORIGINS = {"dagster/schedule_name", "dagster/tick", "dagster/run_key", "dagster/backfill", "dagster/priority"}


@pytest.fixture
def ec1(tmp_path: Path, project: Path, tiny_model: Path) -> Iterator[LightCommandLine]:
    ec1 = light_project(tmp_path, project, tiny_model, train=False)
    yield ec1
    for left in ec1.processes():
        left.kill()


def tags_of(run: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["tags"]}


def essence(run: dict[str, Any]) -> dict[str, Any]:
    """A run without what must differ."""
    own = ("runId", "parentRunId", "tags")
    tags = {key: value for key, value in tags_of(run).items() if not key.endswith("_run_id")}
    del tags["ec1/process"]
    return {**{key: value for key, value in run.items() if key not in own}, "tags": tags}


def workers(ec1: LightCommandLine) -> list[psutil.Process]:
    return [each for each in ec1.processes() if "jobs.worker" in each.cmdline()]


def test_a_night_of_the_command_line_and_one_of_the_ui_are_alike(ec1: LightCommandLine) -> None:
    ui = Ui(ec1)
    done = ec1.run("night", "--date", NIGHT)
    assert done.returncode == 0 and "graph_mutations" in done.stdout, done.stdout
    (first,) = ui.runs()
    assert ui.ask(AGAIN % first["runId"])["launchRunReexecution"]["__typename"] == "LaunchRunSuccess"
    until(lambda: ui.runs()[0]["status"] == "SUCCESS")
    second, again = ui.runs()
    assert again == first and second["parentRunId"] == first["runId"]
    assert essence(second) == essence(first)
    assert first["repositoryOrigin"] == {"repositoryName": "__repository__", "repositoryLocationName": "ec1"}
    assert first["hasReExecutePermission"]
    # A run's worker writes the report when the run has ended.
    until(lambda: len(ui.reports()) == 2)
    assert ui.reports() == [
        {"runId": second["runId"], "partition": NIGHT},
        {"runId": first["runId"], "partition": NIGHT},
    ]
    told = ec1.run("report", "--date", NIGHT)
    assert told.returncode == 0 and f"Night {NIGHT}: done" in told.stdout, told.stdout
    assert "1 run found nothing new to do" in told.stdout and "held for" in told.stdout, told.stdout
    # Any page that the operator opens could send these.
    mutation = f"http://127.0.0.1:{ui.port}/graphql?query=mutation%7BdeletePipelineRun(runId:%22{first['runId']}%22)%7D"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(mutation, timeout=10)
    second_ui = ec1.run("ui", "--port", str(free_port()), timeout=60)
    assert second_ui.returncode == 1 and f"http://127.0.0.1:{ui.port}" in second_ui.stdout

    # Killed in the middle of a night: first the UI alone, which must not take the night with it ...
    ui.ask(AGAIN % first["runId"])
    until(lambda: ui.runs()[0]["status"] == "STARTED")
    ui.kill()
    (worker,) = workers(ec1)
    # ... then the night itself, with nobody there to see it.
    worker.kill()
    after = ec1.run("night", "--date", NIGHT)
    assert after.returncode == 0, after.stdout
    assert "ended the orphaned run" in after.stdout
    assert ec1.processes() == []


def test_a_scheduled_night_a_backfilled_one_and_one_of_the_command_line_are_alike(ec1: LightCommandLine) -> None:
    # Where it is not midnight soon: then the schedule would start another night in between.
    zone = "UTC" if 1 <= dt.datetime.now(dt.UTC).hour < 23 else "Etc/GMT+12"
    night = (dt.datetime.now(ZoneInfo(zone)).date() - dt.timedelta(days=1)).isoformat()
    deployment = ec1.home.root.parent / "configs" / "deployments" / "light.yaml"
    schedule = {"enabled": True, "cron": "* * * * *", "timezone": zone, "first_night": night}
    lines = [line for line in deployment.read_text().splitlines() if not line.startswith("schedule:")]
    deployment.write_text("\n".join([*lines, f"schedule: {json.dumps(schedule)}\n"]))
    ui = Ui(ec1)
    until(lambda: [run["status"] for run in ui.runs()] == ["SUCCESS"])
    done = ec1.run("night", "--date", night)
    assert done.returncode == 0, done.stdout
    asked = ui.ask(BACKFILL % night)["launchPartitionBackfill"]
    assert asked["__typename"] == "LaunchBackfillSuccess", asked
    until(lambda: [run["status"] for run in ui.runs()] == ["SUCCESS"] * 3)
    backfilled, by_hand, scheduled = ui.runs()
    assert tags_of(scheduled)["dagster/schedule_name"] == "nightly_schedule" and "dagster/backfill" in tags_of(
        backfilled
    )
    same = [
        {**found, "tags": {key: value for key, value in found["tags"].items() if key not in ORIGINS}}
        for found in map(essence, (backfilled, by_hand, scheduled))
    ]
    assert same[0] == same[1] == same[2]
    assert same[0]["tags"]["dagster/partition"] == night
    until(lambda: len(ui.reports()) == 3)
    assert {report["partition"] for report in ui.reports()} == {night}
    ui.kill()


@pytest.mark.soak
@pytest.mark.parametrize("kill", range(10))
def test_a_ui_that_is_killed_in_mid_night_needs_no_manual_repair(ec1: LightCommandLine, kill: int) -> None:
    rng = random.Random(kill)
    ui = Ui(ec1)
    assert ec1.run("night", "--date", NIGHT).returncode == 0
    (first,) = ui.runs()
    ui.ask(AGAIN % first["runId"])
    until(lambda: ui.runs()[0]["status"] == "STARTED")
    time.sleep(rng.uniform(0, 5))
    ui.kill()
    if kill % 2:
        # The night too, as when the machine goes down.
        for worker in workers(ec1):
            worker.kill()
    after = ec1.run("night", "--date", NIGHT)
    assert after.returncode == 0, after.stdout
    again = Ui(ec1)
    until(lambda: all(run["status"] in ("SUCCESS", "FAILURE") for run in again.runs()), 60)
    assert again.runs()[0]["status"] == "SUCCESS"
    again.kill()

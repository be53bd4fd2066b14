"""A night that nobody started is told with the reason: a schedule that is off since then, a daemon that is down."""

import datetime as dt
import fcntl
import json
from collections.abc import Iterator

import dagster as dg
import pytest

from ec1.deployment import Deployment
from ec1.home import Home
from ec1.night.health.starting import SCHEDULE, why_unstarted
from ec1.night.report.first import begin
from ec1.night.report.notices import look_at_due
from jobs.doctor import examine
from jobs.instance import prepare_instance

NOW = dt.datetime(2026, 6, 10, 8, tzinfo=dt.UTC)
# As Dagster keeps it when somebody moves the switch in the UI.
STATE = {
    "__class__": "InstigatorState",
    "job_specific_data": {
        "__class__": "ScheduleInstigatorData",
        "cron_schedule": "0 2 * * *",
        "start_timestamp": None,
    },
    "job_type": {"__enum__": "InstigatorType.SCHEDULE"},
    "origin": {
        "__class__": "ExternalJobOrigin",
        "external_repository_origin": {
            "__class__": "ExternalRepositoryOrigin",
            "repository_location_origin": {
                "__class__": "RegisteredRepositoryLocationOrigin",
                "location_name": "ec1",
            },
            "repository_name": "__repository__",
        },
        "job_name": SCHEDULE,
    },
}


@pytest.fixture
def instance(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
    with prepare_instance(home) as instance:
        yield instance


def switched(instance: dg.DagsterInstance, status: str) -> None:
    state = {**STATE, "status": {"__enum__": f"InstigatorStatus.{status}"}}
    instance.add_instigator_state(dg.deserialize_value(json.dumps(state)))  # type: ignore[arg-type]


def by_itself(embedded: Deployment, enabled: bool) -> Deployment:
    return embedded.model_copy(update={"schedule": embedded.schedule.model_copy(update={"enabled": enabled})})


def test_a_schedule_that_was_switched_off_is_told_with_its_time(
    instance: dg.DagsterInstance, embedded: Deployment, home: Home
) -> None:
    switched(instance, "STOPPED")
    deployment = by_itself(embedded, True)
    told = why_unstarted(deployment, home)
    today = dt.datetime.now(dt.UTC)
    assert told.startswith(f"the schedule is off since {today:%Y-%m-%d}"), told
    assert told.endswith(f"switch {SCHEDULE} on in the UI (Automation)"), told
    (seen,) = [each for each in examine(instance, scheduled=True) if each.subject == "switched off"]
    assert seen.level == "note" and SCHEDULE in seen.detail
    begin(deployment, home, today - dt.timedelta(days=5), (today - dt.timedelta(days=5)).date().isoformat())
    assert told in look_at_due(deployment, home, today).sentence


def test_one_that_the_deployment_does_not_start_is_told_as_that(embedded: Deployment, home: Home) -> None:
    assert "schedule.enabled: false" in why_unstarted(by_itself(embedded, False), home)
    assert "no daemon runs" in why_unstarted(by_itself(embedded, True), home)


def test_a_daemon_that_is_down_is_told(instance: dg.DagsterInstance, embedded: Deployment, home: Home) -> None:
    # Switched on by hand: then the deployment's word does not count.
    switched(instance, "RUNNING")
    assert [each for each in examine(instance, scheduled=True) if each.subject == "switched off"] == []
    assert "until `ec1 ui` runs" in why_unstarted(by_itself(embedded, False), home)
    with (home.dagster / ".ui.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert why_unstarted(by_itself(embedded, True), home) == "nobody started it"

"""Schedules and sensors, driven with real ticks on a real (ephemeral) instance."""

import datetime as dt
from collections.abc import Iterator
from zoneinfo import ZoneInfo

import dagster as dg
import pytest

from ec1.home import Home
from ec1.night.records import GraphRecord, HandoverRecord, Records, RunRecord
from jobs.nightly import NIGHTLY_JOB
from schedules import corpus_growth, nightly
from schedules.planning import missed_nights, plan_night

NIGHTS = dg.DailyPartitionsDefinition(start_date="2026-06-01", end_offset=1)
TICK = dt.datetime(2026, 6, 11, 2, tzinfo=dt.UTC)


@dg.op
def nothing() -> None:
    """A job needs an op."""


@dg.job(name=NIGHTLY_JOB, partitions_def=NIGHTS)
def night_job() -> None:
    nothing()


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def ran(instance: dg.DagsterInstance, night: str, status: dg.DagsterRunStatus) -> None:
    instance.create_run_for_job(night_job, status=status, tags={"dagster/partition": night})


def done(home: Home, night: str, job: str = NIGHTLY_JOB) -> None:
    """What a whole night leaves in the home, whichever run it was."""
    records = Records(home.night(night))
    records.write("run", GraphRecord(applied=1, entities_after=1))
    records.write("run", HandoverRecord(night=night, device="CPU", free_gib=1, total_gib=1, swept=0))
    records.write("run", RunRecord(job=job, status="done", asked=TICK, began=TICK, ended=TICK))


def test_a_night_is_run_once(instance: dg.DagsterInstance, home: Home) -> None:
    assert plan_night(instance, home, "2026-06-10").run
    done(home, "2026-06-10")
    assert not plan_night(instance, home, "2026-06-10").run
    assert plan_night(instance, home, "2026-06-11").run


def test_a_night_in_flight_is_left_alone(instance: dg.DagsterInstance, home: Home) -> None:
    ran(instance, "2026-06-10", dg.DagsterRunStatus.STARTED)
    plan = plan_night(instance, home, "2026-06-10", again="growth")
    assert not plan.run and "in flight" in plan.reason


def test_a_failed_night_is_tried_again_under_another_key_and_not_for_ever(
    instance: dg.DagsterInstance, home: Home
) -> None:
    keys = set()
    for _ in range(3):
        plan = plan_night(instance, home, "2026-06-10")
        assert plan.run
        keys.add(plan.run_key)
        ran(instance, "2026-06-10", dg.DagsterRunStatus.FAILURE)
    assert len(keys) == 3
    plan = plan_night(instance, home, "2026-06-10")
    assert not plan.run and "needs a person" in plan.reason


def test_growth_may_repeat_a_night_that_is_done(instance: dg.DagsterInstance, home: Home) -> None:
    done(home, "2026-06-10")
    assert plan_night(instance, home, "2026-06-10", again="growth-1").run


def test_missed_nights_come_oldest_first_and_are_bounded(instance: dg.DagsterInstance, home: Home) -> None:
    done(home, "2026-06-03")
    done(home, "2026-06-06")
    plans = missed_nights(instance, home, NIGHTS, "2026-06-10", look_back=7, limit=3)
    assert [plan.night for plan in plans] == ["2026-06-04", "2026-06-05", "2026-06-07"]


def test_a_new_installation_has_missed_nothing(instance: dg.DagsterInstance, home: Home) -> None:
    new = dg.DailyPartitionsDefinition(start_date="2026-06-10", end_offset=1)
    assert missed_nights(instance, home, new, "2026-06-10", look_back=7, limit=3) == []


def test_nights_are_missed_from_the_first_night_on_whichever_was_worked_on_first(
    instance: dg.DagsterInstance, home: Home
) -> None:
    """Counted from the first run of the job, the nights before it were never caught up."""
    ran(instance, "2026-06-09", dg.DagsterRunStatus.FAILURE)
    since = dg.DailyPartitionsDefinition(start_date="2026-06-07", end_offset=1)
    plans = missed_nights(instance, home, since, "2026-06-10", look_back=7, limit=3)
    assert [plan.night for plan in plans] == ["2026-06-07", "2026-06-08", "2026-06-09"]


def test_a_night_that_was_run_in_another_way_is_not_missed(instance: dg.DagsterInstance, home: Home) -> None:
    """As by clicks in the graph: what counts is what the home holds."""
    done(home, "2026-06-10", job="__ASSET_JOB")
    assert not plan_night(instance, home, "2026-06-10").run


def test_a_part_of_a_night_is_no_night(instance: dg.DagsterInstance, home: Home) -> None:
    ran(instance, "2026-06-10", dg.DagsterRunStatus.SUCCESS)
    assert plan_night(instance, home, "2026-06-10").run, "the home holds none of it"
    ran(instance, "2026-06-10", dg.DagsterRunStatus.SUCCESS)
    ran(instance, "2026-06-10", dg.DagsterRunStatus.SUCCESS)
    assert not plan_night(instance, home, "2026-06-10").run, "and it is not tried for ever"


def test_a_tick_asks_for_the_night_that_has_ended(instance: dg.DagsterInstance, home: Home) -> None:
    new = dg.DailyPartitionsDefinition(start_date="2026-06-10", end_offset=1)
    requests = nightly.requests_of_tick(instance, home, new, TICK, TICK + dt.timedelta(minutes=1), 120)
    assert isinstance(requests, list)
    assert [request.partition_key for request in requests] == ["2026-06-10"]


def test_a_tick_catches_up_before_its_own_night(instance: dg.DagsterInstance, home: Home) -> None:
    for night in ("2026-06-03", "2026-06-04", "2026-06-05", "2026-06-06", "2026-06-07"):
        done(home, night)
    requests = nightly.requests_of_tick(instance, home, NIGHTS, TICK, TICK, 120)
    assert isinstance(requests, list)
    assert [request.partition_key for request in requests] == ["2026-06-08", "2026-06-09", "2026-06-10"]
    assert len({request.run_key for request in requests}) == 3


def test_a_tick_in_office_hours_is_skipped(instance: dg.DagsterInstance, home: Home) -> None:
    """After an outage the last tick is evaluated at once, whenever that is."""
    late = nightly.requests_of_tick(instance, home, NIGHTS, TICK, TICK + dt.timedelta(hours=9), 120)
    assert isinstance(late, dg.SkipReason)


def test_lateness_is_right_on_the_day_on_which_the_clocks_change(instance: dg.DagsterInstance, home: Home) -> None:
    berlin = dg.DailyPartitionsDefinition(start_date="2026-03-28", timezone="Europe/Berlin", end_offset=1)
    tick = dt.datetime.fromisoformat("2026-03-29T01:30:00+01:00").astimezone(ZoneInfo("Europe/Berlin"))
    now = dt.datetime.fromisoformat("2026-03-29T03:15:00+02:00")
    requests = nightly.requests_of_tick(instance, home, berlin, tick, now, 60)
    assert isinstance(requests, list) and [request.partition_key for request in requests] == ["2026-03-28"]


def tick_sensor(
    instance: dg.DagsterInstance, home: Home, cursor: str | None, mark: str, now: float
) -> tuple[list[dg.RunRequest], str | None]:
    result = corpus_growth.evaluate(instance, home, cursor, {"engineering-acme": mark}, "2026-06-10", now, 600)
    return list(result.run_requests or []), result.cursor


def test_growth_asks_once_after_a_quiet_while(instance: dg.DagsterInstance, home: Home) -> None:
    requests, cursor = tick_sensor(instance, home, None, "a", 0)
    assert requests == []
    requests, cursor = tick_sensor(instance, home, cursor, "b", 60)
    assert requests == []
    requests, cursor = tick_sensor(instance, home, cursor, "c", 300)
    assert requests == [], "it is still growing"
    requests, cursor = tick_sensor(instance, home, cursor, "c", 600)
    assert requests == [], "300 seconds of quiet are not enough"
    requests, cursor = tick_sensor(instance, home, cursor, "c", 950)
    assert [request.partition_key for request in requests] == ["2026-06-10"]
    requests, cursor = tick_sensor(instance, home, cursor, "c", 1100)
    assert requests == [], "one growth, one night"


def test_growth_during_a_night_is_not_forgotten(instance: dg.DagsterInstance, home: Home) -> None:
    ran(instance, "2026-06-10", dg.DagsterRunStatus.STARTED)
    _, cursor = tick_sensor(instance, home, None, "a", 0)
    _, cursor = tick_sensor(instance, home, cursor, "b", 60)
    requests, cursor = tick_sensor(instance, home, cursor, "b", 900)
    assert requests == []
    for run in instance.get_runs():
        instance.report_run_canceled(run)
    requests, _ = tick_sensor(instance, home, cursor, "b", 1000)
    assert len(requests) == 1

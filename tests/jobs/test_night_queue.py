"""Whether a night is done, going or queued; which run may begin, and what a run is made into before it is queued."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from ec1.home import CHECKOUT, Home
from ec1.night.records import GraphRecord, HandoverRecord, Records, RunRecord
from jobs.instance import prepare_instance
from jobs.nightly import NIGHT_TAG, NIGHTLY_JOB
from jobs.nights import state_of, why_not_yet
from jobs.queue import ASSET_JOB, NightQueue, as_queued, rewrite
from resources.dagster_private import RemoteJobOrigin, RemoteRepositoryOrigin, WorkspaceFileTarget

NIGHTS = ("2026-06-03", "2026-06-04", "2026-06-05")
NOW = dt.datetime(2026, 6, 6, 2, tzinfo=dt.UTC)
ALL = frozenset({dg.AssetKey("first"), dg.AssetKey("last")})


@dg.op
def nothing() -> None:
    """A job needs an op."""


@dg.job(name=NIGHTLY_JOB)
def night_job() -> None:
    nothing()


@pytest.fixture
def instance(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
    with prepare_instance(home) as instance:
        yield instance


def origin() -> RemoteJobOrigin:
    (location,) = WorkspaceFileTarget([str(CHECKOUT / "workspace.yaml")]).create_origins()
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), ASSET_JOB)


def a_run(
    instance: dg.DagsterInstance, night: str, status: dg.DagsterRunStatus, backfill: str | None = "asked"
) -> dg.DagsterRun:
    tags = {"dagster/partition": night, **({"dagster/backfill": backfill} if backfill else {})}
    return instance.create_run_for_job(night_job, status=status, tags=tags, remote_job_origin=origin())


def done(home: Home, night: str) -> None:
    records = Records(home.night(night))
    records.write("run", GraphRecord(applied=1, entities_after=1))
    records.write("run", HandoverRecord(night=night, device="CPU", free_gib=1, total_gib=1, swept=0))
    records.write("run", RunRecord(job=ASSET_JOB, status="done", asked=NOW, began=NOW, ended=NOW))


def clicked(instance: dg.DagsterInstance, assets: frozenset[dg.AssetKey], **tags: str) -> dg.DagsterRun:
    """A run as *Materialize* makes it from the graph, in the instance."""
    tagged = {"dagster/partition": NIGHTS[0], **tags}
    made = instance.create_run_for_job(night_job, tags=tagged, remote_job_origin=origin())
    clicked = made._replace(job_name=ASSET_JOB, asset_selection=assets)
    rewrite(instance, clicked)
    return clicked


def test_the_queue_is_ours(instance: dg.DagsterInstance) -> None:
    assert isinstance(instance.run_coordinator, NightQueue)
    limits = instance.get_concurrency_config().run_queue_config
    assert limits is not None and limits.tag_concurrency_limits is not None
    assert {limit["key"]: limit["limit"] for limit in limits.tag_concurrency_limits} == {
        NIGHT_TAG: 1,
        "dagster/backfill": 1,
    }


def test_all_assets_of_a_night_are_the_nightly_job(instance: dg.DagsterInstance) -> None:
    run = clicked(instance, ALL, **{"dagster/backfill": "asked"})
    rewrite(instance, as_queued(run, ALL))
    found = instance.get_run_by_id(run.run_id)
    assert found is not None and found.job_name == NIGHTLY_JOB and not found.asset_selection
    assert found.remote_job_origin is not None and found.remote_job_origin.job_name == NIGHTLY_JOB
    of_the_night = dg.RunsFilter(job_name=NIGHTLY_JOB, tags={NIGHT_TAG: "yes", "dagster/partition": NIGHTS[0]})
    assert [each.run_id for each in instance.get_runs(of_the_night)] == [run.run_id]
    assert state_of(instance, Home(Path("absent")), NIGHTS[0]).state == "queued"


def test_a_part_of_a_night_stays_what_it_is(instance: dg.DagsterInstance) -> None:
    run = clicked(instance, frozenset({dg.AssetKey("first")}))
    assert as_queued(run, ALL) == run
    assert as_queued(run, frozenset()) == run, "of an unknown graph nothing is whole"


def test_earlier_nights_of_a_backfill_go_first_in_whichever_order_they_were_asked_for(
    instance: dg.DagsterInstance,
) -> None:
    runs = [as_queued(a_run(instance, night, dg.DagsterRunStatus.NOT_STARTED), ALL) for night in reversed(NIGHTS)]
    order = sorted(runs, key=lambda run: int(run.tags["dagster/priority"]), reverse=True)
    assert [run.tags["dagster/partition"] for run in order] == list(NIGHTS)


def test_a_run_that_is_executed_again_has_no_verdict_yet(instance: dg.DagsterInstance) -> None:
    run = clicked(instance, ALL, **{"ec1/verdict": "acme/crew accepted", "ec1/process": "of the parent"})
    rewrite(instance, as_queued(run, ALL))
    assert instance.get_runs(dg.RunsFilter(tags={"ec1/verdict": "acme/crew accepted"})) == []
    found = instance.get_run_by_id(run.run_id)
    assert found is not None and "ec1/verdict" not in found.tags and "ec1/process" in found.tags


def test_how_a_night_stands(instance: dg.DagsterInstance, home: Home) -> None:
    night = NIGHTS[0]
    assert state_of(instance, home, night).state == "open"
    a_run(instance, night, dg.DagsterRunStatus.FAILURE, None)
    assert (state_of(instance, home, night).state, state_of(instance, home, night).failed) == ("open", 1)
    done(home, night)
    assert state_of(instance, home, night).state == "done"
    waiting = a_run(instance, night, dg.DagsterRunStatus.QUEUED, None)
    assert (state_of(instance, home, night).state, state_of(instance, home, night).run) == ("queued", waiting.run_id)
    working = a_run(instance, night, dg.DagsterRunStatus.STARTED, None)
    assert (state_of(instance, home, night).state, state_of(instance, home, night).run) == ("going", working.run_id)


@pytest.mark.parametrize(
    ("earlier", "why"),
    [
        (dg.DagsterRunStatus.QUEUED, "is not finished yet"),
        (dg.DagsterRunStatus.STARTED, "is not finished yet"),
        (dg.DagsterRunStatus.FAILURE, "failed or was ended"),
        (dg.DagsterRunStatus.CANCELED, "failed or was ended"),
    ],
)
def test_a_later_night_of_a_backfill_does_not_begin(
    instance: dg.DagsterInstance, home: Home, earlier: dg.DagsterRunStatus, why: str
) -> None:
    a_run(instance, NIGHTS[0], dg.DagsterRunStatus.SUCCESS)
    a_run(instance, NIGHTS[1], earlier)
    last = a_run(instance, NIGHTS[2], dg.DagsterRunStatus.STARTING)
    refused = why_not_yet(instance, home, last)
    assert refused is not None and f"night {NIGHTS[1]} of the same backfill {why}" in refused
    # Another backfill, or none, is nothing to wait for.
    assert why_not_yet(instance, home, a_run(instance, NIGHTS[2], dg.DagsterRunStatus.STARTING, "other")) is None
    assert why_not_yet(instance, home, a_run(instance, NIGHTS[2], dg.DagsterRunStatus.STARTING, None)) is None


def test_a_later_night_begins_once_the_earlier_one_was_made_good(instance: dg.DagsterInstance, home: Home) -> None:
    a_run(instance, NIGHTS[0], dg.DagsterRunStatus.FAILURE)
    last = a_run(instance, NIGHTS[1], dg.DagsterRunStatus.STARTING)
    assert why_not_yet(instance, home, last) is not None
    # By a run of its own, as `ec1 night --date`.
    done(home, NIGHTS[0])
    assert why_not_yet(instance, home, last) is None

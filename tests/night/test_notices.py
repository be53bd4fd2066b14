"""Each thing is told once, to every target, whatever is run again and whoever is down; a sink that counts listens."""

import datetime as dt
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_server import free_port
from night_records import NIGHT, ROLE, a_night, fail, run_of, settle
from notice_sink import Sink, notice_sink
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from ec1.cli import app
from ec1.deployment import Deployment
from ec1.home import Home
from ec1.night.report.morning import REPORT, conclude_night
from ec1.night.report.notices import due_night, watch
from ec1.night.report.outgoing import read_state
from ec1.night.report.summary import NightReport, night_report
from ec1.night_settings import MetricsSettings, NotifySettings

NEXT = "2026-06-02"


@pytest.fixture
def sink() -> Iterator[Sink]:
    with notice_sink() as sink:
        yield sink


def told_by(embedded: Deployment, **notify: object) -> Deployment:
    return embedded.model_copy(update={"notify": NotifySettings.model_validate(notify)})


def conclude(home: Home, deployment: Deployment, night: str = NIGHT) -> NightReport:
    report = night_report(home, night)
    conclude_night(report, deployment, home, {})
    return report


def test_a_failure_is_told_once_and_so_is_the_recovery(home: Home, embedded: Deployment, sink: Sink) -> None:
    deployment = told_by(embedded, urls=[sink.target])
    for run in ("run-1", "run-2", "run-3"):
        fail(home, run)
        conclude(home, deployment)
    assert sink.titles == [f"EC1: night {NIGHT} failed"]
    assert "the disk is full" in sink.bodies[0] and f"ec1 night --date {NIGHT}" in sink.bodies[0]
    for run in ("run-4", "run-5"):
        a_night(home, run).write(run, run_of())
        conclude(home, deployment)
    assert sink.titles[1:] == [f"EC1: night {NIGHT} is done after the trouble of {NIGHT}"]
    fail(home, "run-6")
    conclude(home, deployment)
    assert sink.of("failed") == 2, "after a recovery it is news again"


def test_an_older_night_does_not_make_a_newer_failure_good(home: Home, embedded: Deployment, sink: Sink) -> None:
    deployment = told_by(embedded, urls=[sink.target])
    fail(home, night=NEXT)
    conclude(home, deployment, NEXT)
    a_night(home).write("run-1", run_of())
    conclude(home, deployment)
    assert sink.of("after the trouble") == 0


def test_a_partial_night_a_version_and_a_quarantine_are_each_told_once(
    home: Home, embedded: Deployment, sink: Sink
) -> None:
    deployment = told_by(embedded, urls=[sink.target, f"{sink.target}/second"])
    a_night(home, missing=1).write("run-1", run_of())
    settle(home)
    a_night(home, night=NEXT).write("run-1", run_of())
    settle(home, "rejected", night=NEXT)
    for _ in range(2):
        for night in (NIGHT, NEXT):
            conclude(home, deployment, night)
    assert (sink.of("left work for a later night"), sink.of(f"{ROLE}@v3 is new"), sink.of("in quarantine")) == (2, 2, 2)
    assert len(sink.titles) == 6, "three things, two targets"


def test_what_is_not_wanted_is_not_told(home: Home, embedded: Deployment, sink: Sink) -> None:
    a_night(home, missing=1).write("run-1", run_of())
    settle(home)
    conclude(home, told_by(embedded, urls=[sink.target], on=["version"]))
    assert sink.titles == [f"EC1: {ROLE}@v3 is new"]


def test_a_target_that_is_down_fails_nothing_is_said_and_is_tried_again(
    home: Home, embedded: Deployment, sink: Sink
) -> None:
    dead = f"json://user:${{PASSWORD}}@127.0.0.1:{free_port()}"
    deployment = told_by(embedded, urls=[sink.target, dead])
    fail(home)
    sink.down = True
    conclude_night(night_report(home, NIGHT), deployment, home, {"PASSWORD": "hunter2"})
    (line,) = night_report(home, NIGHT).notices
    assert f"EC1: night {NIGHT} failed" in line and "tries again" in line
    for path in (home.night(NIGHT) / REPORT, home.notices / "state.json", home.night(NIGHT) / "report.html"):
        assert "hunter2" not in path.read_text(), path
    assert "not delivered" in (home.night(NIGHT) / REPORT).read_text()
    sink.down = False
    conclude(home, deployment)
    conclude(home, told_by(embedded, urls=[sink.target]))
    assert sink.of("failed") == 1
    assert night_report(home, NIGHT).notices == [] and read_state(home).waiting == [], "the dead one was taken out"


def test_a_secret_that_is_not_set_is_named_and_not_guessed(home: Home, embedded: Deployment, sink: Sink) -> None:
    secret = home.root.parent / "address"
    secret.write_text(f"{sink.target}\n")
    deployment = told_by(embedded, urls=["json://${NOT_THERE}/", f"file:{secret}"])
    fail(home)
    report = conclude(home, deployment)
    assert sink.of("failed") == 1 and "NOT_THERE is not set in the environment" in report.notices[0]


def test_a_damaged_memory_is_set_aside(home: Home, embedded: Deployment, sink: Sink) -> None:
    home.notices.mkdir(parents=True)
    (home.notices / "state.json").write_text("{")
    fail(home)
    conclude(home, told_by(embedded, urls=[sink.target]))
    assert sink.of("failed") == 1


@pytest.mark.parametrize(("ends", "path"), [("done", "/ping/1"), ("failed", "/ping/1/fail"), ("interrupted", None)])
def test_a_ping_says_how_it_ended(home: Home, embedded: Deployment, sink: Sink, ends: str, path: str | None) -> None:
    if ends == "failed":
        fail(home)
    else:
        a_night(home).write("run-1", run_of(ends))
    conclude(home, told_by(embedded, ping_url=f"{sink.url}/ping/1/"))
    assert sink.pings == ([path] if path else [])


def at(time: str) -> dt.datetime:
    return dt.datetime.fromisoformat(time)


@pytest.mark.parametrize(
    ("now", "due"),
    [
        ("2026-06-01T23:00+02:00", None),
        ("2026-06-02T06:59+02:00", None),
        ("2026-06-02T07:00+02:00", NIGHT),
        ("2026-06-03T06:59+02:00", NIGHT),
        ("2026-06-03T05:00+00:00", NEXT),
    ],
)
def test_the_night_that_is_due_follows_the_deployments_clock(
    home: Home, embedded: Deployment, now: str, due: str | None
) -> None:
    schedule = {"timezone": "Europe/Berlin", "first_night": dt.date(2026, 6, 1)}
    deployment = embedded.model_copy(update={"schedule": embedded.schedule.model_copy(update=schedule)})
    assert due_night(deployment, home, at(now)) == due


def test_no_night_by_seven_is_told_once_and_its_recovery_too(home: Home, embedded: Deployment, sink: Sink) -> None:
    home.night(NIGHT).mkdir(parents=True)
    deployment = told_by(embedded, urls=[sink.target], ping_url=f"{sink.url}/p")
    for minute in ("00", "15", "30"):
        found = watch(deployment, home, {}, at(f"2026-06-02T07:{minute}+00:00"))
        assert not found.done and f"`ec1 night --date {NIGHT}`" in found.sentence
    assert sink.titles == [f"EC1: no night {NIGHT} by 07:00"] and sink.pings == ["/p/fail"] * 3
    a_night(home).write("run-1", run_of())
    conclude(home, deployment)
    assert watch(deployment, home, {}, at("2026-06-02T08:00+00:00")).done
    assert sink.of("after the trouble") == 1 and sink.pings[-1] == "/p"


def test_a_failure_that_was_told_is_not_told_again_as_no_night(home: Home, embedded: Deployment, sink: Sink) -> None:
    deployment = told_by(embedded, urls=[sink.target])
    fail(home)
    conclude(home, deployment)
    assert not watch(deployment, home, {}, at("2026-06-02T07:00+00:00")).done
    assert len(sink.titles) == 1


def test_a_later_run_does_not_undo_a_night_that_is_done(home: Home, embedded: Deployment, sink: Sink) -> None:
    a_night(home).write("run-1", run_of())
    fail(home, "run-2")
    found = watch(told_by(embedded, urls=[sink.target]), home, {}, at("2026-06-02T07:00+00:00"))
    assert found.done and "is done; of its last run: Night 2026-06-01: failed" in found.sentence and sink.titles == []


def test_the_command_that_a_timer_calls(tmp_path: Path, sink: Sink) -> None:
    """`ec1 report --check` on a home in which nothing ran for days, with no Dagster anywhere."""
    folder = tmp_path / "configs" / "deployments"
    folder.mkdir(parents=True)
    (folder / "here.yaml").write_text(
        "tenant: acme\nrecipes: []\ninference: {kind: vllm, model: some/model}\n"
        "schedule: {first_night: 2026-06-01}\nnotify: {urls: ['json://${SINK}']}\n"
    )
    environment = {
        "EC1_PROJECT": str(tmp_path), "EC1_HOME": str(tmp_path / "home"), "EC1_DEPLOYMENT": "here",
        "SINK": sink.url.removeprefix("http://"),
    }  # fmt: skip
    for _ in range(2):
        done = CliRunner().invoke(app, ["report", "--check"], env=environment)
        assert done.exit_code == 1 and "did not run (due by 07:00)" in done.output, done.output
    assert len(sink.titles) == 1 and sink.of("no night") == 1


def test_prometheus_reads_the_figures_and_zero_is_not_not_reached(home: Home, embedded: Deployment) -> None:
    path = home.root.parent / "textfile" / "ec1.prom"
    deployment = embedded.model_copy(update={"metrics": MetricsSettings(textfile=path)})

    def figures() -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(path.read_text())
        samples = [each for family in families for each in family.samples]
        return {(each.name, *(value for _, value in sorted(each.labels.items()))): each.value for each in samples}

    a_night(home).write("run-1", run_of())
    settle(home)
    conclude(home, deployment)
    found = figures()
    end = at("2026-06-02T02:30+00:00").timestamp()
    assert found["ec1_night_last_success_timestamp_seconds",] == end and found["ec1_night_success",] == 1
    assert (found["ec1_night_seconds",], found["ec1_night_gpu_seconds",]) == (1800, 590)
    assert found["ec1_night_documents", "read"] == 26 and found["ec1_graph_entities",] == 107
    assert found["ec1_night_verdict", ROLE, "accepted"] == 1
    assert found["ec1_night_held_out_loss", "candidate", ROLE] == 1.75
    assert ("ec1_night_cost_usd",) not in found

    fail(home, night=NEXT)
    conclude(home, deployment, NEXT)
    found = figures()
    assert found["ec1_night_success",] == 0 and found["ec1_night_last_success_timestamp_seconds",] == end
    assert ("ec1_night_documents", "read") not in found and ("ec1_graph_entities",) not in found
    assert not list(path.parent.glob(".*")), "written whole"


def test_a_home_that_cannot_be_written_is_no_reason_to_be_silent(
    home: Home, embedded: Deployment, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    home.notices.parent.mkdir(parents=True, exist_ok=True)
    home.notices.write_text("not even a folder")
    monkeypatch.setattr("ec1.night.report.outgoing.write_json", full)
    fail(home)
    conclude(home, told_by(embedded, urls=[sink.target]))
    assert sink.titles == [f"EC1: night {NIGHT} failed"]

"""Nights, trainings and versions in Studio: what is recorded is shown, and decisions go through the registry."""

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dagster import UrlMetadataValue
from published import publish
from studio_desk import foreign_page, served, state_at, training_spec

from ec1.night.records import Part, Records, RunRecord
from ec1.queries.desk import Desk
from ec1.queries.nights import nights_page, report_of
from ec1_assets.night_report import STUDIO, metadata_of

pytestmark = pytest.mark.browser
ROLE = "fernhollow/engineering"


def test_versions_are_promoted_rolled_back_and_quarantined_with_a_reason(
    desk: Desk, page: Any, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    registry = desk.registry
    for seed in (1, 2, 3):
        publish(registry, tmp_path / "made", seed)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/versions")
        assert faults(page) == []
        page.get_by_role("link", name=ROLE, exact=True).click()
        # Else axe looks at a page that is going.
        page.wait_for_url(f"**/versions/{ROLE}")
        assert faults(page) == []

        def decide(what: str, version: str, reason: str) -> None:
            page.locator("select[name=action]").select_option(what)
            page.locator("select[name=version]").select_option(version)
            page.locator("input[name=reason]").fill(reason)
            page.get_by_role("button", name="Decide").click()

        decide("promote", "1", "")
        assert not registry.decisions("fernhollow", "engineering"), "the browser asks for the reason"
        decide("promote", "1", "v3 <b>echoes</b>")
        assert page.get_by_role("status").inner_text() == f"{ROLE}@v1 is in use"
        decide("promote", "3", "mended")
        page.get_by_text(f"{ROLE}@v3 is in use").wait_for()
        decide("rollback", "", "still echoes")
        page.get_by_text(f"{ROLE}@v2 is in use").wait_for()
        decide("pin", "1", "until the audit")
        page.get_by_text(f"{ROLE}@v1 is in use").wait_for()
        decide("unpin", "", "the audit is over")
        page.get_by_text(f"{ROLE}@v2 is in use").wait_for()
        decide("quarantine", "3", "it learnt a secret")
        page.get_by_text("it learnt a secret").wait_for()
        found = registry.decisions("fernhollow", "engineering")
        assert [(each.action, each.after, each.who) for each in found] == [
            ("promote", 1, "anna"),
            ("promote", 3, "anna"),
            ("rollback", 2, "anna"),
            ("pin", 1, "anna"),
            ("unpin", None, "anna"),
            ("withdraw", 3, "anna"),
        ]
        assert registry.incumbent("fernhollow", "engineering").version == 2
        page.goto(f"{address}/versions/{ROLE}/v3")
        assert "it learnt a secret" in page.locator("main").inner_text()
        assert "is not in this home" in page.locator(".tree").inner_text()
        assert faults(page) == []


def test_right_and_wrong_answers_stand_beside_each_other(
    desk: Desk, page: Any, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    said = {"base": "<i>no</i>", "candidate": "yes"}
    sample = {"prompt": "Is it <b>so</b>?", "expected": "yes", "answers": said}
    samples = [{**sample, "kind": "exact", "right": {"base": False, "candidate": True}}, sample]
    evaluation = tmp_path / "evaluation.json"
    evaluation.write_text(json.dumps({"samples": samples}))
    publish(desk.registry, tmp_path / "made", 1, attachments={"evaluation.json": evaluation})
    with served(state_at(desk)) as address:
        page.goto(f"{address}/versions/{ROLE}/v1")
        first = page.locator("details").first
        assert first.get_by_label("base").inner_text().split("\n")[:3:2] == ["base", "wrong"]
        assert first.get_by_label("candidate").get_by_text("right", exact=True).is_visible()
        assert faults(page) == []


def post(address: str, fields: str, **headers: str) -> int:
    """The status that `curl` gets for a form."""
    sent = [f"-H{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    path = f"{address}/versions/{ROLE}/decide"
    done = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", "@-", *sent, path],
        capture_output=True,
        text=True,
        input=fields,
    )
    return int(done.stdout)


def test_a_foreign_page_and_a_read_only_studio_change_nothing(desk: Desk, page: Any, tmp_path: Path) -> None:
    for seed in (1, 2):
        publish(desk.registry, tmp_path / "made", seed)
    fields = "action=promote&version=1&reason=taken"
    with served(state_at(desk)) as address:
        form = "".join(f'<input name="{k}" value="{v}">' for k, v in (each.split("=") for each in fields.split("&")))
        html = f"""<form method="post" action="{address}/versions/{ROLE}/decide">{form}</form><script>
        fetch("{address}/versions/{ROLE}/decide",
              {{method: "POST", mode: "no-cors", body: new URLSearchParams("{fields}")}})
          .finally(() => document.forms[0].submit())</script>"""
        with foreign_page(html) as foreign:
            page.goto(foreign)
            page.wait_for_url(f"{address}/**")
            assert "may not use this server" in page.content()
        assert post(address, fields, origin="null") == 403
        assert post(address, fields, host="evil.example") == 403
        assert post(address, "action=promote&version=1&reason=%20") == 400
        assert post(address, "action=sign&version=1&reason=x") == 400
        assert post(address, "action=promote&version=9&reason=x") == 400
        assert post(address, "reason=" + "x" * 5 * 2**20) == 413
        assert not desk.registry.decisions("fernhollow", "engineering")
        assert post(address, fields) == 303, "a program of this machine may"
        assert len(desk.registry.decisions("fernhollow", "engineering")) == 1
    with served(state_at(desk, read_only=True)) as address:
        page.goto(f"{address}/versions/{ROLE}")
        assert page.get_by_role("button", name="Decide").count() == 0
        assert post(address, fields) == 403
    assert len(desk.registry.decisions("fernhollow", "engineering")) == 1


def write_night(desk: Desk, night: str) -> None:
    moment = dt.datetime(2026, 6, 2, 1, tzinfo=dt.UTC)
    parts = [
        Part(name="source_documents", status="done", began=moment, worked=2.0),
        Part(name="graph_mutations", status="failed", began=moment + dt.timedelta(seconds=3), worked=9.0),
    ]
    ended = moment + dt.timedelta(seconds=15)
    record = RunRecord(job="nightly_job", status="failed", asked=moment, began=moment, ended=ended, parts=parts)
    Records(desk.home.night(night)).write("11111111-aaaa", record)


def test_a_night_shows_when_its_parts_worked(
    desk: Desk, page: Any, tmp_path: Path, faults: Callable[[Any], list[str]]
) -> None:
    for night in ("2026-06-01", "2026-06-02"):
        write_night(desk, night)
    with served(state_at(desk)) as address:
        page.goto(f"{address}/nights")
        assert [each[:10] for each in page.locator("ol.rows > li > a").all_inner_texts()] == [
            "2026-06-02",
            "2026-06-01",
        ]
        assert faults(page) == []
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Run 11111111, failed").wait_for()
        bars = [each.bounding_box() for each in page.locator("svg.bar rect").all()]
        assert [each["width"] for each in bars] == pytest.approx([bars[1]["width"] * 2 / 9, bars[1]["width"]], rel=0.05)
        assert bars[0]["x"] < bars[1]["x"]
        assert faults(page) == []
        there = page.get_by_role("link", name="This run in Dagster").get_attribute("href")
        assert there == "http://127.0.0.1:3000/runs/11111111-aaaa"
        back = metadata_of(report_of(desk.home, "2026-06-02"), tmp_path)["studio"]
        assert isinstance(back, UrlMetadataValue)
        page.goto(back.value.replace(STUDIO, address))
        page.get_by_role("heading", name="Run 11111111, failed").wait_for()
        assert page.goto(f"{address}/nights/2026-01-01").status == 400
        assert page.goto(f"{address}/nights/yesterday").status == 400
    assert nights_page(desk.home, 1).next == "1"


def test_a_training_is_shown_while_it_runs(
    desk: Desk, page: Any, words: Path, faults: Callable[[Any], list[str]]
) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = desk.home.run("fernhollow", "engineering", "2026-06-01") / "training"
    folder.mkdir(parents=True)
    spec = training_spec(folder, words)
    (folder / "run.json").write_text(json.dumps({"spec": spec, "provenance": {}, "started": "2026-06-01T01:00:00"}))
    writer = EventFileWriter(str(folder / "tensorboard"))

    def step(number: int, value: float, tag: str = "loss", to: EventFileWriter = writer) -> None:
        summary = Summary(value=[Summary.Value(tag=f"train/{tag}", simple_value=value)])
        to.add_event(Event(step=number, summary=summary))
        to.flush()

    with served(state_at(desk)) as address:
        page.goto(f"{address}/runs/{ROLE}/2026-06-01")
        assert "Nothing was measured yet" in page.locator("main").inner_text()
        step(1, 3.5)
        step(2, float("nan"))
        step(3, 2.25)
        page.get_by_text("loss: 2.25 to 3.5, steps 1 to 3").wait_for()
        step(4, 1.5)
        page.get_by_text("loss: 1.5 to 3.5, steps 1 to 4").wait_for()
        assert faults(page) == []
        # What else is measured comes as well, and the curves of several trainings lie over each other.
        for tag in ("reward", "tokens_per_second", "gpu_busy"):
            step(5, 7.5, tag)
        for name in ("reward", "tokens per second", "gpu busy"):
            page.get_by_text(f"{name}: 7.5").wait_for()
        other = desk.home.run("fernhollow", "engineering", "2026-06-02") / "training"
        other.mkdir(parents=True)
        (other / "run.json").write_text((folder / "run.json").read_text())
        second = EventFileWriter(str(other / "tensorboard"))
        for number in (1, 2):
            step(number, 3.0 - number, to=second)
        second.close()
        page.goto(f"{address}/runs?run={ROLE}/2026-06-01&run={ROLE}/2026-06-02")
        loss = page.locator("figure").filter(has_text="loss").locator("polyline")
        assert [len((each.get_attribute("points") or "").split()) for each in loss.all()] == [3, 2]
        assert [each[-10:] for each in page.locator(".legend li").all_inner_texts()] == ["2026-06-01", "2026-06-02"]
        assert faults(page) == []
    writer.close()


def test_ec1_studio_says_what_is_wrong_in_one_line(tmp_path: Path, project: Path) -> None:
    command = [sys.executable, "-m", "ec1.cli", "--deployment", "none", "studio"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "none" in done.stderr

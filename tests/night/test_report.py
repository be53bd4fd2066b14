"""The report of a night: how the time was spent, what it cost, what waits, what to do; on constructed records."""

import datetime as dt
import os
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from night_records import NIGHT, ROLE, a_night, fail, run_of, settle

from ec1.documents.ledger import DocumentKey
from ec1.documents.listing import LISTING
from ec1.errors import InputError
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.extraction.scoring import figures_of, score, shown_figure
from ec1.home import Home
from ec1.night.records import GenerationRecord, GraphRecord, Records, ScoreRecord
from ec1.night.report.failure import Failure, write_failure
from ec1.night.report.morning import PAGE, page_of, write_report
from ec1.night.report.summary import NightReport, night_report, nights_since
from ec1.night.report.text import as_markdown, summary
from ec1.night.report.totals import totals_of


def shown(report: NightReport) -> str:
    return as_markdown(report).replace("\\", "")


def test_a_quiet_night_is_done_and_says_how_it_spent_the_time(home: Home) -> None:
    a_night(home).write("run-1", run_of())
    report = night_report(home, NIGHT)
    assert (report.status, report.run) == ("done", "run-1")
    assert [each.outcome for each in report.recipes] == ["skipped"], "the recipes that the run had"
    assert (report.seconds, report.gpu_seconds, report.cost) == (1800, 590, None)
    assert report.advice() == []
    text = shown(report)
    for part in ("1800 s", "60 s in the queue", "held for 590 s", "NVIDIA L4", "21.5 GiB free", "100 tokens/s"):
        assert part in text
    assert "| extract_entities | done | 02:00:00 | 2.0 s | 90 s | 600 s |" in text


def test_what_a_night_costs_is_the_machines_time_at_the_price_of_then(home: Home) -> None:
    records = a_night(home)
    records.write("run-1", run_of(cost_per_hour=0.5))
    records.write("run-2", run_of(cost_per_hour=2.0))
    report = night_report(home, NIGHT)
    assert report.cost == pytest.approx(1.25) and "1.25 USD" in shown(report)


def test_a_version_shows_its_loss_and_its_gain(home: Home) -> None:
    a_night(home).write("run-1", run_of())
    settle(home)
    (recipe,) = night_report(home, NIGHT).recipes
    assert recipe.outcome == "accepted" and recipe.version == 3 and recipe.gain == (1.25, 1.1, 1.4)
    text = shown(night_report(home, NIGHT))
    assert "base 3.000, candidate 1.750" in text and "+1.250 [+1.100, +1.400]" in text
    assert f"ec1 adapters show {ROLE}@v3" in text


def test_what_was_found_stands_beside_the_base_line_by_class(home: Home) -> None:
    records = a_night(home)
    gold = {DocumentKey("meeting", str(i)): frozenset({("ann", "Person"), ("york", "Location")}) for i in range(9)}
    found = {key: frozenset({("ann", "Person")} if i % 3 else {("bob", "Person")}) for i, key in enumerate(gold)}
    table = replace(score(found, gold), baseline=score({}, gold))
    records.write("run-1", ScoreRecord(documents=9, left_out={"changed since": 2}, figures=table.record()))
    records.write("run-1", run_of())
    text = shown(night_report(home, NIGHT))
    low, high = table["all"].interval
    assert f"F1 0.44 {low:.2f}-{high:.2f}; base line F1 0.00" in text and "9 documents" in text
    assert "2 left out (changed since)" in text
    # As `ec1 score` prints them.
    for name, figure in zip(("precision", "recall"), figures_of(table["all"]), strict=False):
        assert f"{name} {shown_figure(*figure)}" in text and shown_figure(*figure) in str(table)
    assert "| Person | 9 | 9 | 6 | 0.67" in text and "| Project | 0 | 0 | 0 | - | - | - | - | - | - |" in text


def test_a_night_that_could_not_be_scored_says_why(home: Home) -> None:
    records = a_night(home)
    records.write("run-1", ScoreRecord(problem="there is no gold file x.jsonl"))
    records.write("run-1", run_of())
    assert "not measured: there is no gold file x.jsonl" in shown(night_report(home, NIGHT))


def test_what_was_deferred_is_listed_with_its_reason_and_is_no_markup(home: Home) -> None:
    a_night(home, missing=1).write("run-1", run_of())
    report = night_report(home, NIGHT)
    assert report.status == "partial" and report.succeeded
    assert "ec1 plan" in [each.command for each in report.advice()]
    page = page_of(report, home)
    assert "<b>here</b>" not in page and "&lt;b&gt;here&lt;/b&gt;" in page
    assert "meeting abcdef012345" in page and "cut | off" in page


def test_what_was_rejected_is_named_with_its_reason_and_is_not_called_deferred(home: Home) -> None:
    records = a_night(home)
    refused = [("plans/a.pdf", "9 pages are more than documents.conversion.max_pages (5)"), ("b.md", "empty")]
    problems = [
        {"stream": "all", "content": "abcdef012345", "path": path, "status": "rejected", "reason": why}
        for path, why in refused
    ]
    late = {"stream": "all", "content": "fedcba543210", "path": "c.pdf", "status": "deferred", "reason": "too slow"}
    records.write("run-1", ExtractionRecord(problems=[*problems, late]))
    records.write("run-1", GraphRecord(applied=24, rejected=2, deferred=1, refused=refused))
    records.write("run-1", run_of())
    report = night_report(home, NIGHT)
    text = shown(report)
    assert "1 deferred to a later night (too slow), 2 rejected (plans/a.pdf: 9 pages are more than" in text
    assert "| plans/a.pdf | 9 pages are more than" in text and "| b.md | empty |" in text
    assert [(each.what, each.reason) for each in report.deferred] == [("c.pdf", "too slow")]


def test_a_file_that_the_disk_did_not_give_is_named_and_waits(home: Home) -> None:
    """It was in no figure and no table: a night without it looked like any other."""
    records = a_night(home)
    records.write("run-1", GraphRecord(applied=25, deferred=1, unread=[("a.md", "unreadable now: Input/output error")]))
    records.write("run-1", run_of())
    report = night_report(home, NIGHT)
    assert "1 deferred to a later night (unreadable now: Input/output error)" in shown(report)
    assert report.status == "partial"
    assert [(each.what, each.reason) for each in report.deferred] == [("a.md", "unreadable now: Input/output error")]


def test_files_that_are_newer_than_the_night_are_counted(home: Home) -> None:
    """A night made up for yesterday said of forty new files that nothing was read, rejected or deferred."""
    records = a_night(home)
    records.write("run-1", GraphRecord(later=40))
    records.write("run-1", run_of())
    assert "0 vanished, 40 newer than the night" in shown(night_report(home, NIGHT))


def test_generated_rows_are_told_and_why_there_are_none(home: Home) -> None:
    """A night that could not make the rows that a person had asked for looked like any other."""
    records = a_night(home)
    records.write("run-1", GenerationRecord(rows=4, made={"sums/calls": "4 rows of 6 calls"}))
    records.write("run-1", run_of())
    report = night_report(home, NIGHT)
    assert report.status == "done" and "sums/calls: 4 rows of 6 calls" in shown(report)
    records.write("run-2", GenerationRecord(problem="rows cannot be generated: no bubblewrap"))
    report = night_report(home, NIGHT)
    assert report.status == "partial" and "rows cannot be generated: no bubblewrap" in shown(report)
    assert report.generated is not None and report.generated.rows == 4


def test_a_stream_whose_source_was_not_reached_makes_the_night_partial_and_is_named(home: Home) -> None:
    records = a_night(home)
    records.write("run-1", GraphRecord(applied=26, put_off={"contracts": "s3://acme/ cannot be reached: no route"}))
    records.write("run-1", run_of())
    report = night_report(home, NIGHT)
    assert report.status == "partial" and report.succeeded
    assert "| stream contracts | s3://acme/ cannot be reached: no route |" in shown(report)
    assert any("Stream contracts was put off" in each.sentence for each in report.advice())


def test_a_failed_night_shows_its_cause_and_what_it_did_not_reach(home: Home) -> None:
    fail(home)
    report = night_report(home, NIGHT)
    assert report.status == "failed" and not report.succeeded
    text = shown(report)
    assert "failed: source_documents: the disk is full" in text and f"ec1 night --date {NIGHT}" in text
    assert text.count("not reached") == 3, "documents, entities, the recipe"
    assert write_report(report, home) == home.night(NIGHT) / PAGE


def test_a_night_that_succeeds_in_its_second_run_is_done_and_keeps_both_timelines(home: Home) -> None:
    records = a_night(home)
    records.write("run-1", run_of("failed"))
    write_failure(home, Failure(night=NIGHT, run="run-1", job="nightly_job", cause="lost power", again=""))
    assert night_report(home, NIGHT).status == "failed"
    a_night(home, "run-2").write("run-2", run_of())
    report = night_report(home, NIGHT)
    assert report.status == "done" and [each.status for each in report.timeline.values()] == ["failed", "done"]
    assert report.done.documents_read == 52, "both runs together"


def test_a_run_that_ended_before_phase_1_counts_as_a_run(home: Home) -> None:
    Records(home.night(NIGHT)).write("run-0", run_of("failed"))
    records = a_night(home)
    records.write("run-1", run_of())
    report = night_report(home, NIGHT, "run-1")
    assert report.runs == 2
    assert "26 read in 2 runs (26 in this one)" in shown(report)
    assert "in 2 runs (not reached in this one)" in shown(night_report(home, NIGHT, "run-0"))


def test_a_night_in_which_only_phase_1_ran_is_not_done(home: Home) -> None:
    records = Records(home.night(NIGHT))
    records.write("run-1", GraphRecord(applied=2))
    records.write("run-1", run_of())
    report = night_report(home, NIGHT)
    assert report.status == "unfinished"
    assert f"ec1 night --date {NIGHT}" in [each.command for each in report.advice()]


def test_a_night_that_never_ran_says_so(home: Home) -> None:
    with pytest.raises(InputError, match=f"night {NIGHT} has no report.*`ec1 night --date {NIGHT}`"):
        night_report(home, NIGHT)


def test_a_night_that_still_reads_says_what_it_has_read(home: Home) -> None:
    records = Records(home.night(NIGHT))
    (records.folder / LISTING).parent.mkdir(parents=True)
    (records.folder / LISTING).write_text("{}")
    with pytest.raises(InputError, match="has begun, and nothing is in the graph yet"):
        night_report(home, NIGHT)
    early = GraphRecord(applied=12, missing=28, entities_after=31, reading_process=os.getpid())
    records.write("run-1", early)
    report = night_report(home, NIGHT)
    assert ("documents", "12 read so far and in the graph, 28 still to read") in summary(report)
    assert [each.command for each in report.advice()] == ["ec1 graph stats"]
    assert report.documents_deferred is None and not report.succeeded
    # Its process was killed: nobody reads any more.
    gone = subprocess.Popen(["true"])
    gone.wait()
    records.write("run-1", early.model_copy(update={"reading_process": gone.pid}))
    report = night_report(home, NIGHT)
    assert report.reading is None and report.done.documents_read == 12 and report.documents_deferred == 28


def test_the_page_is_whole_and_holds_the_plots(home: Home) -> None:
    a_night(home).write("run-1", run_of())
    (home.night(NIGHT) / "growth-entities.png").write_bytes(b"\x89PNG")
    (home.night(NIGHT) / "unrelated.png").write_bytes(b"other")
    seen: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            seen.append((tag, dict(attributes)))

    Reader().feed(page_of(night_report(home, NIGHT), home))
    (picture,) = [attributes for tag, attributes in seen if tag == "img"]
    assert picture["alt"] == "Entities in the graph, by night"
    assert str(picture["src"]).startswith("data:image/png;base64,iVBORw") or "iVBO" in str(picture["src"])
    assert not [tag for tag, _ in seen if tag in ("script", "link", "a")], "nothing is loaded from elsewhere"


def test_a_range_of_nights_and_the_totals_of_each_tenant(home: Home) -> None:
    a_night(home).write("run-1", run_of(recipes=[ROLE, "acme/crew"]))
    settle(home)
    (home.night("2026-05-30")).mkdir(parents=True)
    (home.nights / "notes").mkdir()
    assert nights_since(home, dt.date(2026, 6, 1)) == [NIGHT]
    assert nights_since(home, dt.date(2026, 5, 1)) == ["2026-05-30", NIGHT]
    totals = totals_of([night_report(home, NIGHT)], "fernhollow")
    assert (totals["fernhollow"].documents, totals["fernhollow"].accepted, totals["acme"].accepted) == (26, 1, 0)

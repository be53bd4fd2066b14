"""A night's records: typed, one per run, and what is shown of the night is the total of its runs."""

import json
from pathlib import Path

import pytest

from ec1.corpus.threshold import TrainingDecision
from ec1.errors import InputError
from ec1.extraction.reading.progress import ExtractionRecord, StreamCounts
from ec1.home import Home
from ec1.night.records import DecisionRecord, GraphRecord, OutcomeRecord, Records, SnapshotRecord
from ec1.night.report.summary import night_report

NIGHT = "2026-06-01"


def extraction(stream: str = "meeting", **fields: object) -> ExtractionRecord:
    counts = {"complete": 3, "deferred": 1, "rejected": 0, "reused": 0, "postponed": 2}
    problem = {"stream": stream, "content": "abc", "status": "deferred", "reason": "cut off"}
    values = {
        "streams": {stream: counts},
        "entities": {"Person": 4},
        "entities_by_stream": {stream: {"Person": 4}},
        "llm_calls": 10,
        "prompt_tokens": 900,
        "completion_tokens": 100,
        "seconds": 10.0,
        "problems": [problem],
    }
    return ExtractionRecord.model_validate({**values, **fields})


def nothing(stream: str = "meeting") -> ExtractionRecord:
    """What a run writes that found nothing new to read."""
    zeros = dict.fromkeys(("complete", "deferred", "rejected", "reused", "postponed"), 0)
    return ExtractionRecord(streams={stream: zeros})


def decision(train: bool = True) -> DecisionRecord:
    return DecisionRecord(
        decision=TrainingDecision(
            train=train, reason="because", trainable=60, new=60, threshold=50, snapshot="s", trained_snapshot=None
        )
    )


def outcome(detail: str = "fernhollow/engineering@v1, better") -> OutcomeRecord:
    return OutcomeRecord(
        outcome="published", verdict="accepted", detail=detail, path=Path("v1"), snapshot="s", dataset="d", version=1
    )


def test_running_a_night_again_does_not_overwrite_its_figures(tmp_path: Path) -> None:
    records = Records(tmp_path / NIGHT)
    records.write("run-1", extraction())
    records.write("run-2", nothing())
    total = records.total(ExtractionRecord)
    assert total is not None
    assert (total.llm_calls, total.entities, total.streams["meeting"].complete) == (10, {"Person": 4}, 3)
    assert total.tokens_per_second == 100.0
    assert total.streams["meeting"].deferred == total.streams["meeting"].postponed == 0, "the second read them"
    assert total.problems == []
    first = records.find(ExtractionRecord, "run-1")
    assert first is not None and first.llm_calls == 10 and first.problems


def test_work_adds_up_and_what_is_left_is_the_last_runs(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write("a", extraction())
    records.write("b", extraction())
    records.write("c", extraction("research"))
    total = records.total(ExtractionRecord)
    assert total is not None
    assert total.streams["meeting"] == StreamCounts(complete=6, deferred=1, postponed=2)
    assert total.entities_by_stream == {"meeting": {"Person": 8}, "research": {"Person": 4}}
    assert total.documents == 6 + 1 + 3 + 1
    assert [row["stream"] for row in total.problems] == ["meeting", "research"]
    for run, (before, after, applied, missing) in {"a": (5, 9, 4, 3), "b": (9, 10, 1, 0)}.items():
        records.write(run, GraphRecord(entities_before=before, entities_after=after, applied=applied, missing=missing))
    graph = records.total(GraphRecord)
    assert graph is not None
    assert (graph.entities_before, graph.entities_after, graph.applied, graph.missing) == (5, 10, 5, 0)


def test_a_step_that_a_run_repeats_counts_once(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.write("a", extraction())
    records.write("a", extraction(llm_calls=12))
    total = records.total(ExtractionRecord)
    assert total is not None and total.llm_calls == 12


def test_what_is_missing_or_damaged_is_said(tmp_path: Path) -> None:
    records = Records(tmp_path / NIGHT)
    assert records.find(SnapshotRecord) is None and records.total(SnapshotRecord) is None
    with pytest.raises(InputError, match=rf"no corpus_snapshot of night {NIGHT}.*materialise `corpus_snapshot`"):
        records.read(SnapshotRecord)
    with pytest.raises(InputError, match=r"run '\.\./x' is not a valid name"):
        records.write("../x", SnapshotRecord(bucket="b", digest="d"))
    records.write("a", SnapshotRecord(bucket="b", digest="d"))
    path = records.folder / "records" / "corpus_snapshot" / "a.json"
    path.write_text(json.dumps({"bucket": 3, "digest": "d", "of a later version": 1}))
    with pytest.raises(InputError, match="bucket"):
        records.read(SnapshotRecord)


def test_the_report_tells_the_night_from_the_run_and_zero_from_not_reached(home: Home) -> None:
    roles = [("fernhollow", "engineering"), ("fernhollow", "apprenticeship")]
    empty = night_report(home, NIGHT, "run-1", roles)
    assert empty.done.documents_read is None and empty.graph_entities is None
    assert {each.detail for each in empty.recipes} == {"not reached"}

    records, engineering = Records(home.night(NIGHT)), Records(home.run("fernhollow", "engineering", NIGHT))
    records.write("run-1", extraction())
    records.write("run-1", GraphRecord(applied=26, entities_after=107, missing=2))
    engineering.write("run-1", decision())
    engineering.write("run-1", outcome())
    first = night_report(home, NIGHT, "run-1", roles)
    assert first.partial and first.runs == 1 and first.done == first.this_run
    assert [each.outcome for each in first.recipes] == ["accepted", "unfinished"]

    records.write("run-2", nothing())
    records.write("run-2", GraphRecord(entities_before=107, entities_after=107))
    engineering.write("run-2", decision(train=False))
    again = night_report(home, NIGHT, "run-2", roles)
    assert (again.done.documents_read, again.this_run.documents_read, again.graph_entities) == (26, 0, 107)
    assert (again.done.llm_calls, again.this_run.llm_calls) == (10, 0)
    assert not again.partial and again.runs == 2
    assert again.recipes[0].outcome == "accepted"
    assert again.recipes[0].detail.endswith("(in an earlier run of this night)")

    engineering.write("run-3", decision())
    assert night_report(home, NIGHT, "run-3", roles).recipes[0].outcome == "unfinished", "this run trains again"


def test_a_key_that_no_record_has_is_refused_by_the_tests(tmp_path: Path) -> None:
    Records(tmp_path).write("a", extraction())
    (path,) = tmp_path.rglob("a.json")
    path.write_text(path.read_text().replace('"llm_calls"', '"llm_cals"'))
    with pytest.raises(InputError, match="llm_cals"):
        Records(tmp_path).find(ExtractionRecord)

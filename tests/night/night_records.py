"""Records of made-up nights, for tests of what is made of them."""

import datetime as dt
from pathlib import Path

from ec1.adapters.gate import ScoreDifference, VerdictName
from ec1.corpus.threshold import TrainingDecision
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.home import Home
from ec1.night.records import (
    DecisionRecord,
    EvaluationRecord,
    GraphRecord,
    HandoverRecord,
    OutcomeRecord,
    Part,
    Records,
    RunRecord,
)
from ec1.night.report.failure import Failure, write_failure

NIGHT = "2026-06-01"
ROLE = "fernhollow/engineering"
BEGAN = dt.datetime(2026, 6, 2, 2, 0, tzinfo=dt.UTC)


def run_of(status: str = "done", **fields: object) -> RunRecord:
    """A run that was asked for a minute before it began and took half an hour."""
    values = {
        "job": "nightly_job",
        "status": status,
        "asked": BEGAN - dt.timedelta(minutes=1),
        "began": BEGAN,
        "ended": BEGAN + dt.timedelta(minutes=30),
        "recipes": [ROLE],
        "parts": [
            Part(name="extract_entities", status="done", began=BEGAN, waited=2, worked=600, lease_waited=90, gpu=590),
            Part(name=f"{ROLE}/evaluation", status="skipped"),
        ],
    }
    return RunRecord.model_validate({**values, **fields})


def a_night(home: Home, run: str = "run-1", missing: int = 0, night: str = NIGHT) -> Records:
    """Phase 1 of a night that went well, and what was decided about its one recipe."""
    records = Records(home.night(night))
    problems = [{"stream": "meeting", "content": "abcdef0123456789", "reason": "cut | off <b>here</b>"}][:missing]
    records.write(
        run,
        ExtractionRecord(
            entities={"Person": 4}, llm_calls=9, prompt_tokens=900, completion_tokens=100, seconds=10, problems=problems
        ),
    )
    records.write(run, GraphRecord(applied=26, entities_after=107, missing=missing))
    records.write(run, HandoverRecord(night=night, device="NVIDIA L4", free_gib=21.5, total_gib=24, swept=0))
    decision = TrainingDecision(
        train=False, reason="short", trainable=9, new=9, threshold=50, snapshot="s", trained_snapshot=None
    )
    Records(home.run("fernhollow", "engineering", night)).write(run, DecisionRecord(decision=decision))
    return records


def settle(home: Home, verdict: VerdictName = "accepted", run: str = "run-1", night: str = NIGHT) -> None:
    """The recipe was trained and judged on that night."""
    records = Records(home.run("fernhollow", "engineering", night))
    gain = ScoreDifference(mean=1.25, lower=1.1, upper=1.4, examples=60, groups=12, better=True)
    losses = {"base": 3.0, "candidate": 1.75}
    records.write(run, EvaluationRecord(verdict=verdict, mean_losses=losses, examples=60, differences={"base": gain}))
    accepted = verdict == "accepted"
    records.write(
        run,
        OutcomeRecord(
            outcome="published" if accepted else "quarantined",
            verdict=verdict,
            detail=f"{ROLE}@v3, better" if accepted else "worse",
            path=Path("v3"),
            snapshot="s",
            dataset="d",
            version=3 if accepted else None,
        ),
    )


def fail(home: Home, run: str = "run-1", night: str = NIGHT) -> None:
    """A run that failed in its first step."""
    parts = [Part(name="source_documents", status="failed", began=BEGAN, waited=1, worked=3)]
    Records(home.night(night)).write(run, run_of("failed", parts=parts))
    cause = "source_documents: the disk is full"
    write_failure(home, Failure(night=night, run=run, job="nightly_job", cause=cause, again=""))

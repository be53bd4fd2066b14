"""How long the phases may work, what waits when the night runs out, and whom a night's cost is for."""

import pytest
from night_records import NIGHT, ROLE, a_night, run_of
from pydantic import ValidationError

from ec1.corpus.threshold import TrainingDecision
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.home import Home
from ec1.night.records import CandidateRecord, DecisionRecord, MachineRecord, Part, PostponedRecord, Records
from ec1.night.report.summary import NightReport, night_report
from ec1.night.report.text import as_markdown
from ec1.night.report.totals import totals_of
from ec1.night.steps.budgets import extraction_seconds, too_late, training_seconds
from ec1.night_settings import BudgetSettings
from ec1.training.plan import TrainingPlan
from ec1.training.spec import TrainingResult

BUDGETS = BudgetSettings(
    extraction_seconds=7200, training_seconds=7200, night_seconds=10000, training_floor_seconds=4000
)


def plan_of(seconds: float) -> TrainingPlan:
    return TrainingPlan(
        tokens=1,
        rows=1,
        steps=1,
        warmup_steps=0,
        evaluations=0,
        effective_batch=1,
        trainable_parameters=1,
        peak_memory_gib=1.0,
        seconds=seconds,
        cost=0.0,
        hardware="NVIDIA L4",
    )


def trained(**fields: object) -> TrainingResult:
    """A training's result with something in each field."""
    fields_of = TrainingResult.model_fields.items()
    values = {name: "x" if field.annotation is str else 1 for name, field in fields_of if field.is_required()}
    return TrainingResult.model_validate({**values, "status": "finished", "versions": {}, **fields})


def recipe_records(home: Home) -> Records:
    tenant, role = ROLE.split("/")
    return Records(home.run(tenant, role, NIGHT))


def shown(report: NightReport) -> str:
    return as_markdown(report).replace("\\", "")


def test_each_phase_has_its_own_budget_unless_the_night_is_bounded() -> None:
    assert extraction_seconds(BudgetSettings()) == 7200
    assert extraction_seconds(BudgetSettings(training_floor_seconds=9000)) == 7200


def test_phase_one_leaves_training_its_floor() -> None:
    assert extraction_seconds(BUDGETS) == 6000
    # Of what the machine's lifetime and cost still allow, too.
    assert extraction_seconds(BUDGETS, machine_left=5000) == 1000
    assert extraction_seconds(BUDGETS, machine_left=3000) == 0


def test_a_floor_that_leaves_phase_one_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="leaves phase 1 nothing"):
        BudgetSettings(night_seconds=3600, training_floor_seconds=3600)


def test_training_gets_what_the_run_has_left(home: Home) -> None:
    assert training_seconds(BUDGETS, home, NIGHT, "run-1") == 7200
    Records(home.night(NIGHT)).write("run-1", ExtractionRecord(seconds=6000))
    assert training_seconds(BUDGETS, home, NIGHT, "run-1") == 4000, "the floor is there"
    recipe_records(home).write("run-1", CandidateRecord(result=trained(seconds=3000.0)))
    assert training_seconds(BUDGETS, home, NIGHT, "run-1") == 1000
    assert training_seconds(BUDGETS, home, NIGHT, "run-2") == 7200, "an operator who runs it again means it"
    assert training_seconds(BUDGETS, home, NIGHT, "run-1", machine_left=500) == 500


def test_a_training_that_no_longer_fits_waits_and_one_that_never_fits_is_the_plan_s_business() -> None:
    assert too_late(plan_of(3000), 4000, BUDGETS) is None
    late = too_late(plan_of(3000), 2000, BUDGETS)
    assert late is not None and "3000 s, 2000 s are left" in late.reason
    assert too_late(plan_of(9000), 7200, BUDGETS) is None


def test_a_night_that_ran_out_is_partial_and_says_what_is_left(home: Home) -> None:
    a_night(home, missing=1)
    records = Records(home.night(NIGHT))
    stopped = ExtractionRecord(seconds=6000, stopped="the deadline", prompt_tokens=1)
    records.write("run-1", stopped)
    mine = recipe_records(home)
    decision = TrainingDecision(
        train=True, reason="enough", trainable=90, new=90, threshold=50, snapshot="s", trained_snapshot=None
    )
    mine.write("run-1", DecisionRecord(decision=decision))
    mine.write("run-1", PostponedRecord(reason="the night ran out: 10 s are left", needs_seconds=60, left_seconds=10))
    records.write("run-1", run_of())
    report = night_report(home, NIGHT)
    assert report.status == "partial" and report.succeeded
    assert [(each.recipe, each.outcome) for each in report.recipes] == [(ROLE, "postponed")]
    text = shown(report)
    assert "1 deferred to a later night (the deadline)" in text and "the night ran out: 10 s are left" in text
    assert "trained by the next night" in text


def test_a_training_that_an_earlier_run_postponed_is_done_when_a_later_one_trains_nothing_more(home: Home) -> None:
    a_night(home, run="run-2")
    mine = recipe_records(home)
    mine.write("run-1", PostponedRecord(reason="the night ran out", needs_seconds=60, left_seconds=10))
    Records(home.night(NIGHT)).write("run-2", run_of())
    assert night_report(home, NIGHT, "run-2").recipes[0].outcome == "skipped"


def test_what_an_operator_switched_off_is_skipped_and_no_failure(home: Home) -> None:
    a_night(home, missing=1)
    records = Records(home.night(NIGHT))
    records.write("run-1", ExtractionRecord(stopped="machine-off is there: remove it", skipped=True))
    records.write("run-1", run_of())
    report = night_report(home, NIGHT)
    assert report.status == "skipped" and report.succeeded and report.partial
    assert "remove it" in (report.deferred_because or "")
    records.write("run-2", ExtractionRecord())
    records.write("run-2", run_of())
    assert night_report(home, NIGHT, "run-2").status == "partial", "the switch is off again"


def test_the_cost_of_a_night_is_shared_by_the_time_on_the_card(home: Home) -> None:
    a_night(home)
    other = "acme/engineering"
    parts = [
        Part(name="extract_entities", status="done", gpu=590),
        Part(name="gpu_handover", status="done", gpu=10),
        Part(name=f"{ROLE}/adapter_candidate", status="done", gpu=200),
        Part(name=f"{ROLE}/evaluation", status="done", gpu=100),
        Part(name=f"{other}/adapter_candidate", status="done", gpu=300),
        Part(name=f"{other}/corpus_snapshot", status="done"),
    ]
    records = Records(home.night(NIGHT))
    records.write("run-1", run_of(cost_per_hour=2.4, parts=parts))
    report = night_report(home, NIGHT)
    assert report.costs == pytest.approx({"extraction": 0.6, ROLE: 0.3, other: 0.3})
    assert sum(report.costs.values()) == pytest.approx(report.cost)
    assert "1.20 USD (extraction 0.60" in shown(report)
    totals = totals_of([report, report], "fernhollow")
    assert (totals["fernhollow"].cost, totals["acme"].cost) == pytest.approx((1.8, 0.6))


def test_the_cost_of_a_booted_machine_is_its_own_time(home: Home) -> None:
    a_night(home)
    records = Records(home.night(NIGHT))
    records.write("run-1", run_of())
    used = MachineRecord(
        seconds=3600, usd_per_hour=0.3, boots=2, lost=1, zones=["us-central1-a"], refused=["stock-out"]
    )
    records.write("run-1", used)
    report = night_report(home, NIGHT)
    assert report.cost == pytest.approx(0.3) and report.costs == pytest.approx({"extraction": 0.3})
    text = shown(report)
    assert "1 h 0 min in us-central1-a, 2 boots, taken away 1 time, asked for in vain: stock-out" in text


def test_a_machine_that_could_not_be_stopped_is_said_first_thing(home: Home) -> None:
    a_night(home)
    records = Records(home.night(NIGHT))
    records.write("run-1", run_of())
    records.write("run-1", MachineRecord(problem="the GPU machine may still run"))
    assert "ec1 doctor --reconcile" in [each.command for each in night_report(home, NIGHT).advice()]

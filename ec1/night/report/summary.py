"""The report of a night: what happened, put together from the records that the steps and runs wrote.

Belongs here: the facts and what follows from them. Does not: how they are shown (`text.py`), and who is told
(`morning.py`).
"""

import contextlib
import datetime as dt
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from ec1.adapters.gate import VerdictName
from ec1.adapters.scores import BASE, Success
from ec1.documents.listing import LISTING
from ec1.errors import InputError
from ec1.extraction.defence.releases import read_releases
from ec1.extraction.reading.progress import ExtractionRecord
from ec1.home import Home
from ec1.night.health.storage_health import Damage, open_damage
from ec1.night.records import (
    CandidateRecord,
    DecisionRecord,
    EvaluationRecord,
    GenerationRecord,
    GraphRecord,
    HandoverRecord,
    MachineRecord,
    OutcomeRecord,
    PostponedRecord,
    Records,
    RunRecord,
    ScoreRecord,
)
from ec1.night.report.failure import Failure, find_failure, last_failure
from ec1.night.report.outgoing import undelivered
from ec1.plural import counted
from ec1.recipes.resolution import BrokenRecipe

Outcome = VerdictName | Literal["skipped", "postponed", "unfinished", "broken"]
Status = Literal[
    "done", "partial", "skipped", "failed", "interrupted", "unfinished", "did not begin", "going", "queued"
]
"""`skipped`: an operator switched off what the night needed. `did not begin`: see `unbegun.py`. `going` and `queued`
only Dagster's queue knows."""
MAX_DEFERRED = 20
MAX_HELD = 20
ACK = "ec1 doctor --acknowledge all"
EXTRACTION = "extraction"
"""Whom phase 1's cost is for, beside the recipes."""


class Work(BaseModel):
    """What a run did, or all runs of a night together. None: not reached."""

    documents_read: int | None = None
    documents_rejected: int | None = None
    documents_vanished: int | None = None
    llm_calls: int | None = None
    tokens: int | None = None
    tokens_per_second: float | None = None
    entities_found: dict[str, int] | None = None


class TrainingReport(BaseModel):
    """What a training measured. `seconds` are all of it, with loading and saving."""

    steps: int
    tokens: int
    tokens_per_second: float
    seconds: float
    peak_memory_gib: float
    device: str


class RecipeReport(BaseModel):
    """What one recipe came to on this night, whichever of its runs did it."""

    recipe: str
    outcome: Outcome
    detail: str
    version: int | None = None
    path: str | None = None
    run: str | None = None
    """The run that settled or decided it."""
    success: Success | None = None
    """How many held-out prompts each model answered rightly; none of an extractor."""
    losses: dict[str, float | None] = {}
    """Mean loss on the held-out examples by model, nats per token; none of an extractor."""
    f1: dict[str, float | None] = {}
    """Of an extractor: F1 on the held-out chunks by model."""
    gain: tuple[float, float, float] | None = None
    """Candidate over base in nats per token, or in F1: mean, lower and upper bound."""
    training: TrainingReport | None = None


class NotRead(BaseModel):
    """One document, or stream, that was rejected or waits for a later night, and why."""

    what: str
    reason: str


class HeldBack(BaseModel):
    """A sentence of a document that was not read, because it tells a machine what to answer, or that was read and may
    do so, and lost `names`; `what` says which."""

    path: str
    what: Literal["sentence", "names"] = "sentence"
    sentence: str
    names: str


class Advice(BaseModel):
    """What to do next: a sentence, and the command for it if there is one."""

    sentence: str
    command: str | None = None

    def __str__(self) -> str:
        return f"{self.sentence}: {self.command}" if self.command else self.sentence


class NightReport(BaseModel):
    """One night. `done` is the total of its runs, `this_run` the last one; the rest describes how things stand now."""

    night: str
    run: str
    status: Status = "unfinished"
    runs: int = 0
    """How many runs worked on it, also those that did not reach phase 1."""
    timeline: dict[str, RunRecord] = {}
    """Every run that ended, by its id, the oldest first."""
    idle: list[str] = []
    """The runs that found nothing new to do."""
    done: Work = Work()
    this_run: Work = Work()
    documents_deferred: int | None = None
    deferred_because: str | None = None
    """Why work was deferred: what stopped the extraction, or what most documents' problems have in common."""
    deferred: list[NotRead] = []
    documents_later: int = 0
    """Files that are newer than the night: they are left for their own."""
    rejected: list[NotRead] = []
    """The first of those that were rejected."""
    streams_put_off: dict[str, str] = {}
    """Streams whose source could not be read, and why: what is known of their documents stays as it is."""
    held: list[HeldBack] = []
    scores: ScoreRecord | None = None
    """None where the deployment has no gold file."""
    graph_entities: int | None = None
    reading: int | None = None
    """While documents are still read: how many are left. What was read so far is in the published graph."""
    device: str | None = None
    free_gib: float | None = None
    """Measured at the handover."""
    machine: MachineRecord | None = None
    """What was used of a machine that is booted for nights."""
    generated: GenerationRecord | None = None
    """None where no recipe of generation had to make rows."""
    recipes: list[RecipeReport] = []
    failure: Failure | None = None
    """Why this run failed."""
    storage: list[Damage] = []
    """What the disk damaged, mended or not, that nobody has acknowledged."""
    notices: list[str] = []
    """What could not be told to somebody outside."""

    @property
    def partial(self) -> bool:
        """True if work was deferred to a later night, or a recipe could not be used."""
        waits = any(each.outcome in ("broken", "postponed") for each in self.recipes)
        in_vain = self.generated is not None and self.generated.problem is not None
        return bool(self.documents_deferred or self.streams_put_off) or waits or in_vain

    @property
    def gpu_seconds(self) -> float:
        """Card-seconds that the night's steps held, over all runs."""
        return sum(record.gpu_seconds for record in self.timeline.values())

    @property
    def seconds(self) -> float:
        """How long the night's runs took, without their time in the queue."""
        return sum(record.seconds for record in self.timeline.values())

    @property
    def cost(self) -> float | None:
        """USD for the time that the runs took on this machine, that a booted one ran, or that each card elsewhere was
        used; None where the deployment states no cost."""
        if self.machine is not None:
            return self.machine.cost
        priced = [cost for each in self.timeline.values() if (cost := each.cost) is not None]
        return sum(priced) if priced else None

    @property
    def costs(self) -> dict[str, float]:
        """The cost by whom it was for: `extraction`, and each recipe as `<tenant>/<role>`, in the proportion of the
        time that their steps held the GPU. Boot and idle time are shared in that proportion too, so these add up to
        `cost`.
        """
        held: dict[str, float] = defaultdict(float)
        for record in self.timeline.values():
            for part in record.parts:
                held["/".join(part.name.split("/")[:2]) if "/" in part.name else EXTRACTION] += part.gpu
        total, cost = sum(held.values()), self.cost
        if not cost:
            return {}
        return {name: cost * seconds / total for name, seconds in held.items() if seconds} or {EXTRACTION: cost}

    @property
    def succeeded(self) -> bool:
        """Whether the night did all that it could; work that waits for a later night is not against it."""
        return self.status in ("done", "partial", "skipped")

    @property
    def in_flight(self) -> bool:
        """Whether a run of it goes or waits in the queue."""
        return self.status in ("going", "queued")

    @model_serializer(mode="wrap")
    def _with_what_follows(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        follows = {"gpu_seconds": self.gpu_seconds, "seconds": self.seconds, "cost": self.cost}
        return {**plain(self), **follows, "advice": [each.model_dump() for each in self.advice()]}

    def advice(self) -> list[Advice]:
        """What a person may do now; empty if nothing."""
        again = f"ec1 night --date {self.night}"
        found = []
        if self.reading is not None:
            return [Advice(sentence="The night still reads; look at what it found so far", command="ec1 graph stats")]
        if self.failure is not None:
            found.append(
                Advice(sentence="Mend the cause, then run the night again (finished work stays)", command=again)
            )
        elif not self.succeeded and not self.in_flight:
            found.append(Advice(sentence="Run the night again: finished work is not repeated", command=again))
        if self.documents_deferred:
            found.append(
                Advice(
                    sentence=f"The next night tries {counted(self.documents_deferred, 'deferred document')} again; see "
                    "what it would do",
                    command="ec1 plan",
                )
            )
        for stream, why in self.streams_put_off.items():
            found.append(Advice(sentence=f"Stream {stream} was put off ({why}): the next night tries again"))
        if self.held:
            found.append(
                Advice(
                    sentence="Sentences that may tell a machine what to answer were held back: look at them",
                    command="ec1 extraction held",
                )
            )
        for each in self.recipes:
            log = f"ec1 run show {each.recipe}/{self.night}"
            match each.outcome:
                case "accepted":
                    show = f"ec1 adapters show {each.recipe}@v{each.version}"
                    found.append(Advice(sentence=f"{each.recipe}@v{each.version} is new and in use", command=show))
                case "review":
                    found.append(Advice(sentence=f"The gate could not decide about {each.recipe}: look", command=log))
                case "rejected" | "no_effect":
                    found.append(Advice(sentence=f"{each.recipe} is in quarantine: see its training", command=log))
                case "postponed":
                    found.append(Advice(sentence=f"{each.recipe} is trained by the next night", command="ec1 plan"))
                case "broken":
                    found.append(Advice(sentence=f"Recipe {each.recipe} cannot be used", command="ec1 recipe lint"))
        if self.machine is not None and self.machine.problem:
            found.append(Advice(sentence=self.machine.problem, command="ec1 doctor --reconcile"))
        if self.storage:
            found.append(Advice(sentence="The disk damaged something: look at it, then acknowledge it", command=ACK))
        if self.notices:
            found.append(
                Advice(sentence="Check the addresses in the deployment's `notify`", command="ec1 report --check")
            )
        return found


def night_report(
    home: Home,
    night: str,
    run: str | None = None,
    recipes: Sequence[tuple[str, str]] | None = None,
    broken: Sequence[BrokenRecipe] | None = None,
) -> NightReport:
    """Put the report of a night together after the run `run`, by default the last one.

    `recipes` are (tenant, role) pairs; by default those that the run had. Raises InputError if no run of that night
    wrote anything.
    """
    records = Records(home.night(night))
    runs = records.all(RunRecord)
    if run is None:
        run = runs[-1].run if runs else _last_run(home, records)
    this = records.find(RunRecord, run)
    if recipes is None:
        recipes = _recipes_of(home, night, this)
    broken_details = (
        {each.name: each.problem for each in broken} if broken is not None else dict(this.broken) if this else {}
    )
    applied, handover = records.total(GraphRecord), records.find(HandoverRecord)
    extracted = records.total(ExtractionRecord)
    report = NightReport(
        night=night,
        run=run,
        runs=len({record.run for kind in (RunRecord, ExtractionRecord, GraphRecord) for record in records.all(kind)}),
        timeline={record.run: record for record in runs},
        done=_work(extracted, applied),
        this_run=_work(records.find(ExtractionRecord, run), records.find(GraphRecord, run)),
    )
    report.idle = [record.run for record in runs if _is_idle(records, record)]
    if applied is not None:
        report.graph_entities = applied.entities_after
        report.reading = applied.missing if _is_alive(applied.reading_process) else None
        report.documents_deferred = None if report.reading is not None else applied.deferred + applied.missing
        report.streams_put_off = applied.put_off
        report.documents_later = applied.later
        report.deferred = [NotRead(what=f"stream {name}", reason=why) for name, why in applied.put_off.items()]
        report.rejected = [NotRead(what=path, reason=why) for path, why in applied.refused]
    if applied is not None and report.documents_deferred:
        unread = [NotRead(what=path, reason=why) for path, why in applied.unread]
        report.deferred_because = _why(records.find(ExtractionRecord, run), unread)
        report.deferred += [*unread, *_deferred(extracted)][:MAX_DEFERRED]
    if handover is not None:
        report.device, report.free_gib = handover.device, handover.free_gib
    held = sorted(_unseen(home, extracted), key=lambda row: row.get("held") == "names")
    report.held = [
        HeldBack(
            path=row.get("path", ""),
            what="names" if row.get("held") == "names" else "sentence",
            sentence=row.get("sentence", ""),
            names=row.get("names", ""),
        )
        for row in held[:MAX_HELD]
    ]
    report.scores = records.find(ScoreRecord)
    report.machine = records.find(MachineRecord)
    report.generated = records.total(GenerationRecord)
    report.failure = find_failure(home, night, run)
    mine = records.find(ExtractionRecord, run)
    off = mine is not None and mine.skipped and bool(report.documents_deferred)
    for tenant, role in recipes:
        of_recipe = Records(home.run(tenant, role, night))
        report.recipes.append(_recipe_report(of_recipe, f"{tenant}/{role}", run))
        late = of_recipe.find(PostponedRecord, run)
        off = off or (late is not None and late.switched_off and report.recipes[-1].outcome == "postponed")
    report.recipes += [
        RecipeReport(recipe=name, outcome="broken", detail=problem) for name, problem in broken_details.items()
    ]
    report.storage = open_damage(home)
    report.notices = undelivered(home, night)
    report.status = _status(report, this, complete=applied is not None and handover is not None, skipped=off)
    return report


def _is_idle(records: Records, run: RunRecord) -> bool:
    """Whether a run went through and found nothing new to do."""
    work = _work(records.find(ExtractionRecord, run.run), records.find(GraphRecord, run.run))
    trained = any(part.name.endswith("/adapter_candidate") and part.status != "skipped" for part in run.parts)
    did = (work.llm_calls, work.documents_read, work.documents_rejected, work.documents_vanished)
    return run.status == "done" and not trained and not any(did)


def _unseen(home: Home, extraction: ExtractionRecord | None) -> list[dict[str, str]]:
    """The sentences that were held back and that no person has decided about (`ec1 extraction release|hold`)."""
    if extraction is None or not extraction.held:
        return []
    decided: set[str] = set()
    with contextlib.suppress(InputError):
        decided = {each.id for each in read_releases(home.releases).lines}
    return [row for row in extraction.held if row.get("id") not in decided]


def is_done(home: Home, night: str) -> bool:
    """Whether a night did all that it could, in whichever of its runs: a later run of a part of it does not undo that.

    Raises InputError if its records are damaged.
    """
    runs = [record.run for record in Records(home.night(night)).all(RunRecord)]
    return any(night_report(home, night, run).succeeded for run in reversed(runs))


def nights_since(home: Home, since: dt.date) -> list[str]:
    """The nights from `since` on that anything is known about, the oldest first."""
    found = []
    for path in sorted(home.nights.glob("*")):
        try:
            if path.is_dir() and dt.date.fromisoformat(path.name) >= since:
                found.append(path.name)
        except ValueError:
            continue
    return found


def _last_run(home: Home, records: Records) -> str:
    """The run that wrote last, of a night whose runs left no record of their own."""
    if (failure := last_failure(home, records.folder.name)) is not None:
        return failure.run
    kinds = (ExtractionRecord, GraphRecord, HandoverRecord)
    found = [record for kind in kinds if (record := records.find(kind)) is not None]
    if not found:
        night = records.folder.name
        if (records.folder / LISTING).exists():
            raise InputError(f"night {night} has begun, and nothing is in the graph yet: ask again in some minutes")
        raise InputError(f"night {night} has no report: it has not run; `ec1 night --date {night}` runs it")
    never = dt.datetime.min.replace(tzinfo=dt.UTC)
    return max(found, key=lambda record: record.written or never).run


def _is_alive(process: int | None) -> bool:
    if process is None:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _recipes_of(home: Home, night: str, this: RunRecord | None) -> list[tuple[str, str]]:
    """The recipes that the run had, and whatever else left something on this night."""
    named = {tuple(name.split("/", 1)) for name in this.recipes} if this else set()
    left = {tuple(path.parts[-3:-1]) for path in home.runs.glob(f"*/*/{night}")}
    return [(tenant, role) for tenant, role in sorted(named | left)]


def _status(report: NightReport, this: RunRecord | None, *, complete: bool, skipped: bool) -> Status:
    if this is not None and this.status == "did not begin":
        return "did not begin"
    if report.failure is not None or (this is not None and this.status == "failed"):
        return "failed"
    if this is not None and this.status == "interrupted":
        return "interrupted"
    if not complete or any(each.outcome == "unfinished" for each in report.recipes):
        return "unfinished"
    if skipped:
        return "skipped"
    return "partial" if report.partial else "done"


def _why(extraction: ExtractionRecord | None, unread: list[NotRead]) -> str | None:
    if extraction is not None and extraction.stopped:
        return extraction.stopped
    reasons = Counter(each.reason for each in [*unread, *_deferred(extraction)])
    return reasons.most_common(1)[0][0] if reasons else None


def _deferred(extraction: ExtractionRecord | None) -> list[NotRead]:
    rows = extraction.problems if extraction is not None else []
    return [
        NotRead(what=row.get("path") or f"{row.get('stream', '')} {row.get('content', '')}", reason=row["reason"])
        for row in rows
        if row.get("status") != "rejected"
    ]


def _work(extraction: ExtractionRecord | None, applied: GraphRecord | None) -> Work:
    work = Work()
    if extraction is not None:
        work.llm_calls, work.entities_found = extraction.llm_calls, extraction.entities
        work.tokens = extraction.prompt_tokens + extraction.completion_tokens
        speed = extraction.tokens_per_second
        work.tokens_per_second = None if speed is None else round(speed, 1)
    if applied is not None:
        work.documents_read = applied.applied
        work.documents_rejected = applied.rejected
        work.documents_vanished = applied.vanished
    return work


def _recipe_report(records: Records, name: str, run: str) -> RecipeReport:
    """The night's outcome if it has one; else what the run `run` decided, or that it did not get this far."""
    decided = records.find(DecisionRecord, run)
    # A run of phase 1 alone decides nothing, and does not take back what an earlier one decided.
    decided = decided or next((each for each in records.all(DecisionRecord)[-1:] if not each.decision.train), None)
    decision = decided.decision if decided is not None else None
    outcome = records.find(OutcomeRecord)
    training_again = decision is not None and decision.train and outcome is not None and outcome.run != run
    if outcome is not None and not training_again:
        earlier = "" if outcome.run == run else " (in an earlier run of this night)"
        report = RecipeReport(
            recipe=name,
            outcome=outcome.verdict,
            detail=outcome.detail + earlier,
            version=outcome.version,
            path=str(outcome.path),
            run=outcome.run,
        )
    elif decision is None:
        report = RecipeReport(recipe=name, outcome="unfinished", detail="not reached")
    elif not decision.train:
        report = RecipeReport(recipe=name, outcome="skipped", detail=decision.reason, run=run)
    elif late := records.find(PostponedRecord, run):
        report = RecipeReport(recipe=name, outcome="postponed", detail=late.reason, run=run)
    else:
        detail = "training or evaluation did not finish"
        report = RecipeReport(recipe=name, outcome="unfinished", detail=detail, run=run)
    if evaluated := records.find(EvaluationRecord):
        report.success = evaluated.success
        if evaluated.unit == "F1":
            report.f1 = evaluated.mean_scores
        else:
            report.losses = evaluated.mean_losses
        if gain := evaluated.differences.get(BASE):
            report.gain = gain.mean, gain.lower, gain.upper
    if candidate := records.find(CandidateRecord):
        result = candidate.result
        report.training = TrainingReport(
            steps=result.steps,
            tokens=result.tokens,
            tokens_per_second=round(result.tokens_per_second, 1),
            seconds=result.seconds,
            peak_memory_gib=result.peak_memory_gib,
            device=result.hardware,
        )
    return report

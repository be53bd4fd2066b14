"""What the steps of a night write down: one small JSON file per step and run, typed, for later steps, the report and
the auditor.

Belongs here: the types of the records, where they lie, and how the records of a night's runs add up. Does not: how they
are shown (`report.py`, `ec1_assets/metadata.py`).

A night may be run more than once. Each run writes its own record and overwrites no other run's; what is shown of the
night is the total of its runs (`Records.total`).
"""

import datetime as dt
from functools import reduce
from pathlib import Path
from typing import ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from ec1.adapters.gate import ScoreDifference, VerdictName
from ec1.adapters.scores import Success
from ec1.corpus.threshold import TrainingDecision
from ec1.errors import InputError
from ec1.files import checked_name, read_json, write_json
from ec1.graph.model import Rebuild
from ec1.records import Record
from ec1.strict_yaml import validate
from ec1.training.plan import TrainingPlan
from ec1.training.spec import TrainingResult

_FOLDER = "records"


AnyRecord = TypeVar("AnyRecord", bound=Record)


_ADD_UP = ("applied", "rejected", "refused", "vanished", "named", "kept", "invented", "ungrounded")


class GraphRecord(Record):
    """What was applied to the graph: documents by what happened to them, and the graph before and after.

    `missing` documents have no result in the outbox: extraction did not reach them. `rebuild` says what became of the
    documents that a changed extractor reads again, where they count all at once. Filled in while the night is applied.
    """

    model_config = ConfigDict(frozen=False)
    step: ClassVar[str] = "graph_mutations"
    applied: int = 0
    deferred: int = 0
    rejected: int = 0
    vanished: int = 0
    missing: int = 0
    entities_before: int = 0
    entities_after: int = 0
    entities_by_class: dict[str, int] | None = None
    mentions_after: int = 0
    mentions_by_class: dict[str, int] | None = None
    digest: str = ""
    recovered: str | None = None
    rebuild: Rebuild | None = None
    reading_process: int | None = Field(
        None, description="of what was applied while others were still read: which process reads them"
    )
    named: int = Field(0, description="names in the answers about the documents that were read, once a document")
    kept: int = Field(0, description="of those, what became mentions")
    invented: int = Field(0, description="of those, what stands nowhere in the text")
    refused: list[tuple[str, str]] = Field([], description="path of each rejected document, of the first, and why")
    later: int = Field(0, description="files that are newer than the night, left for their own")
    unread: list[tuple[str, str]] = Field([], description="path of each file that the disk did not give, and why")
    ungrounded: list[str] = Field([], description="mentions that do not stand where they say, as `path: name`")
    put_off: dict[str, str] = Field(default_factory=dict)
    """Streams that could not be listed, and why."""

    @property
    def partial(self) -> bool:
        """Whether documents are left for a later night."""
        return bool(self.deferred or self.missing or self.put_off)

    def plus(self, later: Self) -> Self:
        """What was applied adds up; what is left, and the graph afterwards, are the later run's."""
        return later.model_copy(
            update={
                **{name: getattr(self, name) + getattr(later, name) for name in _ADD_UP},
                "entities_before": self.entities_before,
                "recovered": later.recovered or self.recovered,
                "rebuild": later.rebuild or self.rebuild,
            }
        )


class ScoreRecord(Record):
    """What the graph knows against the deployment's gold file, with the base line over the same documents; only where
    there is one. `problem` says why there are no figures."""

    step: ClassVar[str] = "scores"
    documents: int = 0
    left_out: dict[str, int] = Field({}, description="documents of the gold that were not compared, by the reason")
    figures: dict[str, dict[str, float | None]] = Field({}, description="by class, `all` and `any class`")
    problem: str | None = None


class MachineRecord(Record):
    """What the night used of a machine that is booted for it, over all runs so far. Seconds are paid for; `phases` are
    those in which a phase used it. `problem` says why it could not be stopped."""

    step: ClassVar[str] = "machine"
    seconds: float = 0.0
    usd_per_hour: float = 0.0
    boots: int = 0
    lost: int = Field(0, description="how often it was taken away: preempted, or stopped by its own dead man")
    zones: list[str] = Field([])
    phases: dict[str, float] = Field({})
    refused: list[str] = Field([], description="what became of the times that it was asked for in vain")
    problem: str | None = None

    @property
    def cost(self) -> float:
        """USD."""
        return self.seconds / 3600 * self.usd_per_hour


class GenerationRecord(Record):
    """What recipes of generation made, in words by `role/recipe`. `problem` says why nothing could be made."""

    step: ClassVar[str] = "generated_rows"
    rows: int = 0
    unanswered: int = 0
    made: dict[str, str] = Field({})
    problem: str | None = None

    def plus(self, later: Self) -> Self:
        return later.model_copy(update={"rows": self.rows + later.rows, "made": {**self.made, **later.made}})


class HandoverRecord(Record):
    """Proof that phase 1 is over and the GPU free. `swept` counts processes of a crashed holder that were killed."""

    step: ClassVar[str] = "gpu_handover"
    night: str
    device: str
    free_gib: float
    total_gib: float
    swept: int


class SnapshotRecord(Record):
    """Which snapshot of which bucket the night uses."""

    step: ClassVar[str] = "corpus_snapshot"
    bucket: str
    digest: str
    as_of: dt.datetime | None = None
    """What came later was left out: with it a damaged snapshot can be taken again."""


class DecisionRecord(Record):
    """The decision to train."""

    step: ClassVar[str] = "threshold_check"
    decision: TrainingDecision


class DatasetRecord(Record):
    """Which dataset was made of which snapshot, and the plan of its training."""

    step: ClassVar[str] = "training_dataset"
    digest: str
    snapshot: str
    plan: TrainingPlan


class PostponedRecord(Record):
    """A training that was due and waits for a later night: no time was left for it, or no machine could be had.

    `switched_off`: because an operator wanted it so.
    """

    step: ClassVar[str] = "postponed"
    reason: str
    needs_seconds: float
    left_seconds: float
    switched_off: bool = False


class CandidateRecord(Record):
    """How the training ended."""

    step: ClassVar[str] = "adapter_candidate"
    result: TrainingResult


class EvaluationRecord(Record):
    """The gate's verdict and the means that it rests on; the whole of it is in `evaluation/`."""

    step: ClassVar[str] = "evaluation"
    verdict: VerdictName
    reasons: list[str] = Field([])
    unit: str = "nats/token"
    """Of scores and differences."""
    mean_scores: dict[str, float | None] = Field({})
    mean_losses: dict[str, float | None] = Field({})
    examples: int = 0
    differences: dict[str, ScoreDifference] = Field({}, description="the candidate's score less each reference's")
    success: Success | None = Field(None, description="how many answers were right")
    scored: dict[str, str] = Field({}, description="SHA-256 of each file of the candidate as it was scored")


class OutcomeRecord(Record):
    """What became of a candidate: a version in the registry, or a folder in quarantine."""

    step: ClassVar[str] = "adapter"
    outcome: Literal["published", "quarantined"]
    verdict: VerdictName
    detail: str
    path: Path
    snapshot: str
    dataset: str
    version: int | None = None
    name: str | None = None


class Part(BaseModel):
    """One step of one run. Times are UTC and seconds; `waited` is from the end of what it needs to its start."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    status: Literal["done", "failed", "skipped", "not reached"]
    began: dt.datetime | None = None
    waited: float | None = None
    worked: float | None = Field(None, description="from its start to its end, without the wait for the lease")
    lease_waited: float = 0.0
    gpu: float = Field(0.0, description="how long it held the lease")
    usd: float = Field(0.0, description="of cards that have a price of their own, an engine's on a cluster")


class RetentionRecord(Record):
    """What the clean-up at the end of a run removed, by kind, and how large the home was then (bytes)."""

    step: ClassVar[str] = "retention"
    removed: dict[str, int] = Field({})
    freed_bytes: dict[str, int] = Field({})
    home_bytes: int = 0
    free_bytes: int = 0
    seconds: float = 0.0
    problem: str | None = Field(None, description="why it was cut short")


class RunRecord(Record):
    """One run as a whole: when it was asked for, began and ended, how its parts spent the time, and for what recipes.

    `cost_per_hour` (USD) is the machine's as the deployment stated it then; `broken` maps each recipe that could not be
    used to what is wrong with it.
    """

    step: ClassVar[str] = "run"
    job: str
    status: Literal["done", "failed", "interrupted", "did not begin"]
    asked: dt.datetime
    began: dt.datetime | None = None
    ended: dt.datetime
    parts: list[Part] = Field([])
    recipes: list[str] = Field([])
    broken: dict[str, str] = Field({})
    cost_per_hour: float = 0.0
    cost_per_card_hour: float = Field(0.0, description="USD; where trainings run elsewhere, each on cards of its own")
    stopped_by: str | None = Field(None, description="the signal, or who asked, of a run that was interrupted")

    @property
    def queued(self) -> float:
        """Seconds between the request and the beginning."""
        return ((self.began or self.ended) - self.asked).total_seconds()

    @property
    def seconds(self) -> float:
        """From the beginning to the end."""
        return (self.ended - self.began).total_seconds() if self.began else 0.0

    @property
    def cost(self) -> float | None:
        """USD: of the machine for the time that the run took, or of the cards for as long as each was used, and of
        those with a price of their own. None where the deployment states no cost."""
        priced = sum(part.usd for part in self.parts)
        if not self.cost_per_hour and not self.cost_per_card_hour and not priced:
            return None
        return (self.seconds * self.cost_per_hour + self.gpu_seconds * self.cost_per_card_hour) / 3600 + priced

    @property
    def gpu_seconds(self) -> float:
        """Card-seconds that the run's steps held: of two cards twice the time, of steps side by side their sum."""
        return sum(part.gpu for part in self.parts)


class Records:
    """The records in one folder: a night's, or those of one recipe on a night."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, run: str, record: Record) -> None:
        """Write a run's record of a step, atomically. A run that repeats a step replaces its own record."""
        filled = record.model_copy(update={"run": run, "written": dt.datetime.now(dt.UTC)})
        write_json(self._folder(type(record)) / f"{checked_name(run, 'run')}.json", filled.model_dump(mode="json"))

    def all(self, kind: type[AnyRecord]) -> list[AnyRecord]:
        """The records of a step, one per run, the oldest first. Raises InputError for a damaged file."""
        found = [
            validate(kind, read_json(path), str(path))
            for path in self._folder(kind).glob("*.json")
            if not path.name.startswith(".")
        ]
        return sorted(found, key=lambda record: (record.written or dt.datetime.min.replace(tzinfo=dt.UTC), record.run))

    def find(self, kind: type[AnyRecord], run: str | None = None) -> AnyRecord | None:
        """The newest record of a step, or None; with `run`, that run's."""
        found = [record for record in self.all(kind) if run is None or record.run == run]
        return found[-1] if found else None

    def read(self, kind: type[AnyRecord]) -> AnyRecord:
        """The newest record of a step. Raises InputError that says which step to run first."""
        record = self.find(kind)
        if record is None:
            raise InputError(
                f"there is no {kind.step} of night {self.folder.name} in {self.folder}: "
                f"materialise `{kind.step}` of that night first"
            )
        return record

    def total(self, kind: type[AnyRecord]) -> AnyRecord | None:
        """All runs of the night together (`plus`), or None before the first."""
        found = self.all(kind)
        return reduce(lambda sum_, later: sum_.plus(later), found) if found else None

    def _folder(self, kind: type[Record]) -> Path:
        return self.folder / _FOLDER / kind.step

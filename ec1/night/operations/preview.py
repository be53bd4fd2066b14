"""What a night would do: documents, chunks and tokens of phase 1; decision and plan of each recipe.

Starts no model and applies nothing. Snapshots and datasets that it makes on the way are those that the night would
make; they are named by their content and used again.
"""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from ec1.deployment import Deployment
from ec1.documents.listing import Listing
from ec1.documents.unread import unread_files
from ec1.documents.upgrades import note_upgrade
from ec1.errors import InputError, PermanentError, ServiceError
from ec1.extraction.reading.extractor import ExtractionEstimate
from ec1.extraction.reading.outbox import Outbox
from ec1.graph.reader import published_ledger
from ec1.home import Home
from ec1.models import prepare_tokenizer
from ec1.night.machines import machine_of
from ec1.night.operations.forecast import ENGINE_SECONDS, HomeForecast, forecast_home, reading_speed
from ec1.night.operations.unread_rows import unread_notes
from ec1.night.steps.extraction import pending, work_of
from ec1.night.steps.extractor import class_notes, extractor_of
from ec1.night.steps.listing import list_documents
from ec1.night.steps.recipe_night import RecipeNight
from ec1.nights import Night
from ec1.plural import counted
from ec1.recipes.resolution import ResolvedRecipe
from ec1.training.plan import TrainingPlan

_MOST_REASONS = 4


class ExtractionPlan(BaseModel):
    """Phase 1. `reused` documents have a result already; tokens count the documents' own text.

    `stale` documents count as an earlier extractor read them. By `policy` tonight's reads `again` so many of them, of
    which `again_free` are in the outbox.
    """

    documents: int
    reused: int
    rejected: int
    problems: list[str] = []
    """Why documents are rejected or cannot be read now: each reason with how many, and one of them by its path."""
    chunks: int
    prompt_tokens: int
    max_answer_tokens: int
    seconds: float | None = None
    """To start the engine and read the chunks, as earlier nights took; None if that is not known."""
    policy: str
    stale: int
    again: int
    again_free: int
    notes: list[str] = []
    """About files that no stream reads, classes that are not the contract's, and what speaks against the settings."""


class RecipePlan(BaseModel):
    """One recipe. `plan` is there if it would train and fits; `refused` says why it does not fit."""

    recipe: str
    train: bool
    reason: str
    left_out: dict[str, int] = {}
    """Rows of its bucket that cannot be trained on, by reason."""
    plan: TrainingPlan | None = None
    refused: str | None = None


class MachinePlan(BaseModel):
    """A machine that is booted for nights. `needed_for` is empty if nothing boots; `refused` says why it may not be
    started now, as far as our own books say."""

    needed_for: list[str]
    seconds: float
    """How long it could run."""
    refused: str | None


class NightPlan(BaseModel):
    night: str
    as_of: dt.datetime
    extraction: ExtractionPlan
    recipes: list[RecipePlan]
    home: HomeForecast
    machine: MachinePlan | None = None
    unread: list[str] = []
    """What lies in the corpus and no recipe reads."""

    @property
    def seconds(self) -> float | None:
        """Phase 1 and the trainings, one after the other, without what judging them takes; None if phase 1's is not
        known."""
        read = self.extraction.seconds
        return None if read is None else read + sum(each.plan.seconds for each in self.recipes if each.plan)


def plan_whole_night(
    deployment: Deployment,
    home: Home,
    night: Night,
    recipes: Sequence[ResolvedRecipe],
    now: dt.datetime,
    project: Path,
) -> NightPlan:
    """Plan a night as of `now`."""
    planned = NightPlan(
        night=night.date,
        as_of=night.as_of(now),
        extraction=_extraction(deployment, home, night, now),
        recipes=[_recipe(RecipeNight(each, deployment, home, night), now) for each in recipes],
        home=forecast_home(home),
        unread=unread_notes(deployment, home, project),
    )
    machine = machine_of(deployment, home)
    if machine is not None:
        waiting = planned.extraction.documents - planned.extraction.reused
        needed = [counted(waiting, "document")] if waiting else []
        if deployment.trains_on_machine:
            needed += [each.recipe for each in planned.recipes if each.plan is not None]
        refusal = machine.why_not()
        planned.machine = MachinePlan(
            needed_for=needed, seconds=machine.seconds_to_have(), refused=str(refusal) if refusal else None
        )
    return planned


def _extraction(deployment: Deployment, home: Home, night: Night, now: dt.datetime) -> ExtractionPlan:
    # Before anything is downloaded or converted.
    ledger = published_ledger(home.published_graph)
    unread = look_at_root(deployment, home, known=bool(ledger))
    model = deployment.inference
    prepare_tokenizer(model.model, model.revision, deployment.models, home.models)
    outbox = Outbox(home.outbox)
    reader = deployment.document_reader(home)
    if ledger:
        note_upgrade(home.conversions, ledger, reader, deployment.documents.limits, outbox.characters)
    extractor = extractor_of(deployment, home)
    fingerprints = extractor.fingerprints()
    listing, refresh = list_documents(
        deployment,
        home,
        ledger,
        fingerprints,
        outbox,
        night,
        as_of=night.as_of(now),
        now=now,
    )
    work = work_of(listing, deployment.documents.all_streams, reader)
    waiting = pending(work, fingerprints, outbox)
    extractor.check()
    asked = extractor.plan(waiting, reader.at_a_time)
    return ExtractionPlan(
        documents=len(work),
        reused=len(work) - len(waiting),
        rejected=len(asked.rejected) + len(listing.rejected),
        problems=_problems(listing, asked),
        chunks=asked.chunks,
        prompt_tokens=asked.prompt_tokens,
        max_answer_tokens=asked.max_answer_tokens,
        seconds=_seconds(deployment, home, asked.chunks),
        policy=deployment.extraction.fingerprint_policy,
        stale=len(refresh.stale),
        again=len(refresh.due),
        again_free=refresh.free,
        notes=[
            *unread,
            *([f"{counted(listing.later, 'newer file')} left for a later night"] if listing.later else ()),
            *(f"stream {name} is put off: {why}" for name, why in listing.put_off.items()),
            *class_notes(deployment),
        ],
    )


def _problems(listing: Listing, asked: ExtractionEstimate) -> list[str]:
    """The most frequent reasons first."""
    paths = {version.content_sha256: version.key.path for version in listing.changed}
    found = [(paths[content], f"rejected: {reason}") for content, reason in asked.rejected]
    found += [(each.key.path, f"rejected: {each.reason}") for each in listing.rejected]
    found += [(each.key.path, f"left for a later night: {each.reason}") for each in listing.postponed]
    first: dict[str, str] = {}
    for path, reason in found:
        first.setdefault(reason, path)
    counts = Counter(reason for _, reason in found)
    shown = [f"{number} {reason} ({first[reason]})" for reason, number in counts.most_common(_MOST_REASONS)]
    rest = counts.total() - sum(number for _, number in counts.most_common(_MOST_REASONS))
    return [*shown, *([f"{rest} not read for other reasons"] if rest else [])]


def _seconds(deployment: Deployment, home: Home, chunks: int) -> float | None:
    if not chunks:
        return 0.0
    small = deployment.gpu.device == "cpu" and deployment.extraction.adapter is not None
    speed = reading_speed(home, small_model_on_cpu=small)
    return None if speed is None else ENGINE_SECONDS + chunks * speed.seconds_per_chunk


def look_at_root(deployment: Deployment, home: Home, *, known: bool) -> list[str]:
    """What lies below the document root that no stream reads, as a sentence; none if there is nothing.

    Raises InputError if there is no such root, unless documents are `known`: then it is lost, which the scan says.
    """
    root, streams = deployment.documents_root(home), deployment.documents.all_streams
    if all(stream.copied for stream in streams.values()):
        return []
    if not root.is_dir() and not known:
        raise InputError(f"the document root {root} does not exist: create it or set documents.root in the deployment")
    found = unread_files(root, streams.values()).advice
    return [found] if found else []


def _recipe(step: RecipeNight, now: dt.datetime) -> RecipePlan:
    snapshot = step.snapshot(now)
    decision = step.decision(snapshot)
    planned = RecipePlan(
        recipe=step.name, train=decision.train, reason=decision.reason, left_out=dict(snapshot.rejected)
    )
    if not decision.train:
        return planned
    try:
        planned.plan = step.plan(step.dataset(snapshot))
    except (InputError, PermanentError, ServiceError) as error:
        # One recipe whose base cannot be had does not hide what the others would do.
        planned.refused = str(error)
    return planned

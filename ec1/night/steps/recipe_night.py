"""One recipe on one night: every step of its chain, from the bucket to a version in the registry.

Belongs here: what a deployment and a home add to a recipe, step by step; the assets, `ec1 plan`, `ec1 train` and
`ec1 corpus` all take these steps here. Does not: how a step works (`ec1.corpus`, `ec1.training`, `ec1.adapters`), and
what happens to an evaluated candidate (`settlement.py`).
"""

import contextlib
import datetime as dt
import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from ec1.adapters.evaluation import EvaluationSpec, digests
from ec1.adapters.extractor import extractor_adapter
from ec1.adapters.manifest import AdapterBase, AdapterManifest
from ec1.adapters.reading import ReadingSettings
from ec1.adapters.registry import AdapterRegistry
from ec1.adapters.scores import BASE, CANDIDATE
from ec1.corpus.buckets import Bucket, bucket
from ec1.corpus.dataset import Dataset, build_dataset, load_dataset
from ec1.corpus.snapshots import Snapshot, load_snapshot, mended_snapshot, take_snapshot
from ec1.corpus.split import moved
from ec1.corpus.threshold import HighWaterMark, TrainingDecision, day_after, decide, must_train_again, trained_snapshot
from ec1.damage import damaged
from ec1.deployment import Deployment
from ec1.errors import DamagedError, PermanentError
from ec1.extraction.naming.calibration import calibration_in
from ec1.gpu.settings import VllmSettings
from ec1.home import Home
from ec1.launch.device import GpuSettings
from ec1.launch.launcher import Launcher, LocalLauncherSettings, Subject
from ec1.launch.libraries import load_libraries
from ec1.models import model_folder, pinned_revision, prepare_model
from ec1.night.records import CandidateRecord, DatasetRecord, OutcomeRecord, Records, SnapshotRecord
from ec1.night.steps.candidate import (
    BEST,
    EVALUATION_FOLDER,
    INCUMBENT,
    SPEC,
    CandidateVerdict,
    TrainedCandidate,
    candidate_in,
    earlier_looks,
    evaluated_files,
    judged_in,
    run_evaluation,
    run_training,
    tell_trackers,
)
from ec1.night.steps.hardware import gpu_of, hardware_of, hardware_with
from ec1.night.steps.marks import marked_as, mend_mark
from ec1.night.steps.settlement import manifest_of, place
from ec1.night.stores import open_registry
from ec1.nights import Night
from ec1.recipes.objectives import NO_START, OBJECTIVES
from ec1.recipes.resolution import ResolvedRecipe
from ec1.training.cards import CardSheet
from ec1.training.checkpoints import whole_checkpoints
from ec1.training.plan import DatasetSize, TrainingPlan, figures_of, plan_training
from ec1.training.shape import ModelShape
from ec1.training.spec import METRICS, StartAdapter, TrainingResult, TrainingSpec, finished

log = logging.getLogger(__name__)
VERSIONS = 20
"""How many versions are shown beside a new one."""


class RecipeNight:
    """The steps of `resolved` on `night`, in their order. Nothing is read or written before a step is called."""

    def __init__(self, resolved: ResolvedRecipe, deployment: Deployment, home: Home, night: Night) -> None:
        self.resolved = resolved
        self.recipe = resolved.recipe
        self.deployment = deployment
        self.home = home
        self.night = night

    @property
    def name(self) -> str:
        """`<tenant>/<role>`."""
        return f"{self.recipe.tenant}/{self.recipe.role}"

    @property
    def subject(self) -> Subject:
        """What work for this recipe is about."""
        return Subject(self.recipe.tenant, self.recipe.role, self.night.date)

    @property
    def bucket(self) -> Bucket:
        corpus, keys = self.deployment.corpus_root(self.home), self.recipe.data.known_keys
        return bucket(corpus, self.recipe.role, self.recipe.tenant, keys)

    @property
    def _labels(self) -> tuple[str, ...]:
        """Access labels of tuples that the recipe may learn from."""
        return self.recipe.data.labels or ()

    @property
    def folder(self) -> Path:
        """Everything that this recipe writes on this night lies below it."""
        return self.home.run(self.recipe.tenant, self.recipe.role, self.night.date)

    @property
    def records(self) -> Records:
        return Records(self.folder)

    @cached_property
    def _gpu(self) -> GpuSettings:
        return gpu_of(self.deployment)

    @cached_property
    def registry(self) -> AdapterRegistry:
        return open_registry(self.deployment, self.home)

    def snapshot(self, now: dt.datetime) -> Snapshot:
        """Take the snapshot of the bucket as of the end of the night, or of `now` if that is earlier."""
        taken = take_snapshot(
            self.bucket, self.recipe.rows, as_of=self.night.as_of(now), home=self.home, labels=self._labels
        )
        # A clean-up leaves alone what is in use.
        taken.path.touch()
        return taken

    def taken_snapshot(self) -> Snapshot:
        """The snapshot that the night took. Raises InputError if it took none."""
        taken = self.records.read(SnapshotRecord)
        try:
            return load_snapshot(self.home, taken.bucket, taken.digest)
        except DamagedError as damage:
            return self._mended(taken.digest, self.night.date, damage)

    def decision(self, snapshot: Snapshot) -> TrainingDecision:
        """Whether enough tuples came since this recipe was last trained, as of this night: later ones do not count."""
        recipe = self.recipe
        mend_mark(self.home, recipe.tenant, recipe.role)
        trained = self._trained(snapshot.bucket)
        again = must_train_again(self.home, recipe.tenant, recipe.role)
        mark = HighWaterMark(self.home, recipe.tenant, recipe.role)
        by = mark.trained_by(snapshot.digest, self._marked_as)
        last = mark.latest(before=day_after(self.night.date))
        return decide(
            snapshot,
            threshold=recipe.data.threshold,
            trained=trained,
            again=again,
            by_later=by if by is not None and by > self.night.date else None,
            changed_since=last["night"] if last is not None and last.get("recipe") != self._marked_as else None,
        )

    def quiet_nights(self) -> int:
        """Nights since this role was last trained, or since its first night if it never was."""
        folders = [path for path in self.folder.parent.glob("*") if path.name <= self.night.date and path.is_dir()]
        trained = [path.name for path in folders if Records(path).find(CandidateRecord) is not None]
        last = max(trained) if trained else min((path.name for path in folders), default=self.night.date)
        return (dt.date.fromisoformat(self.night.date) - dt.date.fromisoformat(last)).days

    @cached_property
    def base_model(self) -> Path:
        """The recipe's base model as a folder of safetensors, prepared if needed."""
        base = self.recipe.base_model
        return prepare_model(base.id, base.revision, self.deployment.models, self.home.models)

    @property
    def base_model_ref(self) -> AdapterBase:
        """The base model as a manifest names it, with the commit that a branch or tag was when it was fetched."""
        base = self.recipe.base_model
        folder = model_folder(base.id, base.revision, self.deployment.models, self.home.models)
        commit = pinned_revision(folder, base.revision)
        return AdapterBase(
            id=base.id,
            revision=base.revision,
            commit=None if commit == base.revision else commit,
            license=base.license,
        )

    def dataset(self, snapshot: Snapshot) -> Dataset:
        """Build the dataset of a snapshot with the base model's tokenizer. Raises as `build_dataset`."""
        # Fast: what loads is a good half of this step's CPU time.
        load_libraries("transformers.models.auto.modeling_auto")
        from transformers import AutoTokenizer

        try:
            snapshot.check()
        except DamagedError as damage:
            snapshot = self._mended(snapshot.digest, self.night.date, damage)

        tokenizer = AutoTokenizer.from_pretrained(self.base_model, local_files_only=True)
        dataset = build_dataset(
            snapshot,
            self.recipe.data,
            tokenizer,
            home=self.home,
            objective=self.recipe.rows,
            mixed=self._mixed(),
        )
        dataset.path.touch()
        return dataset

    def _mixed(self) -> dict[str, Snapshot]:
        """Snapshots of the roles that `data.mix` names, as of this night. Raises PermanentError for an empty one."""
        corpus, moment = self.deployment.corpus_root(self.home), self.night.as_of(dt.datetime.now(dt.UTC))
        found = {}
        for role in self.recipe.data.mix:
            of = bucket(corpus, role, self.recipe.tenant, self.recipe.data.known_keys)
            found[role] = take_snapshot(of, self.recipe.rows, as_of=moment, home=self.home, labels=self._labels)
            if not found[role].trainable:
                raise PermanentError(f"recipe {self.recipe.name}: data.mix: bucket {of.name} holds no trainable tuple")
        return found

    def built_dataset(self) -> Dataset:
        """The dataset that the night built; if it is damaged or gone, the same one, built again from its snapshot.

        Raises InputError if the night built none, DamagedError if it cannot be built again.
        """
        built = self.records.read(DatasetRecord)
        try:
            return load_dataset(self.home, built.digest)
        except DamagedError as damage:
            folder = self.home.datasets / built.digest
            if folder.exists():
                damaged(log, folder, f"{damage}: it is built again")
            else:
                # Retention removes what is old, and somebody may have made room.
                log.info("%s is gone: it is built again", folder)
            again = self.dataset(self.taken_snapshot())
            if again.digest != built.digest:
                raise DamagedError(f"{damage} (from the present recipe and model it becomes another one)") from None
            return again

    def versions(self) -> list[AdapterManifest]:
        """The newest usable versions of the role, the oldest first."""
        tenant, role = self.recipe.tenant, self.recipe.role
        usable = sorted(self.registry.usable(tenant, role))[-VERSIONS:]
        return [self.registry.get(tenant, role, version) for version in usable]

    def split_warnings(self, dataset: Dataset) -> list[str]:
        """Which usable versions know the split otherwise: they would be judged on what they were trained on."""
        tenant, role = self.recipe.tenant, self.recipe.role
        manifests = [self.registry.get(tenant, role, version) for version in self.registry.usable(tenant, role)]
        learnt = {}
        for manifest in manifests:
            # Of one that is gone or damaged nothing is known.
            with contextlib.suppress(DamagedError):
                learnt[manifest.name] = load_dataset(self.home, manifest.dataset.digest).path
        return [
            f"the split was changed (data.seed, heldout_share or group_by): {found.version} was trained on "
            f"{found.trained_on} groups that are held out now, and {found.heldout} held out then are trained on"
            for found in moved(dataset.path, learnt)
            if found.trained_on or not self.recipe.data.heldout_newest
        ]

    def plan(self, dataset: Dataset, budget_seconds: float | None = None) -> TrainingPlan:
        """The plan of the training on the deployment's hardware. Raises PermanentError for what cannot fit, or
        could not be evaluated here."""
        from ec1.night.steps.learned import learned

        # On another machine the trainer asks, before it loads anything.
        here = isinstance(self.deployment.launcher, LocalLauncherSettings)
        if here and (why := self.recipe.why_unchecked()) is not None:
            raise PermanentError(f"recipe {self.recipe.name}: {why}")
        if OBJECTIVES[self.recipe.objective].rolls_out and self._start is None:
            raise PermanentError(f"recipe {self.recipe.name}: {NO_START}")
        gpu, model = self._gpu, ModelShape.read(self.base_model)
        return plan_training(
            self.recipe,
            model,
            hardware_of(self.home, gpu),
            _size_of(dataset),
            budget_seconds=budget_seconds or self.deployment.budgets.training_seconds,
            learned=learned(self.home, self.recipe, model, gpu),
        )

    def plan_on(self, card: CardSheet, dataset: Dataset) -> TrainingPlan:
        """What the training would take on another card, whether it fits there or not. Raises PermanentError for a
        recipe whose modules the model lacks."""
        from ec1.night.steps.learned import learned

        gpu, model = self._gpu, ModelShape.read(self.base_model)
        other = hardware_with(self.home, gpu, card)
        known = learned(self.home, self.recipe, model, gpu)
        figures = figures_of(self.recipe, model, other, _size_of(dataset))
        if known is None or gpu.device != other.device:
            return figures
        # What a training holds does not depend on the card that holds it.
        return figures.model_copy(update={"peak_memory_gib": round(known.memory_gib, 2)})

    def spec(self, dataset: Dataset, budget_seconds: float | None = None, seed: int | None = None) -> TrainingSpec:
        """The complete specification of the training in the night's own folder."""
        return TrainingSpec(
            recipe=self.recipe,
            recipe_digest=self.resolved.digest,
            dataset=dataset.path,
            dataset_digest=dataset.digest,
            base_model=self.base_model,
            start_adapter=self._start,
            output=self._training,
            seed=seed,
            budget_seconds=budget_seconds or self.deployment.budgets.training_seconds,
            device=self.deployment.gpu.device,
            machine=self._gpu.name,
            processes=self.deployment.gpu.processes,
            fsdp=self.deployment.gpu.fsdp,
            tracking=self.deployment.tracking,
            tracking_folder=self.home.tracking,
        )

    def is_trained(self, spec: TrainingSpec) -> bool:
        """Whether the same training has already finished in its folder."""
        return finished(spec) is not None

    def train(self, spec: TrainingSpec, launcher: Launcher, env: Mapping[str, str]) -> TrainingResult:
        """Train through the launcher, and check the result."""
        # The trainer leaves out what a disk changed; here, where that is kept and told, it is said.
        whole_checkpoints(spec.checkpoints)
        return run_training(spec, self.subject, launcher, env, self._log("training"))

    def candidate(self) -> TrainedCandidate:
        """What the night's training left. Raises InputError if there was none."""
        return candidate_in(self._training, self.night.date)

    def evaluation_spec(
        self, dataset: Dataset, adapter: Path | None = None, output: Path | None = None, trained: str | None = None
    ) -> EvaluationSpec:
        """Base, candidate, incumbent and (if it is another one) the best ever, on the held-out examples.

        The candidate is the night's own and is scored in the night's folder; or it is `adapter`, scored in `output`,
        and `trained` says in a few words how it was made.

        An incumbent or best of another base model cannot be put on this one: it is left out, and the gate compares with
        what is left. An extractor is held against what phase 1 would read with otherwise, in phase 1's own way: before
        the first version, that is the adapter that the deployment names.
        """
        recipe, reading = self.recipe, self._reading
        if adapter is None:
            candidate = self.candidate()
            adapter, trained = candidate.adapter, candidate.trained(recipe)
        # All were trained on what a part of the training side holds out.
        compared = self._compared() if dataset.within is None else {}
        models: dict[str, Path | None] = {BASE: None, CANDIDATE: adapter, **compared}
        return EvaluationSpec(
            model=self.base_model,
            device=self.deployment.gpu.device,
            candidates=models,
            heldout=dataset.path / "heldout",
            train=None if reading is not None else dataset.path / "train",
            objective=recipe.rows,
            system_prompt=recipe.data.system_prompt,
            max_length=recipe.data.max_length,
            options=recipe.evaluation
            if (own := recipe.own_answers) is None
            # As in training: what is longer was never rewarded.
            else recipe.evaluation.model_copy(update={"sample_tokens": own.max_tokens}),
            trained=trained or "",
            looked_at=earlier_looks(self.folder, digests(adapter)),
            reading=reading,
            judge=self.deployment.judge,
            # Elsewhere there is no such folder.
            remembered=self.home.remembered / recipe.tenant / recipe.role
            if isinstance(self.deployment.launcher, LocalLauncherSettings)
            else None,
            output=output or self._evaluation,
        )

    def _compared(self) -> dict[str, Path]:
        """The incumbent and the best ever, or what comes before a first version."""
        recipe, registry = self.recipe, self.registry
        incumbent = registry.incumbent(recipe.tenant, recipe.role)
        best = registry.best(recipe.tenant, recipe.role)
        found: dict[str, Path] = {}
        for name, manifest in ((INCUMBENT, incumbent), (BEST, best)):
            if manifest is None or manifest.version is None or (name == BEST and manifest == incumbent):
                continue
            if manifest.base_model.id == recipe.base_model.id:
                found[name] = registry.fetch(recipe.tenant, recipe.role, manifest.version)
        if OBJECTIVES[recipe.objective].rolls_out and INCUMBENT not in found and (start := self._start) is not None:
            found[INCUMBENT] = start.folder
        if self._reading is not None and INCUMBENT not in found and (started := self._named_adapter) is not None:
            found[INCUMBENT] = started.folder
        return found

    def evaluate(self, spec: EvaluationSpec, launcher: Launcher, env: Mapping[str, str]) -> CandidateVerdict:
        """Score through the launcher, and let the gate judge."""
        run_evaluation(spec, self.subject, launcher, env, self._log("evaluation"))
        judged = self.judged()
        if self.deployment.tracking:
            tell_trackers(TrainingSpec.read(self._training / SPEC), judged, env)
        return judged

    def judged(self) -> CandidateVerdict:
        """The scores that the night's evaluation left, and the gate's verdict on the candidate."""
        return judged_in(self._evaluation, self.recipe.evaluation)

    def settle(self, run: str) -> OutcomeRecord:
        """Publish the candidate, or put it in quarantine, by its verdict; then move the high-water mark. Idempotent.

        A diverged training is settled too: tomorrow would end the same.
        """
        candidate = self.candidate()
        judged = None if candidate.diverged else self.judged()
        manifest = manifest_of(
            self.resolved,
            self.night.date,
            self.base_model_ref,
            self.taken_snapshot(),
            self.built_dataset(),
            candidate,
            judged,
            inherited=self.labels_learnt_by(candidate.result.start_adapter),
        )
        attachments = {METRICS: candidate.metrics}
        if judged is not None:
            attachments |= evaluated_files(self._evaluation)
        outcome = place(self.registry, candidate, manifest, judged, attachments)
        mark = HighWaterMark(self.home, self.recipe.tenant, self.recipe.role)
        mark.advance(manifest.snapshot.digest, self.night.date, run, self.resolved.digest)
        return outcome

    @cached_property
    def _marked_as(self) -> str:
        return marked_as(self.home, self.resolved)

    def _trained(self, bucket: str) -> Snapshot | None:
        """What this recipe was last trained on. If that is damaged for good, all tuples count as new."""
        recipe = self.recipe
        name = recipe.tenant, recipe.role, self._marked_as, self.night.date
        try:
            trained = trained_snapshot(self.home, bucket, *name)
            if trained is not None:
                trained.trainable_keys()
            return trained
        except DamagedError as damage:
            mark = HighWaterMark(self.home, recipe.tenant, recipe.role)
            entry = mark.latest(before=day_after(self.night.date), recipe=self._marked_as)
            assert entry is not None, "a mark led to the snapshot"
            try:
                return self._mended(entry["digest"], entry["night"], damage)
            except DamagedError as error:
                damaged(log, self.home.snapshots / bucket / entry["digest"], f"{error}; all its tuples count as new")
                return None

    def _mended(self, digest: str, night: str, damage: DamagedError) -> Snapshot:
        """The snapshot that a night took, built again from the corpus. Raises DamagedError."""
        taken = Records(self.home.run(self.recipe.tenant, self.recipe.role, night)).find(SnapshotRecord)
        as_of = taken.as_of if taken is not None and taken.digest == digest else None
        as_of = as_of or self.deployment.night(night).as_of(dt.datetime.now(dt.UTC))
        of, rows, labels = self.bucket, self.recipe.rows, self._labels
        return mended_snapshot(of, rows, digest, as_of=as_of, home=self.home, why=damage, labels=labels)

    @property
    def _training(self) -> Path:
        return self.folder / "training"

    @property
    def _evaluation(self) -> Path:
        return self.folder / EVALUATION_FOLDER

    def _log(self, what: str) -> Path:
        return self.home.logs / f"{what}-{self.recipe.tenant}-{self.recipe.role}-{self.night.date}.log"

    @property
    def _reading(self) -> ReadingSettings | None:
        """What phase 1 reads with, for a recipe of kind extraction. None where phase 1 is served with no adapter: then
        its candidates are judged as any others."""
        engine, extraction = self.deployment.inference, self.deployment.extraction
        if self.recipe.kind != "extraction" or not isinstance(engine, VllmSettings) or extraction.relations:
            return None
        if not extraction.vocabulary.is_contracts:
            return None
        if engine.model != self.recipe.base_model.id:
            raise PermanentError(
                f"recipe {self.recipe.name} trains {self.recipe.base_model.id}, and phase 1 reads with {engine.model}: "
                "set base_model.id to what inference.model names"
            )
        curve = None
        if (named := self._named_adapter) is not None:
            curve = calibration_in(named.folder, named.digest, extraction.mode)
        return ReadingSettings(engine=engine, extraction=extraction, curve=curve)

    def labels_learnt_by(self, name: str | None) -> tuple[str, ...]:
        """Access labels of what a version of this role, or of its warm start, has learnt from; none of another."""
        tenant, registry = self.recipe.tenant, self.registry
        roles = [role for role in (self.recipe.role, self._warm_role) if role is not None and name is not None]
        manifests = (registry.get(tenant, role, version) for role in roles for version in registry.usable(tenant, role))
        return next((manifest.labels for manifest in manifests if manifest.name == name), ())

    @property
    def _start(self) -> StartAdapter | None:
        """What training goes on from: an extractor from the adapter that the deployment names, preference training
        from the incumbent.

        Each night anew from the same one: its bucket holds all corrections, and what an earlier night learnt of them
        would be learnt twice.
        """
        if self.recipe.kind == "extraction":
            return self._named_adapter
        if not OBJECTIVES[self.recipe.objective].goes_on:
            return None
        return self._incumbent(self.recipe.role) or (self._incumbent(warm) if (warm := self._warm_role) else None)

    @property
    def _warm_role(self) -> str | None:
        """Another role of the tenant, whose version in use training may start from."""
        return self.recipe.own_answers.warm_start if self.recipe.own_answers is not None else None

    @property
    def _named_adapter(self) -> StartAdapter | None:
        """The adapter that `extraction.adapter` names. Raises InputError if it is not one of this recipe's model."""
        folder = self.deployment.extraction.adapter
        if folder is None:
            return None
        adapter = extractor_adapter(folder, self.recipe.base_model.id)
        return StartAdapter(folder=adapter.folder, name=adapter.name, digest=adapter.digest)

    def _incumbent(self, role: str) -> StartAdapter | None:
        """A role's version in use, if it is of the same base: preference training goes on from it."""
        manifest = self.registry.incumbent(self.recipe.tenant, role)
        if manifest is None or manifest.version is None or manifest.base_model.id != self.recipe.base_model.id:
            return None
        folder = self.registry.fetch(manifest.tenant, manifest.role, manifest.version)
        return StartAdapter(folder=folder, name=manifest.name, digest=manifest.identity)


def _size_of(dataset: Dataset) -> DatasetSize:
    return DatasetSize(dataset.train_rows, dataset.tokens, dataset.percentiles["p100"], dataset.heldout_rows)

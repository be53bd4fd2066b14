"""Phase 2's judgement for one night: what to evaluate, what the gate says, and where the candidate goes then.

Belongs here: putting evaluation, gate and registry together for one recipe and night. Does not: how any of them works.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.adapters.evaluation import EvaluationSpec
from ec1.adapters.gate import Verdict, judge
from ec1.adapters.manifest import (
    AdapterManifest,
    BaseModelRef,
    DatasetRef,
    EvaluationSummary,
    RecipeRef,
    SnapshotRef,
)
from ec1.adapters.registry import AdapterRegistry
from ec1.adapters.scores import BASE, EVALUATION, EXAMPLES, Scores, load_scores
from ec1.corpus.dataset import Dataset, load_dataset
from ec1.corpus.snapshots import load_snapshot
from ec1.corpus.threshold import HighWaterMark
from ec1.deployment import Deployment
from ec1.errors import PermanentError
from ec1.files import write_json
from ec1.gpu.lease import Grant
from ec1.home import Home
from ec1.launch.environment import process_environment
from ec1.models import prepare_model
from ec1.night.log_book import commit_of
from ec1.night.records import Records
from ec1.night.training import Candidate, candidate_of
from ec1.recipes.resolution import ResolvedRecipe
from ec1.training.spec import METRICS

CANDIDATE, INCUMBENT, BEST = "candidate", "incumbent", "best"


@dataclass(frozen=True)
class Judged:
    """Scores of all models and the gate's verdict on the candidate."""

    scores: Scores
    verdict: Verdict

    def record(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict.verdict,
            "reasons": list(self.verdict.reasons),
            "mean_scores": self.scores.means(),
            "mean_losses": self.scores.mean_losses(),
            "examples": len(self.scores.examples),
        }


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate: a version in the registry, or a folder in quarantine."""

    verdict: str
    detail: str
    path: Path
    snapshot: str
    dataset: str
    version: int | None = None
    name: str | None = None

    def record(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path)}


def evaluation_spec(
    resolved: ResolvedRecipe,
    dataset: Dataset,
    deployment: Deployment,
    home: Home,
    night: str,
    registry: AdapterRegistry,
) -> EvaluationSpec:
    """Base, candidate, incumbent and (if it is another one) the best ever, on the dataset's held-out examples.

    An incumbent or best of another base model cannot be put on this one: it is left out, and the gate compares with
    what is left.
    """
    recipe = resolved.recipe
    models: dict[str, Path | None] = {BASE: None, CANDIDATE: candidate_of(resolved, home, night).adapter}
    incumbent = registry.incumbent(recipe.tenant, recipe.role)
    best = registry.best(recipe.tenant, recipe.role)
    for name, manifest in ((INCUMBENT, incumbent), (BEST, best)):
        if manifest is None or manifest.version is None or (name == BEST and manifest == incumbent):
            continue
        if manifest.base_model.id == recipe.base_model.id:
            models[name] = registry.fetch(recipe.tenant, recipe.role, manifest.version)
    return EvaluationSpec(
        model=prepare_model(recipe.base_model.id, recipe.base_model.revision, deployment.models, home.models),
        device=deployment.gpu.device,
        candidates=models,
        heldout=dataset.path / "heldout",
        objective=recipe.rows,
        system_prompt=recipe.data.system_prompt,
        max_length=recipe.data.max_length,
        options=recipe.evaluation,
        output=home.run(recipe.tenant, recipe.role, night) / "evaluation",
    )


def launch(spec: EvaluationSpec, grant: Grant, env: Mapping[str, str], log: Path) -> Path:
    """Run the evaluation as a process of its own and wait for it; returns the folder with the scores.

    Raises PermanentError, with the end of the log, if the process fails or leaves no scores.
    """
    path = spec.output.with_suffix(".spec.json")
    write_json(path, spec.model_dump(mode="json"))
    command = [sys.executable, "-m", "ec1.adapters.evaluation", str(path)]
    with grant.start(command, env=process_environment(spec.device, env), log=log) as process:
        status = process.wait()
    if status != 0 or not (spec.output / EVALUATION).is_file():
        raise PermanentError(f"the evaluation ended with status {status}; the end of {log}:\n{process.log_tail()}")
    return spec.output


def judge_night(resolved: ResolvedRecipe, spec: EvaluationSpec) -> Judged:
    """Let the gate judge what the evaluation wrote."""
    scores = load_scores(spec.output)
    return Judged(scores, judge(scores, resolved.recipe.evaluation, candidate=CANDIDATE))


def settle(
    resolved: ResolvedRecipe, deployment: Deployment, home: Home, night: str, run: str, registry: AdapterRegistry
) -> Outcome:
    """Publish an accepted candidate as the next version, or put it in quarantine; then move the high-water mark.

    Safe to repeat: the same candidate is the same version, or the same folder in quarantine.
    """
    recipe = resolved.recipe
    folder = home.run(recipe.tenant, recipe.role, night) / "evaluation"
    candidate = candidate_of(resolved, home, night)
    scores = load_scores(folder)
    verdict = judge(scores, recipe.evaluation, candidate=CANDIDATE)
    summary = EvaluationSummary(
        verdict=verdict.verdict,
        reasons=verdict.reasons,
        objective=recipe.objective,
        examples=len(scores.examples),
        scores=scores.means(),
        differences=verdict.differences,
    )
    manifest = _manifest(resolved, deployment, home, night, candidate, summary)
    attachments = {EVALUATION: folder / EVALUATION, EXAMPLES: folder / EXAMPLES, METRICS: candidate.metrics}
    if verdict.accepted:
        published = registry.publish(candidate.adapter, manifest, attachments)
        assert published.version is not None
        outcome = Outcome(
            "accepted",
            f"{published.name}, {verdict.reasons[0]}",
            registry.fetch(recipe.tenant, recipe.role, published.version),
            manifest.snapshot.digest,
            manifest.dataset.digest,
            published.version,
            published.name,
        )
    else:
        outcome = _quarantine(candidate, manifest, verdict.verdict, "; ".join(verdict.reasons), attachments, registry)
    _advance(resolved, home, night, run, manifest)
    return outcome


def settle_diverged(
    resolved: ResolvedRecipe, deployment: Deployment, home: Home, night: str, run: str, registry: AdapterRegistry
) -> Outcome:
    """Put what a diverged training left in quarantine, and move the high-water mark: tomorrow would end the same."""
    candidate = candidate_of(resolved, home, night)
    reason = f"training diverged: {candidate.result.verdict}"
    manifest = _manifest(resolved, deployment, home, night, candidate, None)
    outcome = _quarantine(candidate, manifest, "rejected", reason, {METRICS: candidate.metrics}, registry)
    _advance(resolved, home, night, run, manifest)
    return outcome


def _quarantine(
    candidate: Candidate,
    manifest: AdapterManifest,
    verdict: str,
    reason: str,
    attachments: Mapping[str, Path],
    registry: AdapterRegistry,
) -> Outcome:
    path = registry.quarantine(
        candidate.adapter if candidate.adapter.is_dir() else candidate.folder, manifest, reason, attachments
    )
    return Outcome(verdict, reason, path, manifest.snapshot.digest, manifest.dataset.digest)


def _advance(resolved: ResolvedRecipe, home: Home, night: str, run: str, manifest: AdapterManifest) -> None:
    mark = HighWaterMark(home, resolved.recipe.tenant, resolved.recipe.role)
    mark.advance(manifest.snapshot.digest, night, run, resolved.digest)


def _manifest(
    resolved: ResolvedRecipe,
    deployment: Deployment,
    home: Home,
    night: str,
    candidate: Candidate,
    evaluation: EvaluationSummary | None,
) -> AdapterManifest:
    recipe, result = resolved.recipe, candidate.result
    records = Records(home.run(recipe.tenant, recipe.role, night))
    dataset = load_dataset(home, records.read("training_dataset")["digest"])
    taken = records.read("corpus_snapshot")
    snapshot = load_snapshot(home, taken["bucket"], taken["digest"])
    return AdapterManifest(
        tenant=recipe.tenant,
        role=recipe.role,
        night=night,
        base_model=BaseModelRef(id=recipe.base_model.id, revision=recipe.base_model.revision),
        method=recipe.method,
        objective=recipe.objective,
        recipe=RecipeRef(name=recipe.name, version=recipe.version, digest=resolved.digest),
        dataset=DatasetRef(digest=dataset.digest, train_rows=dataset.train_rows, heldout_rows=dataset.heldout_rows),
        snapshot=SnapshotRef(bucket=snapshot.bucket, digest=snapshot.digest, tuples=snapshot.trainable),
        reference=result.reference,
        evaluation=evaluation,
        git_commit=commit_of(candidate.folder),
        packages=result.versions,
        hardware={"device": result.device, "name": result.hardware, "peak_memory_gib": result.peak_memory_gib},
        seeds={"training": result.seed, "evaluation": recipe.evaluation.seed},
    )

"""What follows from the verdict: the candidate becomes a version, or goes to quarantine with the reason.

Belongs here: the manifest, and the place. Does not: the verdict (`ec1.adapters.gate`) and how a
version is stored (`ec1.adapters.registry`).
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from ec1.adapters.gate import VerdictName
from ec1.adapters.manifest import (
    AdapterBase,
    AdapterManifest,
    DatasetRef,
    RecipeRef,
    SnapshotRef,
)
from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.dataset import Dataset
from ec1.corpus.snapshots import Snapshot
from ec1.night.records import OutcomeRecord
from ec1.night.steps.candidate import CandidateVerdict, TrainedCandidate
from ec1.night.steps.log_book import commit_of
from ec1.recipes.resolution import ResolvedRecipe
from ec1.recipes.schema import Recipe
from ec1.training.spec import TrainingResult


def manifest_of(
    resolved: ResolvedRecipe,
    night: str,
    base_model: AdapterBase,
    snapshot: Snapshot,
    dataset: Dataset,
    candidate: TrainedCandidate,
    judged: CandidateVerdict | None,
    inherited: Collection[str] = (),
) -> AdapterManifest:
    """The manifest of a candidate: what it was made from. `judged` is None where training diverged; `inherited` are the
    access labels of what its start has learnt from."""
    recipe, result = resolved.recipe, candidate.result
    return AdapterManifest(
        tenant=recipe.tenant,
        role=recipe.role,
        night=night,
        base_model=base_model,
        method=recipe.method,
        objective=recipe.objective,
        recipe=RecipeRef(name=recipe.name, version=recipe.version, digest=resolved.digest),
        dataset=DatasetRef(digest=dataset.digest, train_rows=dataset.train_rows, heldout_rows=dataset.heldout_rows),
        labels=tuple(sorted({*dataset.labels, *inherited})),
        snapshot=SnapshotRef(bucket=snapshot.bucket, digest=snapshot.digest, tuples=snapshot.trainable),
        reference=result.reference,
        started_from=result.start_adapter,
        tokenizer=result.tokenizer,
        evaluation=None if judged is None else judged.summary(recipe.objective),
        git_commit=commit_of(candidate.folder),
        packages=result.versions,
        hardware={"device": result.device, "name": result.hardware, "peak_memory_gib": result.peak_memory_gib},
        seeds={"training": result.seed, "evaluation": recipe.evaluation.seed},
        training=_training_of(recipe, result),
    )


def _training_of(recipe: Recipe, result: TrainingResult) -> dict[str, str | int | float]:
    """What who trains it again, or serves it, asks first."""
    held = recipe.quantization
    found: dict[str, str | int | float] = {}
    if recipe.lora is not None:
        found |= {"rank": recipe.lora.r, "alpha": recipe.lora.alpha, "dropout": recipe.lora.dropout}
    return found | {
        "base is loaded by": result.loader,
        "learning rate": recipe.optimisation.learning_rate,
        "steps": result.steps,
        "rows in a step": result.effective_batch,
        "passes over the rows": round(result.epochs, 2),
        "base in training": "not quantised" if held is None else f"{held.type}{', double' if held.double else ''}",
    }


def place(
    registry: AdapterRegistry,
    candidate: TrainedCandidate,
    manifest: AdapterManifest,
    judged: CandidateVerdict | None,
    attachments: Mapping[str, Path],
) -> OutcomeRecord:
    """Publish the candidate as the next version if the gate accepted it, else put it in quarantine.

    A diverged training (`judged` is None) is put in quarantine too. Idempotent: the same candidate is the same version,
    or the same folder in quarantine.
    """
    if judged is None:
        reason = f"training diverged: {candidate.result.verdict}"
        return _quarantine(registry, candidate, manifest, "rejected", reason, attachments)
    verdict = judged.verdict
    if verdict.accepted:
        return _publish(registry, candidate, manifest, verdict.told, attachments)
    return _quarantine(registry, candidate, manifest, verdict.verdict, verdict.told, attachments)


def _publish(
    registry: AdapterRegistry,
    candidate: TrainedCandidate,
    manifest: AdapterManifest,
    reason: str,
    attachments: Mapping[str, Path],
) -> OutcomeRecord:
    published = registry.publish(candidate.adapter, manifest, attachments)
    assert published.version is not None
    return OutcomeRecord(
        outcome="published",
        verdict="accepted",
        detail=f"{published.name}, {reason}",
        path=registry.fetch(manifest.tenant, manifest.role, published.version),
        snapshot=manifest.snapshot.digest,
        dataset=manifest.dataset.digest,
        version=published.version,
        name=published.name,
    )


def _quarantine(
    registry: AdapterRegistry,
    candidate: TrainedCandidate,
    manifest: AdapterManifest,
    verdict: VerdictName,
    reason: str,
    attachments: Mapping[str, Path],
) -> OutcomeRecord:
    weights = candidate.adapter if candidate.adapter.is_dir() else candidate.folder
    return OutcomeRecord(
        outcome="quarantined",
        verdict=verdict,
        detail=reason,
        path=registry.quarantine(weights, manifest, reason, attachments),
        snapshot=manifest.snapshot.digest,
        dataset=manifest.dataset.digest,
    )

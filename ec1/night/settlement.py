"""What follows from the verdict: the candidate becomes a version, or goes to quarantine with the reason.

Belongs here: the manifest, the place, and the high-water mark. Does not: the verdict (`ec1.adapters.gate`) and how a
version is stored (`ec1.adapters.registry`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.adapters.manifest import (
    AdapterManifest,
    BaseModelRef,
    DatasetRef,
    EvaluationSummary,
    RecipeRef,
    SnapshotRef,
    VerdictName,
)
from ec1.adapters.scores import EVALUATION, EXAMPLES
from ec1.corpus.threshold import HighWaterMark
from ec1.night.candidate import Candidate, Judged
from ec1.night.log_book import commit_of
from ec1.night.records import OutcomeRecord
from ec1.training.spec import METRICS

if TYPE_CHECKING:
    from ec1.night.recipe_night import RecipeNight


def settle(each: "RecipeNight", run: str) -> OutcomeRecord:
    """Publish the candidate as the next version if the gate accepted it, else put it in quarantine; then move the
    high-water mark.

    A diverged training is settled too: tomorrow would end the same. Idempotent: the same candidate is the same version,
    or the same folder in quarantine.
    """
    candidate = each.candidate()
    judged = None if candidate.diverged else each.judged()
    manifest = _manifest(each, candidate, judged)
    attachments: dict[str, Path] = {METRICS: candidate.metrics}
    if judged is None:
        reason = f"training diverged: {candidate.result.verdict}"
        outcome = _quarantine(each, candidate, manifest, "rejected", reason, attachments)
    else:
        attachments |= {name: each.evaluation_folder / name for name in (EVALUATION, EXAMPLES)}
        verdict = judged.verdict
        if verdict.accepted:
            outcome = _publish(each, candidate, manifest, verdict.reasons[0], attachments)
        else:
            reason = "; ".join(verdict.reasons)
            outcome = _quarantine(each, candidate, manifest, verdict.verdict, reason, attachments)
    mark = HighWaterMark(each.home, each.recipe.tenant, each.recipe.role)
    mark.advance(manifest.snapshot.digest, each.night.date, run, each.resolved.digest)
    return outcome


def _publish(
    each: "RecipeNight", candidate: Candidate, manifest: AdapterManifest, reason: str, attachments: Mapping[str, Path]
) -> OutcomeRecord:
    published = each.registry.publish(candidate.adapter, manifest, attachments)
    assert published.version is not None
    return OutcomeRecord(
        outcome="published",
        verdict="accepted",
        detail=f"{published.name}, {reason}",
        path=each.registry.fetch(each.recipe.tenant, each.recipe.role, published.version),
        snapshot=manifest.snapshot.digest,
        dataset=manifest.dataset.digest,
        version=published.version,
        name=published.name,
    )


def _quarantine(
    each: "RecipeNight",
    candidate: Candidate,
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
        path=each.registry.quarantine(weights, manifest, reason, attachments),
        snapshot=manifest.snapshot.digest,
        dataset=manifest.dataset.digest,
    )


def _manifest(each: "RecipeNight", candidate: Candidate, judged: Judged | None) -> AdapterManifest:
    recipe, result = each.recipe, candidate.result
    dataset, snapshot = each.built_dataset(), each.taken_snapshot()
    evaluation = None
    if judged is not None:
        evaluation = EvaluationSummary(
            verdict=judged.verdict.verdict,
            reasons=judged.verdict.reasons,
            objective=recipe.objective,
            examples=len(judged.scores.examples),
            scores=judged.scores.means(),
            differences=judged.verdict.differences,
        )
    return AdapterManifest(
        tenant=recipe.tenant,
        role=recipe.role,
        night=each.night.date,
        base_model=BaseModelRef(id=recipe.base_model.id, revision=recipe.base_model.revision),
        method=recipe.method,
        objective=recipe.objective,
        recipe=RecipeRef(name=recipe.name, version=recipe.version, digest=each.resolved.digest),
        dataset=DatasetRef(digest=dataset.digest, train_rows=dataset.train_rows, heldout_rows=dataset.heldout_rows),
        snapshot=SnapshotRef(bucket=snapshot.bucket, digest=snapshot.digest, tuples=snapshot.trainable),
        reference=result.reference,
        evaluation=evaluation,
        git_commit=commit_of(candidate.folder),
        packages=result.versions,
        hardware={"device": result.device, "name": result.hardware, "peak_memory_gib": result.peak_memory_gib},
        seeds={"training": result.seed, "evaluation": recipe.evaluation.seed},
    )

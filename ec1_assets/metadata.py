"""The metadata of each asset family: one typed function per family, from a domain object to what the UI shows.

Numbers that people follow over time are floats or ints of their own, because the UI plots those across partitions.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from ec1.corpus.dataset import Dataset
from ec1.corpus.snapshots import Snapshot
from ec1.corpus.threshold import Decision
from ec1.documents.ledger import LedgerEntry
from ec1.documents.listing import Listing
from ec1.extraction.trust import Trust
from ec1.home import Home
from ec1.night.growth import Growth
from ec1.night.records import ExtractionRecord, GraphRecord, HandoverRecord
from ec1_assets.plots import bar_plot, line_plot

if TYPE_CHECKING:
    from ec1.extraction.report import Progress
    from ec1.extraction.scoring import ScoreTable
    from ec1.graph.ladybug_store import LadybugStore
    from ec1.graph.service_content_store import Delivery
    from ec1.night.candidate import Candidate, Judged
    from ec1.night.records import OutcomeRecord
    from ec1.training.plan import Plan

Metadata = dict[str, Any]
MAX_ROWS = 50


def of_listing(listing: Listing) -> Metadata:
    by_stream: dict[str, int] = {}
    for version in listing.changed:
        by_stream[version.key.stream] = by_stream.get(version.key.stream, 0) + 1
    return {
        "documents_to_read": len(listing.changed),
        **{f"documents_to_read_{stream}": count for stream, count in sorted(by_stream.items())},
        "unchanged": sum(listing.unchanged.values()),
        "read_again_by_a_changed_extractor": len(listing.refresh),
        "vanished": len(listing.vanished),
        "rejected": len(listing.rejected),
        "left_for_a_later_night": listing.later,
        "as_of": dg.MetadataValue.timestamp(listing.as_of.timestamp()),
        "documents": _table(
            [
                {"stream": v.key.stream, "path": v.key.path, "id": v.document_id, "bytes": v.size}
                for v in listing.changed
            ]
        ),
        "refused": _table([{"path": each.key.path, "reason": each.reason} for each in listing.rejected]),
    }


def of_extraction(total: ExtractionRecord, stream: str, listing: Listing, folder: Path) -> Metadata:
    """All runs of the night together: a run that found nothing new to read does not show zeros."""
    counts = total.streams.get(stream, {})
    by_class = total.entities_by_stream.get(stream, {})
    paths = {version.content_sha256[:12]: version.key.path for version in reversed(listing.changed)}
    return {
        **{name: counts.get(name, 0) for name in ("complete", "deferred", "rejected", "reused", "postponed")},
        **({"stopped": total.stopped} if total.stopped else {}),
        "entities": sum(by_class.values()),
        "entities_by_class": bar_plot(
            f"Entities by class, {stream}", by_class, "mentions", folder / f"entities-{stream}.png"
        ),
        "llm_calls": total.llm_calls,
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
        "documents_per_second": float(total.documents_per_second),
        "tokens_per_second": float(total.tokens_per_second),
        "not_trusted": _table(
            [{"reason": reason, "entities": count} for reason, count in sorted(total.dropped.items())]
        ),
        "put_off": _table(
            [
                {"path": paths.get(each["content"], each["content"]), **each}
                for each in total.problems
                if each["stream"] == stream
            ]
        ),
    }


def of_graph(applied: GraphRecord, home: Home, folder: Path, exported: Path | None, growth: Growth) -> Metadata:
    by_class = dict(applied.entities_by_class or {})
    return {
        "documents_applied": applied.applied,
        "documents_deferred": applied.deferred + applied.missing,
        "documents_rejected": applied.rejected,
        "documents_vanished": applied.vanished,
        "entities": applied.entities_after,
        "new_entities": applied.entities_after - applied.entities_before,
        "mentions": applied.mentions_after,
        "entities_by_class": bar_plot("Entities in the graph", by_class, "entities", folder / "graph.png"),
        "growth_of_entities": line_plot(
            "Entities in the graph, by night",
            {name: (growth.nights, counts) for name, counts in growth.entities.items()},
            "",
            "entities",
            folder / "growth-entities.png",
        ),
        "growth_of_mentions": line_plot(
            "Mentions in the graph, by night",
            {name: (growth.nights, counts) for name, counts in growth.mentions.items()},
            "",
            "mentions",
            folder / "growth-mentions.png",
        ),
        "published": dg.MetadataValue.path(home.published_graph),
        **({"export": dg.MetadataValue.path(exported)} if exported else {}),
        **({"recovered": applied.recovered} if applied.recovered else {}),
        **({"rebuild": applied.rebuild.reason} if applied.rebuild else {}),
    }


SHOWN_LINKS = 200
"""So many links of a band are shown: in a large graph there are tens of thousands."""


def of_resolution(store: "LadybugStore", unused: Sequence[str]) -> Metadata:
    """How many entities are one, and the best pairs for review; `unused` are entities of overrides that are gone."""
    from ec1.graph.resolution import Band

    counts = store.resolution_counts()
    review, vetoed = store.best_links(Band.REVIEW, SHOWN_LINKS), store.best_links(Band.NEW, SHOWN_LINKS)
    return {
        "clusters": counts.clusters,
        "links_merged": counts.links.get(Band.MERGE, 0),
        "links_for_review": counts.links.get(Band.REVIEW, 0),
        "links_vetoed": counts.links.get(Band.NEW, 0),
        "for_review": _table(
            [
                {"one": each.one, "other": each.other, "score_bits": each.score, "why": each.reasons, "but": each.veto}
                for each in review
            ]
        ),
        "vetoed": _table([{"one": each.one, "other": each.other, "veto": each.veto} for each in vetoed]),
        **({"overrides_about_no_entity": _list(unused)} if unused else {}),
    }


def of_progress(progress: "Progress") -> Metadata:
    return {
        "documents_done": progress.done,
        "documents_in_all": progress.total,
        "documents_per_second": float(progress.documents_per_second),
        "tokens_per_second": float(progress.tokens_per_second),
    }


def of_trust(trust: Trust, waiting: Sequence[LedgerEntry], scores: "ScoreTable | None") -> Metadata:
    """How good tonight's answers were, and which documents are quarantined or deferred, with the reasons."""
    counts: dict[str, int] = {}
    for entry in waiting:
        kind = f"{entry.status.value}_{entry.key.stream}"
        counts[kind] = counts.get(kind, 0) + 1
    return {
        "grounding_rate": trust.grounding_rate,
        "hallucination_rate": trust.hallucination_rate,
        **dict(sorted(counts.items())),
        "deferred_and_quarantined": _table(
            [
                {
                    "stream": entry.key.stream,
                    "path": entry.key.path,
                    "status": entry.status.value,
                    "nights": entry.attempts,
                    "last": entry.night,
                    "reason": entry.reason or "",
                }
                for entry in waiting
            ]
        ),
        **(_of_scores(scores) if scores is not None else {}),
    }


def _of_scores(scores: "ScoreTable") -> Metadata:
    whole = scores["all"]
    rows: list[Mapping[str, Any]] = [
        {"class": row.label, **figures} for row, figures in zip(scores.rows, scores.record().values(), strict=True)
    ]
    return {
        "precision": float(whole.precision),
        "recall": float(whole.recall),
        "f1": float(whole.f1),
        **({"baseline_f1": float(scores.baseline["all"].f1)} if scores.baseline is not None else {}),
        "against_gold": _table(rows),
    }


def of_delivery(delivery: "Delivery") -> Metadata:
    """What service-content was sent, and how that compares with what it holds."""
    return {
        "service_content_sent": delivery.sent,
        "service_content_deferred": delivery.deferred,
        "service_content_refused": _counts(delivery.refused),
        "service_content_expected": delivery.expected,
        "service_content_retracted": delivery.retracted,
        **({"service_content_held": delivery.held} if delivery.held is not None else {}),
        "service_content_looked_up": delivery.looked_up,
        "service_content_missing": delivery.missing,
        "service_content_unconfirmed": delivery.unconfirmed,
        "service_content_differ": delivery.differ,
        "service_content_differences": _list(delivery.examples),
        **({"service_content_problem": delivery.problem} if delivery.problem else {}),
    }


def of_handover(handover: HandoverRecord) -> Metadata:
    return {
        "device": handover.device,
        "free_gib": float(handover.free_gib),
        "total_gib": float(handover.total_gib),
        "processes_that_had_to_be_killed": handover.swept,
    }


def of_snapshot(snapshot: Snapshot) -> Metadata:
    return {
        "trainable": snapshot.trainable,
        "lines": snapshot.lines,
        "files": snapshot.files,
        "bytes": snapshot.bytes,
        "digest": snapshot.digest,
        "path": dg.MetadataValue.path(snapshot.path),
        "not_trainable": _counts(snapshot.rejected),
    }


def of_decision(decision: Decision) -> Metadata:
    return {
        "train": decision.train,
        "reason": decision.reason,
        "new_tuples": decision.new,
        "trainable": decision.trainable,
        "threshold": decision.threshold,
        "trained_snapshot": decision.trained_snapshot or "none yet",
    }


def of_dataset(dataset: Dataset, plan: "Plan") -> Metadata:
    return {
        "train_rows": dataset.train_rows,
        "heldout_rows": dataset.heldout_rows,
        "tokens": dataset.tokens,
        "digest": dataset.digest,
        "path": dg.MetadataValue.path(dataset.path),
        "left_out": _counts(dataset.rejected),
        **of_audit(dataset),
        "sample": dg.MetadataValue.json(list(dataset.samples[:2])),
        "planned_steps": plan.steps,
        "planned_seconds": float(plan.seconds),
        "planned_peak_memory_gib": float(plan.peak_memory_gib),
        "planned_cost_usd": float(plan.cost),
        "plan_notes": _list(plan.notes),
    }


def of_audit(dataset: Dataset) -> Metadata:
    if dataset.audit is None:
        return {}
    return {
        "heldout_checked": dataset.audit.checked,
        "heldout_known": dataset.audit.known,
        "heldout_known_share": dataset.audit.known_share,
        "heldout_verbatim": dataset.audit.verbatim,
        "heldout_only_read": dataset.audit.read,
        "max_known_share": dataset.max_known_share,
    }


def of_candidate(candidate: "Candidate", folder: Path) -> Metadata:
    result, curves = candidate.result, candidate.curves()
    return {
        "status": result.status if result.verdict is None else f"{result.status}: {result.verdict}",
        "steps": result.steps,
        "effective_batch": result.effective_batch,
        "train_loss_first": result.loss_first,
        "train_loss_last": result.loss_last,
        "tokens_per_second": float(result.tokens_per_second),
        "peak_memory_gib": float(result.peak_memory_gib),
        "training_seconds": float(result.seconds),
        "gpu_hours": result.seconds / 3600,
        "trainable_parameters": result.trainable_parameters,
        "reference": result.reference or "none",
        "loss_curve": line_plot(
            "Training loss", {"loss": (curves["step"], curves["loss"])}, "step", "loss", folder / "loss.png"
        ),
        "learning_rate_curve": line_plot(
            "Learning rate",
            {"learning rate": (curves["step"], curves["learning_rate"])},
            "step",
            "",
            folder / "learning-rate.png",
        ),
        "path": dg.MetadataValue.path(candidate.folder),
        "notes": _list(result.notes),
    }


def of_evaluation(judged: "Judged", folder: Path) -> Metadata:
    losses = {model: loss for model, loss in judged.scores.mean_losses().items() if loss is not None}
    scores = {model: score for model, score in judged.scores.means().items() if score is not None}
    return {
        "verdict": judged.verdict.verdict,
        "reasons": _list(judged.verdict.reasons),
        "heldout_examples": len(judged.scores.examples),
        **{f"eval_loss_{model}": loss for model, loss in losses.items()},
        **{f"eval_score_{model}": score for model, score in scores.items()},
        **({"eval_loss": losses["candidate"]} if "candidate" in losses else {}),
        "held_out_loss": bar_plot(
            "Held-out loss of the wanted answer",
            {model: round(loss, 3) for model, loss in losses.items()},
            "nats/token",
            folder / "evaluation.png",
        ),
        "answers": _table(
            [{"prompt": each.prompt, "wanted": each.expected, **each.answers} for each in judged.scores.samples]
        ),
    }


def of_outcome(outcome: "OutcomeRecord") -> Metadata:
    return {
        "verdict": outcome.verdict,
        "detail": outcome.detail,
        "path": dg.MetadataValue.path(outcome.path),
        **({"version": outcome.version, "name": outcome.name} if outcome.version else {}),
        "snapshot": outcome.snapshot,
        "dataset": outcome.dataset,
    }


def _counts(counts: Mapping[str, int]) -> dg.TableMetadataValue | str:
    return _table([{"reason": reason, "rows": count} for reason, count in sorted(counts.items())])


def _list(lines: Sequence[str]) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md("\n".join(f"- {line}" for line in lines) or "none")


def _table(rows: Sequence[Mapping[str, str | int | float | bool | None]]) -> dg.TableMetadataValue | str:
    if not rows:
        return "none"
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows[:MAX_ROWS]])

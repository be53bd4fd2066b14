"""The metadata of each asset family: one typed function per family, from a domain object to what the UI shows.

What was decided comes first, then figures, then one table, then plots, then where it lies. Numbers that people follow
over time are floats or ints of their own, because the UI plots those across partitions; they are rounded. A plot of one
point or of zeros says nothing and is left out.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from ec1.adapters.scores import BASE, CANDIDATE, Sample, counted
from ec1.corpus.dataset import Dataset
from ec1.corpus.snapshots import Snapshot
from ec1.corpus.threshold import TrainingDecision
from ec1.documents.ledger import LedgerEntry
from ec1.documents.listing import Listing
from ec1.extraction.naming.trust import Trust
from ec1.extraction.reading.progress import ExtractionRecord, StreamCounts
from ec1.home import Home
from ec1.night.records import GraphRecord, HandoverRecord, ScoreRecord
from ec1.night.report.growth import Growth
from ec1.night.steps.document_night import GraphOfNight
from ec1_assets.night_report import STUDIO
from ec1_assets.plots import bar_plot, interval_plot, line_plot

if TYPE_CHECKING:
    from ec1.adapters.manifest import AdapterManifest
    from ec1.extraction.reading.progress import Progress
    from ec1.graph.resolution.tables import Counts
    from ec1.graph.service_content_store import DeliveryRecord
    from ec1.night.records import OutcomeRecord
    from ec1.night.steps.candidate import CandidateVerdict, TrainedCandidate
    from ec1.training.plan import TrainingPlan

Metadata = dict[str, Any]
MAX_ROWS = 50
MAX_SAMPLES = 3


def of_listing(listing: Listing, unread: str, applied: GraphRecord) -> Metadata:
    """`unread` says what lies below the root that no stream reads, if anything does; `applied` is what earlier runs of
    the night did, which belongs to the night's total."""
    # What was rejected first: there is something to do about it.
    rows: list[Mapping[str, Any]] = [
        {"stream": each.key.stream, "path": each.key.path, "id": "", "bytes": 0, "rejected": each.reason}
        for each in listing.rejected
    ]
    unreadable = [f"{each.key.path}: {each.reason}" for each in listing.postponed]
    rows += [
        {"stream": each.key.stream, "path": each.key.path, "id": each.document_id, "bytes": each.size, "rejected": ""}
        for each in listing.changed
    ]
    return {
        "documents_to_read": len(listing.changed) + applied.applied,
        "unchanged": sum(listing.unchanged.values()),
        "read_again_by_a_changed_extractor": len(listing.refresh),
        "vanished": len(listing.vanished),
        "rejected": len(listing.rejected),
        "left_for_a_later_night": listing.later,
        **({"removed_on_request": listing.kept_out} if listing.kept_out else {}),
        **({"unreadable_now": unreadable[:MAX_ROWS]} if unreadable else {}),
        **({"streams_put_off": dict(listing.put_off)} if listing.put_off else {}),
        **({"not_read_by_any_stream": unread} if unread else {}),
        "as_of": dg.MetadataValue.timestamp(listing.as_of.timestamp()),
        "documents": _table(rows),
    }


def of_extraction(total: ExtractionRecord, stream: str, folder: Path) -> Metadata:
    """All runs of the night together: a run that found nothing new to read does not show zeros."""
    counts = total.streams.get(stream, StreamCounts())
    by_class = total.entities_by_stream.get(stream, {})
    return {
        **counts.model_dump(),
        **({"stopped": total.stopped} if total.stopped else {}),
        "entities": sum(by_class.values()),
        "llm_calls": total.llm_calls,
        **({"decisions": total.decisions} if total.decisions else {}),
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
        **({} if (speed := total.documents_per_second) is None else {"documents_per_second": round(speed, 3)}),
        **({} if (speed := total.tokens_per_second) is None else {"tokens_per_second": round(speed, 1)}),
        "not_trusted": _counts(total.dropped),
        "put_off": _table(
            [
                {**each, "path": each.get("path") or each["content"]}
                for each in total.problems
                if each["stream"] == stream
            ]
        ),
        **({"held_back": _table(rows)} if (rows := [each for each in total.held if each["stream"] == stream]) else {}),
        **(
            {
                "entities_by_class": bar_plot(
                    f"Entities by class, {stream}", by_class, "mentions", folder / f"entities-{stream}.png"
                )
            }
            if any(by_class.values())
            else {}
        ),
    }


def of_graph(graph: GraphOfNight, home: Home, folder: Path) -> Metadata:
    """The graph after a night's documents, all runs of the night together, and how far they can be trusted."""
    applied, by_class = graph.total, dict(graph.total.entities_by_class or {})
    return {
        "documents_applied": applied.applied,
        "documents_deferred": applied.deferred + applied.missing,
        "documents_rejected": applied.rejected,
        "documents_vanished": applied.vanished,
        "entities": applied.entities_after,
        "entities_net_change": applied.entities_after - applied.entities_before,
        "mentions": applied.mentions_after,
        # An unchanged graph has been shown; its picture would be kept once more each quiet night.
        **(_plots_of_graph(by_class, graph.growth, folder) if applied.applied or applied.vanished else {}),
        "published": dg.MetadataValue.path(home.published_graph),
        **({"export": dg.MetadataValue.path(graph.exported)} if graph.exported else {}),
        **({"recovered": applied.recovered} if applied.recovered else {}),
        **({"rebuild": applied.rebuild.reason} if applied.rebuild else {}),
        **(_of_resolution(graph.resolution, graph.unused_overrides) if graph.resolution is not None else {}),
        **_of_trust(graph.trust, graph.waiting),
        **(_of_scores(graph.scores) if graph.scores is not None else {}),
        **(_of_delivery(graph.delivery) if graph.delivery is not None else {}),
    }


def _plots_of_graph(by_class: Mapping[str, int], growth: Growth, folder: Path) -> Metadata:
    plots: Metadata = {}
    if any(by_class.values()):
        plots["entities_by_class"] = bar_plot("Entities in the graph", by_class, "entities", folder / "graph.png")
    if len(growth.nights) > 1:
        plots["growth_of_entities"] = line_plot(
            "Entities in the graph, by night",
            {name: (growth.nights, counts) for name, counts in growth.entities.items() if any(counts)},
            "",
            "entities",
            folder / "growth-entities.png",
        )
    return plots


def _of_resolution(counts: "Counts", unused: Sequence[str]) -> Metadata:
    """How many entities are one, and how many pairs wait for review; `unused`: entities of overrides that are gone."""
    from ec1.graph.resolution.clusters import Band

    review = counts.links.get(Band.REVIEW, 0)
    return {
        "clusters": counts.clusters,
        "links_merged": counts.links.get(Band.MERGE, 0),
        "links_for_review": review,
        "links_vetoed": counts.links.get(Band.NEW, 0),
        **({"review_with": "ec1 graph review"} if review else {}),
        **({"overrides_about_no_entity": _list(unused)} if unused else {}),
    }


def of_progress(progress: "Progress") -> Metadata:
    return {
        "documents_done": progress.done,
        "documents_in_all": progress.total,
        "documents_per_second": round(float(progress.documents_per_second), 3),
        "tokens_per_second": round(float(progress.tokens_per_second), 1),
    }


def _of_trust(trust: Trust, waiting: Sequence[LedgerEntry]) -> Metadata:
    """How good the night's answers were, and which documents are quarantined or deferred, with the reasons."""
    counts: dict[str, int] = {}
    for entry in waiting:
        kind = f"{entry.status.value}_{entry.key.stream}"
        counts[kind] = counts.get(kind, 0) + 1
    return {
        **({} if trust.grounding_rate is None else {"grounding_rate": round(trust.grounding_rate, 3)}),
        **({} if trust.hallucination_rate is None else {"hallucination_rate": round(trust.hallucination_rate, 3)}),
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
    }


def _of_scores(scores: ScoreRecord) -> Metadata:
    if scores.problem is not None:
        return {"scores": scores.problem}
    whole = scores.figures["all"]
    shown = ("precision", "recall", "f1", "baseline_f1")
    return {
        **{name: float(figure) for name in shown if (figure := whole[name]) is not None},
        "scores": _table([{"class": name, **figures} for name, figures in scores.figures.items()]),
    }


def _of_delivery(delivery: "DeliveryRecord") -> Metadata:
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
        "free_gib": round(float(handover.free_gib), 2),
        "total_gib": round(float(handover.total_gib), 2),
        "processes_that_had_to_be_killed": handover.swept,
    }


def of_snapshot(snapshot: Snapshot) -> Metadata:
    return {
        "trainable": snapshot.trainable,
        "lines": snapshot.lines,
        "files": snapshot.files,
        "bytes": snapshot.bytes,
        "not_trainable": _counts(snapshot.rejected),
        "digest": _short(snapshot.digest),
        "path": dg.MetadataValue.path(snapshot.path),
    }


def of_decision(decision: TrainingDecision) -> Metadata:
    return {
        "train": decision.train,
        "reason": decision.reason,
        "new_tuples": decision.new,
        "trainable": decision.trainable,
        "threshold": decision.threshold,
        "trained_snapshot": _short(decision.trained_snapshot) if decision.trained_snapshot else "none yet",
    }


def of_dataset(dataset: Dataset, plan: "TrainingPlan") -> Metadata:
    return {
        "train_rows": dataset.train_rows,
        "heldout_rows": dataset.heldout_rows,
        "tokens": dataset.tokens,
        "plan": f"{plan.steps} steps, {plan.seconds:.0f} s, {plan.peak_memory_gib:.2f} GiB, {plan.cost:.2f} USD",
        "plan_notes": _list(plan.notes),
        "left_out": _counts(dataset.rejected),
        **({"mixed_in": ", ".join(dataset.mixed_shares)} if dataset.mixed else {}),
        **of_audit(dataset),
        "first_training_rows_shortened": dg.MetadataValue.json(list(dataset.samples[:2])),
        "digest": _short(dataset.digest),
        "path": dg.MetadataValue.path(dataset.path),
        "studio": dg.MetadataValue.url(f"{STUDIO}/data/dataset/{dataset.digest}"),
    }


def of_audit(dataset: Dataset) -> Metadata:
    if dataset.audit is None:
        return {}
    return {
        "heldout_known_share": round(dataset.audit.known_share, 3),
        "heldout_known": f"{dataset.audit.known} of {dataset.audit.checked}; {dataset.audit.verbatim} verbatim, "
        f"{dataset.audit.read} only read; at most a share of {dataset.max_known_share:g} may be",
    }


def of_candidate(candidate: "TrainedCandidate", folder: Path) -> Metadata:
    result, curves = candidate.result, candidate.curves()
    return {
        "status": result.status if result.verdict is None else f"{result.status}: {result.verdict}",
        "training": f"{result.steps} steps of {result.effective_batch} rows in {result.seconds:.0f} s; "
        f"{result.trainable_parameters} trainable parameters; loss {_shown(result.loss_first)} at first, "
        f"{_shown(result.loss_last)} at last",
        "tokens_per_second": round(float(result.tokens_per_second), 1),
        "peak_memory_gib": round(float(result.peak_memory_gib), 2),
        "gpu_hours": round(result.seconds / 3600, 4),
        "reference": result.reference or "none",
        "notes": _list(result.notes),
        **(_curves(curves, folder) if len(curves["step"]) > 1 else {}),
        **(_answered(result.answered_right, folder) if result.answered_right else {}),
        "path": dg.MetadataValue.path(candidate.folder),
    }


def _curves(curves: Mapping[str, Sequence[float]], folder: Path) -> Metadata:
    """The loss by step; where the model wrote the answers, what they earned, which says more."""
    steps = curves["step"]
    if "reward" not in curves:
        loss = {"loss": (steps, curves["loss"])}
        return {"loss_curve": line_plot("Training loss", loss, "step", "loss", folder / "loss.png")}
    lines = {name: (steps, curves[name]) for name in ("reward", "right", "spread")}
    title = "Reward of the model's own answers, those that are right, and groups that differ"
    return {"reward_curve": line_plot(title, lines, "step", "share", folder / "reward.png")}


def _answered(points: Sequence[tuple[int, float]], folder: Path) -> Metadata:
    """Right answers on the way, to questions that are neither trained on nor the gate's."""
    steps, shares = zip(*points, strict=True)
    return {
        "answered_right": line_plot(
            "Questions answered rightly while it trained", {"right": (steps, shares)}, "step", "share",
            folder / "answered.png",
        )
    }  # fmt: skip


def of_evaluation(judged: "CandidateVerdict", folder: Path) -> Metadata:
    losses = {model: round(loss, 3) for model, loss in judged.scores.mean_losses().items() if loss is not None}
    scores = {model: round(score, 3) for model, score in judged.scores.means().items() if score is not None}
    counted = judged.scores.counts_right
    name, title = ("f1", "F1 on held-out chunks") if judged.scores.rows is None else ("solved", "Held-out tasks solved")
    measure, figures = (f"eval_{name}", scores) if counted else ("eval_loss", losses)
    shown: Metadata = {
        "verdict": judged.verdict.verdict,
        **_right(judged),
        "reasons": _list(judged.verdict.reasons),
        **{f"gain_over_{model}": str(each) for model, each in judged.verdict.differences.items()},
        "heldout_examples": str(len(judged.scores.examples)),
        # One curve each: the candidate's loss (of an extractor its F1), and what it is held against.
        **{(measure if model == "candidate" else f"{measure}_{model}"): each for model, each in figures.items()},
        **(
            {f"held_out_{name}": bar_plot(title, scores, judged.scores.unit, folder / "evaluation.png")}
            if counted
            else {
                "held_out_loss": bar_plot(
                    "Held-out loss of the wanted answer (less is better)",
                    losses,
                    "nats/token",
                    folder / "evaluation.png",
                )
            }
        ),
    }
    if judged.scores.samples:
        shown["answers_are"] = (
            "what each model wrote to prompts that it never saw, beside the answer that was wanted. How many are right "
            "is the first half of the verdict, the losses are the second; of an extractor it rests on the F1, of tasks "
            "on those that are solved."
        )
        shown["answers"] = _table(
            [
                {
                    "prompt": each.prompt,
                    "wanted": each.expected,
                    **{name: f"{_mark(each, name)}{answer}" for name, answer in each.answers.items()},
                }
                for each in judged.scores.samples[:MAX_SAMPLES]
            ]
        )
    return shown


def _right(judged: "CandidateVerdict") -> Metadata:
    """How many answers are right, first of all; and the shares as plain numbers, which are plotted over the nights."""
    success, scores = judged.verdict.success, judged.scores
    if success is None:
        return {}
    shown: Metadata = {
        "right_answers": success.of(CANDIDATE),
        **{f"right_share_{name}": round(count / success.prompts, 3) for name, count in success.right.items()},
        **({"well_formed": counted(success.formed, success.prompts, CANDIDATE)} if success.formed else {}),
        **({"prompts_left_out": f"{success.too_long}: their answer is too long"} if success.too_long else {}),
        **{f"right_over_{name}": str(each) for name, each in judged.verdict.right.items()},
        "looks_before": round(scores.looks, 1),
    }
    if success.pairs:
        shown |= {f"win_rate_{name}": round(count / success.pairs, 3) for name, count in success.wins.items()}
    if scores.general_right:
        right = {name: sum(each) for name, each in scores.general_right.items()}
        shown["general_questions_right"] = counted(right, len(scores.general_right[BASE]), CANDIDATE)
    if scores.overlap is not None:
        shown["overlap_with_training"] = str(scores.overlap)
    return shown


def _mark(sample: Sample, model: str) -> str:
    return ("\u2713 " if sample.right.get(model) else "\u2717 ") if sample.kind else ""


def of_outcome(outcome: "OutcomeRecord", versions: "Sequence[AdapterManifest]", folder: Path) -> Metadata:
    """What became of the candidate, and the evaluations of the versions that were accepted so far."""
    judged = [(each, each.evaluation) for each in versions if each.evaluation is not None]
    unit = next(
        (evaluation.differences["base"].unit for _, evaluation in judged if "base" in evaluation.differences), ""
    )
    gains = {
        f"v{each.version}": (gain.mean, gain.lower, gain.upper)
        for each, evaluation in judged
        if (gain := evaluation.differences.get("base")) is not None
    }
    return {
        "verdict": outcome.verdict,
        "detail": outcome.detail,
        **({"version": outcome.version, "name": outcome.name} if outcome.version else {}),
        "versions": _table(
            [
                {
                    "version": each.name,
                    "night": each.night,
                    "right answers": evaluation.success.of(CANDIDATE) if evaluation.success else "not counted",
                    "gain over base": str(evaluation.differences.get("base", "")),
                    "examples": evaluation.examples,
                    "dataset": _short(each.dataset.digest),
                }
                for each, evaluation in reversed(judged)
            ]
        ),
        **(
            {
                "gain_by_version": interval_plot(
                    "Gain over base on held-out answers, by version", gains, unit, folder / "versions.png"
                )
            }
            if len(gains) > 1
            else {}
        ),
        "snapshot": _short(outcome.snapshot),
        "dataset": _short(outcome.dataset),
        "path": dg.MetadataValue.path(outcome.path),
    }


def _short(digest: str) -> str:
    """Enough of a digest to find its folder."""
    return digest[:12]


def _shown(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def _counts(counts: Mapping[str, int]) -> str:
    """How many of each kind, the most first."""
    most = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{count} {reason}" for reason, count in most) or "none"


def _list(lines: Sequence[str]) -> dg.MarkdownMetadataValue:
    return dg.MetadataValue.md("\n".join(f"- {line}" for line in lines) or "none")


def _table(rows: Sequence[Mapping[str, str | int | float | bool | None]]) -> dg.TableMetadataValue | str:
    if not rows:
        return "none"
    return dg.MetadataValue.table([dg.TableRecord(dict(row)) for row in rows[:MAX_ROWS]])

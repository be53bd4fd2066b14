"""Asset checks: what must hold of an asset, declared beside it and evaluated in its own step.

A separate step per check would start a process for each; the ones here look at what the step has in hand. Blocking ones
stop what is downstream in the same run.
"""

import warnings
from typing import TYPE_CHECKING

import dagster as dg

from ec1.corpus.dataset import Dataset
from ec1.corpus.threshold import TrainingDecision
from ec1.deployment import Deployment
from ec1.night.records import PostponedRecord
from ec1.night.steps.document_night import GraphOfNight
from ec1_assets import metadata

if TYPE_CHECKING:
    from ec1.night.steps.candidate import CandidateVerdict, TrainedCandidate

GRAPH = dg.AssetKey("graph_mutations")


Nights = dg.DailyPartitionsDefinition


def spec(
    name: str, asset: dg.AssetKey, nights: Nights, description: str, *, blocking: bool = False
) -> dg.AssetCheckSpec:
    """A check that has one result a night.

    Dagster plans each check of a night's run for that night. A result without a night does not answer such a plan, and
    the history then shows a second, skipped execution each night.
    """
    with warnings.catch_warnings():
        # Dagster calls the night of a check a preview; what it writes there is tested.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(name, asset=asset, description=description, blocking=blocking, partitions_def=nights)


def specs_of_graph(nights: Nights) -> list[dg.AssetCheckSpec]:
    return [
        spec("graph_not_shrunk", GRAPH, nights, "No large loss of entities in one night."),
        spec("grounding", GRAPH, nights, "Every mention of tonight's documents stands in their text."),
        spec("hallucination", GRAPH, nights, "Few of the names in tonight's answers were invented."),
    ]


def of_graph(graph: GraphOfNight, deployment: Deployment) -> list[dg.AssetCheckResult]:
    """Of all runs of the night together: one that finds nothing new to read does not make good what another found."""
    applied, trust, rate = graph.total, graph.trust, graph.trust.hallucination_rate
    lost = applied.entities_before - applied.entities_after
    share = lost / applied.entities_before if applied.entities_before else 0.0
    return [
        dg.AssetCheckResult(
            check_name="graph_not_shrunk",
            asset_key=GRAPH,
            passed=share <= deployment.graph.max_shrink_share,
            metadata={
                "before": applied.entities_before,
                "after": applied.entities_after,
                "lost_share": round(share, 3),
            },
        ),
        dg.AssetCheckResult(
            check_name="grounding",
            asset_key=GRAPH,
            passed=not applied.ungrounded,
            metadata={"not_in_the_text": len(applied.ungrounded), "which": ", ".join(applied.ungrounded) or "none"},
        ),
        dg.AssetCheckResult(
            check_name="hallucination",
            asset_key=GRAPH,
            # Nothing invented reaches the graph; a model that invents much is one to look at.
            severity=dg.AssetCheckSeverity.WARN,
            passed=rate is None or rate <= deployment.extraction.max_hallucination_rate,
            metadata={
                **({} if rate is None else {"hallucination_rate": round(rate, 3)}),
                "named": trust.named,
                "invented": trust.invented,
                "kept": trust.kept,
            },
        ),
    ]


def spec_of_threshold(asset: dg.AssetKey, nights: Nights) -> dg.AssetCheckSpec:
    return spec("corpus_threshold", asset, nights, "Enough new trainable tuples have gathered.")


def of_threshold(
    decision: TrainingDecision, asset: dg.AssetKey, quiet_nights: int, stale_nights: int
) -> dg.AssetCheckResult:
    """A quiet night is not a fault: the check says what was decided and why.

    A role that is quiet for `stale_nights` (0: however long) is warned about.
    """
    stale = bool(stale_nights) and not decision.train and quiet_nights >= stale_nights
    since = (
        f"; not trained for {quiet_nights} nights: do its tuples still arrive? (`ec1 corpus stats`)" if stale else ""
    )
    return dg.AssetCheckResult(
        check_name="corpus_threshold",
        asset_key=asset,
        passed=not stale,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{'train' if decision.train else 'no training'}: {decision.reason}{since}",
        metadata={"new": decision.new, "threshold": decision.threshold, "quiet_nights": quiet_nights},
    )


def spec_of_leaks(asset: dg.AssetKey, nights: Nights) -> dg.AssetCheckSpec:
    return spec("no_leak", asset, nights, "Training knows nothing of what is held out.", blocking=True)


def of_leaks(dataset: Dataset, asset: dg.AssetKey) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name="no_leak",
        asset_key=asset,
        passed=dataset.is_clean,
        description=dataset.remedy,
        metadata={
            "leaks": len(dataset.leaks),
            "first": str(dataset.leaks[0]) if dataset.leaks else "none",
            **metadata.of_audit(dataset),
        },
    )


def spec_of_no_op(asset: dg.AssetKey, nights: Nights) -> dg.AssetCheckSpec:
    return spec("not_a_no_op", asset, nights, "The adapter changes the model and can be served.", blocking=True)


def of_no_op(candidate: "TrainedCandidate", asset: dg.AssetKey) -> dg.AssetCheckResult:
    problems = candidate.problems()
    return dg.AssetCheckResult(
        check_name="not_a_no_op",
        asset_key=asset,
        passed=not problems,
        metadata={"problems": "; ".join(problems) or "none"},
    )


def of_postponed(late: PostponedRecord, asset: dg.AssetKey, check: str) -> dg.AssetCheckResult:
    """Nothing was trained or judged, so nothing is wrong with it."""
    return dg.AssetCheckResult(
        check_name=check,
        asset_key=asset,
        passed=True,
        description=late.reason,
        metadata={"needs_seconds": late.needs_seconds, "left_seconds": late.left_seconds},
    )


def spec_of_gate(asset: dg.AssetKey, nights: Nights) -> dg.AssetCheckSpec:
    return spec("evaluation_gate", asset, nights, "No worse than base and incumbent, shown with confidence.")


def of_gate(judged: "CandidateVerdict", asset: dg.AssetKey) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name="evaluation_gate",
        asset_key=asset,
        passed=judged.verdict.accepted,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"{judged.verdict.verdict}: {'; '.join(judged.verdict.reasons)}",
    )

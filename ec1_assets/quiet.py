"""What the end of a chain shows where nothing is trained tonight: the version in use, and checks that say so.

Belongs here: the events that the decision logs for the assets after it, whose steps Dagster skips. Without them each
quiet night leaves a graph that looks unfinished, with checks that have no result.
"""

from collections.abc import Sequence

import dagster as dg

from ec1.adapters.registry import AdapterRegistry
from ec1.corpus.threshold import TrainingDecision
from ec1.night.report.failure import one_line
from ec1_assets.metadata import Metadata, of_decision

PARTITION_TAG, DATA_VERSION_TAG = "dagster/partition", "dagster/data_version"
LOOKED_AT = 10
"""Newest results of a check among which that of this night is looked for."""


def show_quiet(
    context: dg.AssetExecutionContext,
    after: Sequence[dg.AssetKey],
    checks: Sequence[dg.AssetCheckSpec],
    decision: TrainingDecision,
    registry: AdapterRegistry,
) -> None:
    """Log the decision, the assets `after` it as they stand, and the checks on them.

    What an earlier run of this night made is shown again as it was: a later run changes no figure of it. Otherwise
    the version in use is shown, which this night leaves unchanged.
    """
    night, asked = context.partition_key, context.run.asset_selection
    before = _made_before(context, context.asset_key)
    trained = before is not None and before.metadata.get("train") == dg.MetadataValue.bool(True)
    decided = dg.AssetMaterialization(context.asset_key, partition=night, metadata=of_decision(decision))
    context.log_event(before if before is not None and trained else decided)
    version, in_use = _in_use(registry, *context.asset_key.path[:2])
    unchanged: Metadata = {"status": f"nothing to train: {decision.reason}", "in_use": in_use}
    for key in after:
        if asked and key not in asked:
            continue
        shown = dg.AssetMaterialization(key, partition=night, metadata=unchanged, tags={DATA_VERSION_TAG: version})
        context.log_event(_made_before(context, key) or shown)
    for spec in checks:
        if asked and spec.asset_key not in asked:
            continue
        context.log_event(
            _judged_before(context, spec)
            or dg.AssetCheckEvaluation(
                asset_key=spec.asset_key,
                check_name=spec.name,
                passed=True,
                description=f"nothing new to check; in use: {in_use}",
                metadata={},
                blocking=spec.blocking,
                partition=night,
            )
        )


def _in_use(registry: AdapterRegistry, tenant: str, role: str) -> tuple[str, str]:
    """The role's version in use, and the same in words."""
    try:
        used = registry.incumbent(tenant, role)
    except Exception as error:  # noqa: BLE001  nothing is trained: a registry that does not answer costs a line
        return "unknown", f"unknown: {one_line(type(error).__name__, str(error))}"
    return (
        ("none", "the base model (no version yet)")
        if used is None
        else (used.name, f"{used.name} of night {used.night}")
    )


def _made_before(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dg.AssetMaterialization | None:
    """What another run of this night made of an asset."""
    mine = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[context.partition_key])
    found = context.instance.fetch_materializations(mine, limit=1).records
    return found[0].asset_materialization if found else None


def _judged_before(context: dg.AssetExecutionContext, spec: dg.AssetCheckSpec) -> dg.AssetCheckEvaluation | None:
    """What another run of this night said of a check."""
    for record in context.instance.event_log_storage.get_asset_check_execution_history(spec.key, limit=LOOKED_AT):
        run = context.instance.get_run_by_id(record.run_id)
        event = record.event.dagster_event if record.event is not None else None
        if event is None or run is None or run.tags.get(PARTITION_TAG) != context.partition_key:
            continue
        if event.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION:
            judged: dg.AssetCheckEvaluation = event.asset_check_evaluation_data
            return judged
    return None

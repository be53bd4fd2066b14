"""Phase 2 as assets: one recipe file makes one chain of six, keyed `<tenant>/<role>/…`.

Below the threshold everything after `threshold_check` is skipped, not failed. Each asset that uses this machine's GPU
is in the pool, holds the lease, and asks for the night's handover itself, because it may be started alone from the UI.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Any

import dagster as dg

from ec1.errors import DeferredError
from ec1.night.records import CandidateRecord, DatasetRecord, DecisionRecord, PostponedRecord, SnapshotRecord
from ec1.night.steps.budgets import no_machine, too_late, training_seconds
from ec1.night.steps.handover import require_handover
from ec1.night.steps.recipe_night import RecipeNight
from ec1.recipes.resolution import ResolvedRecipe
from ec1_assets import checks, metadata
from ec1_assets.quiet import show_quiet
from ec1_assets.run_tags import tag_verdict
from resources.gpu import GPU_POOL, GpuResource
from resources.pipes import PipesResource
from resources.project import ProjectResource

OWNERS = ["team:training"]
STEPS = ("corpus_snapshot", "threshold_check", "training_dataset", "adapter_candidate", "evaluation", "adapter")


def recipe_chain(
    resolved: ResolvedRecipe, nights: dg.DailyPartitionsDefinition, pool: str | None = GPU_POOL
) -> list[dg.AssetsDefinition]:
    """The six assets of one recipe, one partition per night. Trainings and evaluations wait in the `pool`: None where
    they run on other machines, and it is not for this one to say how many of them go at a time."""
    recipe = resolved.recipe
    tenant, role = recipe.tenant, recipe.role
    keys = {step: dg.AssetKey([tenant, role, step]) for step in STEPS}
    common: dict[str, Any] = {
        "partitions_def": nights,
        "group_name": tenant.replace("-", "_"),
        "owners": OWNERS,
        "tags": {"ec1/tenant": tenant, "ec1/role": role, "ec1/recipe": recipe.name.replace("/", ".")},
    }
    # A changed recipe makes what was built with the old one stale in the UI.
    version = f"1-{resolved.digest[:12]}"

    checks_after = [
        checks.spec_of_leaks(keys["training_dataset"], nights),
        checks.spec_of_no_op(keys["adapter_candidate"], nights),
        checks.spec_of_gate(keys["evaluation"], nights),
    ]

    def tonight(context: dg.AssetExecutionContext, project: ProjectResource) -> RecipeNight:
        deployment = project.deployment()
        return RecipeNight(resolved, deployment, project.home, deployment.night(context.partition_key))

    def postponed(
        context: dg.AssetExecutionContext,
        gpu: GpuResource,
        late: PostponedRecord,
        step: RecipeNight,
        asset: str,
        check: str,
    ) -> dg.AssetCheckResult:
        """Record why a step waits for a later night; a machine that nothing else needs is stopped."""
        context.log.warning(late.reason)
        step.records.write(context.run.run_id, late)
        gpu.stop_if_done(context)
        return checks.of_postponed(late, keys[asset], check)

    @dg.asset(
        key=keys["corpus_snapshot"],
        kinds={"json"},
        code_version="1",
        description="An immutable, content-addressed copy of the bucket, as of the end of this night.",
        **common,
    )
    def corpus_snapshot(context: dg.AssetExecutionContext, project: ProjectResource) -> dg.MaterializeResult:
        step = tonight(context, project)
        now = dt.datetime.now(dt.UTC)
        snapshot = step.snapshot(now)
        taken = SnapshotRecord(bucket=snapshot.bucket, digest=snapshot.digest, as_of=step.night.as_of(now))
        step.records.write(context.run.run_id, taken)
        return dg.MaterializeResult(
            metadata=metadata.of_snapshot(snapshot), data_version=dg.DataVersion(snapshot.digest)
        )

    @dg.asset(
        key=keys["threshold_check"],
        deps=[keys["corpus_snapshot"]],
        kinds={"python"},
        code_version=version,
        description="The decision to train. Below the threshold everything after this is skipped.",
        output_required=False,
        check_specs=[checks.spec_of_threshold(keys["threshold_check"], nights)],
        **common,
    )
    def threshold_check(
        context: dg.AssetExecutionContext, project: ProjectResource
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        step = tonight(context, project)
        decision = step.decision(step.taken_snapshot())
        step.records.write(context.run.run_id, DecisionRecord(decision=decision))
        quiet, stale = step.quiet_nights(), step.deployment.schedule.stale_nights
        check = checks.of_threshold(decision, keys["threshold_check"], quiet, stale)
        if decision.train:
            yield dg.MaterializeResult(metadata=metadata.of_decision(decision), check_results=[check])
            return
        # Without an output Dagster skips what comes after; the decision is still a materialisation, with its reason.
        context.log.info(f"no training tonight: {decision.reason}")
        show_quiet(context, [keys[each] for each in STEPS[2:]], checks_after, decision, step.registry)
        yield check

    @dg.asset(
        key=keys["training_dataset"],
        deps=[keys["threshold_check"]],
        kinds={"huggingface"},
        code_version=version,
        description="Validated, cleaned, de-duplicated, split; with token count and a plan of cost, time and memory.",
        check_specs=[checks_after[0]],
        **common,
    )
    def training_dataset(context: dg.AssetExecutionContext, project: ProjectResource) -> dg.MaterializeResult:
        step = tonight(context, project)
        snapshot = step.taken_snapshot()
        dataset = step.dataset(snapshot)
        for warning in step.split_warnings(dataset):
            context.log.warning(warning)
        plan = step.plan(dataset)
        step.records.write(
            context.run.run_id, DatasetRecord(digest=dataset.digest, snapshot=snapshot.digest, plan=plan)
        )
        return dg.MaterializeResult(
            metadata=metadata.of_dataset(dataset, plan),
            data_version=dg.DataVersion(dataset.digest),
            check_results=[checks.of_leaks(dataset, keys["training_dataset"])],
        )

    @dg.asset(
        key=keys["adapter_candidate"],
        deps=[keys["training_dataset"], "gpu_handover"],
        kinds={"pytorch", "huggingface"},
        code_version=version,
        pool=pool,
        description="The trained adapter and its curves. A training that the night has no time for is skipped.",
        output_required=False,
        check_specs=[checks_after[1]],
        **common,
    )
    def adapter_candidate(
        context: dg.AssetExecutionContext,
        project: ProjectResource,
        gpu: GpuResource,
        pipes: PipesResource,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        step = tonight(context, project)
        require_handover(step.home, step.night.date)
        dataset, budgets, plan = step.built_dataset(), step.deployment.budgets, step.records.read(DatasetRecord).plan

        def left(machine: float | None) -> float:
            return training_seconds(budgets, step.home, step.night.date, context.run.run_id, machine)

        if not step.is_trained(step.spec(dataset)):
            # What would be too late as soon as a machine was ready is not worth its boot.
            late = too_late(plan, left(project.seconds_to_have()), budgets)
            try:
                if late is None:
                    most = left(project.seconds_to_have())
                    with gpu.launcher(context, "training", needs=plan.seconds, at_most=most) as (launcher, bound):
                        # Its clock starts now.
                        seconds = left(bound)
                        late = too_late(plan, seconds, budgets)
                        if late is None:
                            spec = step.spec(dataset, budget_seconds=max(seconds, 1.0))
                            required = ("status", "steps")
                            pipes.run(context, lambda env: step.train(spec, launcher, env), required=required)
            except DeferredError as error:
                late = no_machine(error, plan, left(project.seconds_to_have()))
            if late is not None:
                yield postponed(context, gpu, late, step, "adapter_candidate", "not_a_no_op")
                return
        candidate = step.candidate()
        step.records.write(context.run.run_id, CandidateRecord(result=candidate.result))
        if candidate.diverged:
            tag_verdict(context, step.name, "diverged")
            # The blocking check below ends the chain here, so what follows it is settled now.
            step.records.write(context.run.run_id, step.settle(context.run.run_id))
        yield dg.MaterializeResult(
            metadata=metadata.of_candidate(candidate, step.folder),
            check_results=[checks.of_no_op(candidate, keys["adapter_candidate"])],
        )

    @dg.asset(
        key=keys["evaluation"],
        deps=[keys["adapter_candidate"]],
        kinds={"pytorch"},
        code_version=version,
        pool=pool,
        description="Scores of base, incumbent and candidate on the same held-out examples, and the gate's verdict.",
        output_required=False,
        check_specs=[checks_after[2]],
        **common,
    )
    def evaluation(
        context: dg.AssetExecutionContext,
        project: ProjectResource,
        gpu: GpuResource,
        pipes: PipesResource,
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        step = tonight(context, project)
        require_handover(step.home, step.night.date)
        spec = step.evaluation_spec(step.built_dataset())
        try:
            with gpu.launcher(context, "evaluation", at_most=step.deployment.budgets.training_seconds) as (launcher, _):
                judged, _ = pipes.run(context, lambda env: step.evaluate(spec, launcher, env), required=("evaluated",))
        except DeferredError as error:
            late = no_machine(error, step.records.read(DatasetRecord).plan, project.seconds_to_have() or 0.0)
            yield postponed(context, gpu, late, step, "evaluation", "evaluation_gate")
            return
        step.records.write(context.run.run_id, judged.record())
        gpu.stop_if_done(context)
        tag_verdict(context, step.name, judged.verdict.verdict)
        yield dg.MaterializeResult(
            metadata=metadata.of_evaluation(judged, step.folder),
            check_results=[checks.of_gate(judged, keys["evaluation"])],
        )

    @dg.asset(
        key=keys["adapter"],
        deps=[keys["evaluation"]],
        kinds={"safetensors"},
        code_version=version,
        description="The version in the registry, published, or the candidate in quarantine.",
        **common,
    )
    def adapter(context: dg.AssetExecutionContext, project: ProjectResource) -> dg.MaterializeResult:
        step = tonight(context, project)
        outcome = step.settle(context.run.run_id)
        step.records.write(context.run.run_id, outcome)
        return dg.MaterializeResult(
            metadata=metadata.of_outcome(outcome, step.versions(), step.folder),
            data_version=dg.DataVersion(outcome.name or outcome.path.name),
        )

    return [corpus_snapshot, threshold_check, training_dataset, adapter_candidate, evaluation, adapter]

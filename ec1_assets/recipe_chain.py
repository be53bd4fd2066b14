"""Phase 2 as assets: one recipe file makes one chain of six, keyed `<tenant>/<role>/…`.

Below the threshold everything after `threshold_check` is skipped, not failed. Each asset that uses the GPU is in the
pool, holds the lease, and asks for the night's handover itself, because it may be started alone from the UI.
"""

import datetime as dt
from collections.abc import Iterator

import dagster as dg

from ec1.corpus.buckets import bucket
from ec1.corpus.dataset import load_dataset
from ec1.corpus.snapshots import load_snapshot, take_snapshot
from ec1.corpus.threshold import decide, trained_snapshot
from ec1.errors import EC1Error
from ec1.night import settlement as adapters_nightly
from ec1.night import training as training_nightly
from ec1.night.handover import require_handover
from ec1.night.records import Records
from ec1.night.retention import clean
from ec1.recipes.resolution import ResolvedRecipe
from ec1.training.spec import finished
from ec1_assets import checks, metadata
from ec1_assets.datagraph import GPU_POOL
from ec1_assets.run_tags import run_tags
from resources.gpu import GpuResource
from resources.pipes import PipesResource
from resources.project import ProjectResource
from resources.registry import RegistryResource

OWNERS = ["team:training"]
STEPS = ("corpus_snapshot", "threshold_check", "training_dataset", "adapter_candidate", "evaluation", "adapter")


def recipe_chain(resolved: ResolvedRecipe, nights: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """The six assets of one recipe, one partition a night."""
    recipe = resolved.recipe
    tenant, role = recipe.tenant, recipe.role
    keys = {step: dg.AssetKey([tenant, role, step]) for step in STEPS}
    common = {
        "partitions_def": nights,
        "group_name": f"{tenant}_{role}".replace("-", "_"),
        "owners": OWNERS,
        "tags": {"ec1/tenant": tenant, "ec1/role": role, "ec1/recipe": recipe.name.replace("/", ".")},
    }
    # A changed recipe makes what was built with the old one stale in the UI.
    version = f"1-{resolved.digest[:12]}"

    def records(project: ProjectResource, night: str) -> Records:
        return Records(project.home.run(tenant, role, night))

    @dg.asset(
        key=keys["corpus_snapshot"],
        kinds={"json"},
        code_version="1",
        description="An immutable, content-addressed copy of the bucket, as of the end of this night.",
        **common,
    )
    def corpus_snapshot(context: dg.AssetExecutionContext, project: ProjectResource) -> dg.MaterializeResult:
        deployment, home = project.deployment(), project.home
        night = deployment.night(context.partition_key)
        snapshot = take_snapshot(
            bucket(deployment.corpus_root(home), role, tenant),
            recipe.rows,
            as_of=night.as_of(dt.datetime.now(dt.UTC)),
            home=home,
        )
        records(project, night.date).write(
            "corpus_snapshot", context.run_id, {"bucket": snapshot.bucket, "digest": snapshot.digest}
        )
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
        check_specs=[checks.spec_of_threshold(keys["threshold_check"])],
        **common,
    )
    def threshold_check(
        context: dg.AssetExecutionContext, project: ProjectResource
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
        record = records(project, context.partition_key)
        taken = record.read("corpus_snapshot")
        decision = decide(
            load_snapshot(project.home, taken["bucket"], taken["digest"]),
            threshold=recipe.data.threshold,
            trained=trained_snapshot(project.home, taken["bucket"], tenant, role, resolved.digest),
        )
        record.write("threshold_check", context.run_id, dict(vars(decision)))
        check = checks.of_threshold(decision, keys["threshold_check"])
        if decision.train:
            yield dg.MaterializeResult(metadata=metadata.of_decision(decision), check_results=[check])
            return
        # Without an output Dagster skips what comes after; the decision is still a materialisation, with its reason.
        context.log.info(f"no training tonight: {decision.reason}")
        context.log_event(
            dg.AssetMaterialization(
                context.asset_key, partition=context.partition_key, metadata=metadata.of_decision(decision)
            )
        )
        yield check

    @dg.asset(
        key=keys["training_dataset"],
        deps=[keys["threshold_check"]],
        kinds={"huggingface"},
        code_version=version,
        description="Validated, cleaned, de-duplicated, split; with token count and a plan of cost, time and memory.",
        check_specs=[checks.spec_of_leaks(keys["training_dataset"])],
        **common,
    )
    def training_dataset(context: dg.AssetExecutionContext, project: ProjectResource) -> dg.MaterializeResult:
        deployment, home = project.deployment(), project.home
        record = records(project, context.partition_key)
        taken = record.read("corpus_snapshot")
        model = training_nightly.base_model(recipe, deployment, home)
        snapshot = load_snapshot(home, taken["bucket"], taken["digest"])
        dataset = training_nightly.dataset_of(recipe, snapshot, model, deployment, home)
        plan = training_nightly.plan_of(recipe, dataset, deployment, model)
        record.write(
            "training_dataset",
            context.run_id,
            {"digest": dataset.digest, "snapshot": taken["digest"], "plan": plan.model_dump(mode="json")},
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
        pool=GPU_POOL,
        description="The trained adapter and its curves.",
        check_specs=[checks.spec_of_no_op(keys["adapter_candidate"])],
        **common,
    )
    def adapter_candidate(
        context: dg.AssetExecutionContext,
        project: ProjectResource,
        gpu: GpuResource,
        pipes: PipesResource,
        registry: RegistryResource,
    ) -> dg.MaterializeResult:
        deployment, home, night = project.deployment(), project.home, context.partition_key
        require_handover(home, night)
        record = records(project, night)
        dataset = load_dataset(home, record.read("training_dataset")["digest"])
        spec = training_nightly.spec_of(resolved, dataset, deployment, home, night, registry.open())
        if finished(spec) is None:
            with gpu.hold(context, "training") as grant:
                pipes.run(
                    context,
                    lambda env: training_nightly.launch(spec, grant, env, home.logs / f"training-{role}-{night}.log"),
                    required=("status", "steps"),
                )
        candidate = training_nightly.candidate_of(resolved, home, night)
        record.write("adapter_candidate", context.run_id, candidate.result.model_dump(mode="json"))
        context.instance.add_run_tags(context.run_id, run_tags(resolved, "diverged" if candidate.diverged else None))
        if candidate.diverged:
            # The blocking check below ends the chain here, so what follows it is settled now.
            outcome = adapters_nightly.settle_diverged(
                resolved, deployment, home, night, context.run_id, registry.open()
            )
            record.write("adapter", context.run_id, outcome.record())
        return dg.MaterializeResult(
            metadata=metadata.of_candidate(candidate, record.folder),
            check_results=[checks.of_no_op(candidate, keys["adapter_candidate"])],
        )

    @dg.asset(
        key=keys["evaluation"],
        deps=[keys["adapter_candidate"]],
        kinds={"pytorch"},
        code_version=version,
        pool=GPU_POOL,
        description="Scores of base, incumbent and candidate on the same held-out examples, and the gate's verdict.",
        check_specs=[checks.spec_of_gate(keys["evaluation"])],
        **common,
    )
    def evaluation(
        context: dg.AssetExecutionContext,
        project: ProjectResource,
        gpu: GpuResource,
        pipes: PipesResource,
        registry: RegistryResource,
    ) -> dg.MaterializeResult:
        deployment, home, night = project.deployment(), project.home, context.partition_key
        require_handover(home, night)
        record = records(project, night)
        dataset = load_dataset(home, record.read("training_dataset")["digest"])
        spec = adapters_nightly.evaluation_spec(resolved, dataset, deployment, home, night, registry.open())
        with gpu.hold(context, "evaluation") as grant:
            pipes.run(
                context,
                lambda env: adapters_nightly.launch(spec, grant, env, home.logs / f"evaluation-{role}-{night}.log"),
                required=("evaluated",),
            )
        judged = adapters_nightly.judge_night(resolved, spec)
        record.write("evaluation", context.run_id, judged.record())
        context.instance.add_run_tags(context.run_id, run_tags(resolved, judged.verdict.verdict))
        return dg.MaterializeResult(
            metadata=metadata.of_evaluation(judged, record.folder),
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
    def adapter(
        context: dg.AssetExecutionContext, project: ProjectResource, registry: RegistryResource
    ) -> dg.MaterializeResult:
        record = records(project, context.partition_key)
        deployment, opened = project.deployment(), registry.open()
        outcome = adapters_nightly.settle(
            resolved, deployment, project.home, context.partition_key, context.run_id, opened
        )
        record.write("adapter", context.run_id, outcome.record())
        try:
            for each in clean(opened, project.home, deployment.retention):
                context.log.info(f"removed {each.what} {each.name}: {each.why}")
        except (EC1Error, OSError) as error:
            # What is settled stays settled; the next night cleans up too.
            context.log.warning(f"the clean-up was cut short: {error}")
        return dg.MaterializeResult(metadata=metadata.of_outcome(outcome))

    return [corpus_snapshot, threshold_check, training_dataset, adapter_candidate, evaluation, adapter]

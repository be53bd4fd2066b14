"""Rows that nights generate, as an asset: it is there while a person has accepted a recipe that is not made whole.

A home without such a recipe has no such asset, and its nights are as long as before.
"""

import time
from collections.abc import Sequence

import dagster as dg

from ec1.errors import EC1Error
from ec1.home import Home
from resources.gpu import GPU_POOL
from resources.inference import InferenceResource
from resources.project import ProjectResource

NAME = "generated_rows"
MOST_SECONDS = 1800.0
"""Of a night; what is left waits for the next one."""


def generation_assets(
    nights: dg.DailyPartitionsDefinition, home: Home, after: Sequence[str]
) -> list[dg.AssetsDefinition]:
    """The asset, if there is something to generate. It asks phase 1's model, `after` phase 1 did."""
    if not any(home.generated.glob("*/recipes/*/accepted.json")):
        return []
    from ec1.corpus.generation_recipe import waiting_recipes

    try:
        if not waiting_recipes(home.generated):
            return []
    except EC1Error:
        # A damaged recipe is said in Studio; here it must not take the other assets with it.
        return []

    @dg.asset(
        name=NAME,
        partitions_def=nights,
        deps=list(after),
        group_name="datagraph",
        owners=["team:training"],
        kinds={"vllm"},
        code_version="1",
        pool=GPU_POOL,
        description="Rows by recipes of generation whose sample a person accepted: proposed, executed, in the bucket.",
    )
    def generated_rows(
        context: dg.AssetExecutionContext, project: ProjectResource, inference: InferenceResource
    ) -> dg.MaterializeResult:
        from ec1.night.steps.generation import generation_of_night

        deployment, own = project.deployment(), project.home
        done = generation_of_night(
            own,
            deployment.corpus_root(own),
            deployment.inference.model,
            context.partition_key,
            context.run.run_id,
            lambda: inference.serve(context),
            deadline_of=lambda: min(inference.deadline(), time.monotonic() + MOST_SECONDS),
            progress=context.log.info,
        )
        if done.problem is not None:
            context.log.warning(f"no rows were generated: {done.problem}")
        for name, report in done.made.items():
            context.log.info(f"{name}: {report}")
        recipes = "\n".join(f"- {name}: {report}" for name, report in done.made.items())
        return dg.MaterializeResult(
            metadata={
                "rows": done.rows,
                "unanswered": done.unanswered,
                "recipes": dg.MetadataValue.md(recipes or "nothing was left to make"),
                **({"problem": done.problem} if done.problem is not None else {}),
            }
        )

    return [generated_rows]

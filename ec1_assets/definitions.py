"""The one place where everything is assembled. `build_defs` makes a fresh code location for any choice."""

import datetime as dt

import dagster as dg

from ec1.corpus.buckets import bucket
from ec1.launch.launcher import LocalLauncherSettings
from ec1.night.report.first import first_night
from ec1.night.steps.recipes import sound_and_broken
from ec1_assets.broken_recipes import broken_recipe_assets
from ec1_assets.datagraph import datagraph_assets, entities_of
from ec1_assets.generated_rows import NAME, generation_assets
from ec1_assets.night_report import night_report_asset
from ec1_assets.partitions import nights_of
from ec1_assets.recipe_chain import recipe_chain
from jobs.nightly import night_jobs
from resources.environment import DeploymentChoice, choice_from_environment
from resources.gpu import GPU_POOL, GpuResource
from resources.inference import InferenceResource
from resources.pipes import PipesResource
from resources.project import ProjectResource
from schedules.corpus_growth import corpus_growth_sensor
from schedules.nightly import nightly_schedule
from schedules.run_failure import night_failure_sensor

STEPS_HERE, STEPS_ELSEWHERE = 2, 8
"""Steps of a run at a time, each a process: of those that train elsewhere most only wait."""


def build_defs(choice: DeploymentChoice) -> dg.Definitions:
    """Everything of one deployment. Raises InputError for a bad deployment; a bad recipe is an asset that says so."""
    project = ProjectResource.of(choice)
    deployment = project.deployment()
    nights = nights_of(deployment, first_night(deployment, project.home, dt.datetime.now(dt.UTC)))
    recipes, broken = sound_and_broken(deployment, choice.project)
    corpus_root = deployment.corpus_root(project.home)
    buckets = [bucket(corpus_root, each.recipe.role, each.recipe.tenant) for each in recipes]
    ends = [dg.AssetKey(name) for name in ("graph_mutations", "gpu_handover")]
    ends += [dg.AssetKey([each.recipe.tenant, each.recipe.role, "adapter"]) for each in recipes]
    jobs = night_jobs()
    gpu = GpuResource(project=project)
    # Of the machine that is booted for nights there is one, as of this one.
    here = isinstance(deployment.launcher, LocalLauncherSettings) or deployment.trains_on_machine
    pool = GPU_POOL if here else None
    streams = deployment.documents.all_streams
    generation = generation_assets(nights, project.home, entities_of(streams))
    return dg.Definitions(
        assets=[
            *datagraph_assets(nights, streams, [NAME] * bool(generation)),
            *generation,
            *(asset for each in recipes for asset in recipe_chain(each, nights, pool)),
            *broken_recipe_assets(broken, nights),
            night_report_asset(nights, ends),
        ],
        jobs=jobs,
        schedules=[nightly_schedule(deployment, project.home, nights, jobs[0])],
        sensors=[corpus_growth_sensor(deployment, project.home, jobs[0], buckets), night_failure_sensor()],
        resources={
            "project": project,
            "gpu": gpu,
            "inference": InferenceResource(project=project, gpu=gpu),
            "pipes": PipesResource(),
        },
        # One process per step: only leaving it gives all memory back. The forkserver pays for the imports once.
        executor=dg.multiprocess_executor.configured(
            {
                "max_concurrent": STEPS_HERE if here else STEPS_ELSEWHERE,
                "start_method": {"forkserver": {"preload_modules": ["jobs.preloaded"]}},
            }
        ),
    )


defs = build_defs(choice_from_environment())

"""`ec1 manifests`: a training written as another scheduler's job."""

import dataclasses
import datetime as dt
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import Options, out, print_json
from ec1.errors import InputError
from ec1.files import write_atomic
from ec1.launch.manifests import CLAIM, CLUSTERS, ClusterJob, as_yaml, slurm_script
from ec1.night.recipes import recipe_folders
from ec1.recipes.resolution import find_recipe


class Scheduler(StrEnum):
    """Whose job it becomes."""

    kuberay = "kuberay"
    trainer = "trainer"
    volcano = "volcano"
    slurm = "slurm"


def manifests(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="a name such as pointsav/engineering, found in the image too")],
    target: Annotated[Scheduler, typer.Option("--for", help="whose job it becomes")],
    hours: Annotated[float | None, typer.Option(min=0.01, help="budget; default: the deployment's")] = None,
    image: Annotated[str, typer.Option(help="of deploy/Dockerfile, with the deployment in it")] = "ec1:0.1.0",
    claim: Annotated[str, typer.Option(help="PersistentVolumeClaim of the home that the nodes share")] = CLAIM,
    queue: Annotated[str | None, typer.Option(help="Volcano's queue (default ec1), Slurm's partition")] = None,
    output: Annotated[Path | None, typer.Option("--out", help="the file to write; default: print it")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON")] = False,
) -> None:
    """Write a recipe's training as a job of KubeRay, Kubeflow Trainer, Volcano or Slurm; what it needs is planned.

    The job runs `ec1 train` on a home that the nodes share. Nothing is submitted.
    """
    # Imported here: these load libraries that the other commands do without.
    from ec1.night.by_hand import prepare
    from ec1.night.cluster import cluster_job

    options: Options = context.obj
    deployment = options.deployment()
    resolved = find_recipe(recipe, folders := recipe_folders(deployment, options.project))
    if find_recipe(resolved.recipe.name, folders).digest != resolved.digest:
        raise InputError(f"{recipe}: a job finds a recipe by its name: put it below {folders[0]}")
    budget = deployment.budgets.training_seconds if hours is None else hours * 3600
    prepared = prepare(resolved, deployment, options.home, dt.datetime.now(dt.UTC), budget)
    job = cluster_job(prepared, budget, image=image, claim=claim, queue=queue)
    if target == Scheduler.slurm:
        text = slurm_script(_on_shared_files(job, options), str(Path(sys.executable).with_name("ec1")))
        value: object = {"script": text}
    else:
        made = CLUSTERS[target.value](job)
        text, value = as_yaml(made), made
    if output is not None:
        write_atomic(output, text)
    if as_json:
        print_json(value)
    elif output is None:
        out.print(text, markup=False, end="")


def _on_shared_files(job: ClusterJob, options: Options) -> ClusterJob:
    """Nodes of a Slurm cluster see this machine's folders."""
    shared = {"EC1_HOME": str(options.home.root), "EC1_PROJECT": str(options.project)}
    return dataclasses.replace(job, environment={**job.environment, **shared})

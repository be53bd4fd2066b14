"""What a recipe's training needs of a cluster, from its plan."""

import math

from ec1.launch.manifests import ClusterJob, job_name
from ec1.night.by_hand import Prepared

CPUS = 4
"""One that computes or feeds the card, and some that tokenize and load."""
_GIB = 2**30
_LIBRARIES_GIB = 6
"""Of the machine's memory beside a card: torch with CUDA's libraries, the rows, a checkpoint that is written."""


def cluster_job(
    prepared: Prepared, budget_seconds: float, *, image: str, claim: str, queue: str | None = None
) -> ClusterJob:
    """The training of a recipe as a cluster's job.

    It trains on what the corpus is when it starts: the cost that is confirmed is that of the whole budget.
    """
    step, plan = prepared.step, prepared.plan
    recipe, gpu = step.recipe, step.deployment.gpu
    cuda = gpu.device == "cuda"
    weights = sum(path.stat().st_size for path in step.base_model.glob("*.safetensors")) / _GIB
    hours = math.ceil(budget_seconds / 36) / 100
    cost = math.ceil(hours * gpu.cost_per_hour * 100) / 100
    return ClusterJob(
        name=job_name(recipe.tenant, recipe.role),
        arguments=["train", recipe.name, "--hours", f"{hours:.2f}", "--confirm-cost", f"{cost:.2f}", "--json"],
        environment={"EC1_DEPLOYMENT": step.deployment.name},
        gpus=gpu.processes if cuda else 0,
        gpu_memory_gib=plan.peak_memory_gib,
        # On a CPU the plan's memory is the machine's.
        memory_gib=math.ceil(gpu.processes * (weights + _LIBRARIES_GIB) if cuda else plan.peak_memory_gib * 1.25),
        cpus=CPUS,
        budget_seconds=budget_seconds,
        image=image,
        claim=claim,
        queue=queue,
    )

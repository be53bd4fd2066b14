"""Whether several processes can share one training, and how they share a step's rows.

Belongs here: the arithmetic and the refusals, known before anything is loaded. Does not: starting the processes
(`ec1.training.processes`) and where they run (`ec1.launch`).
"""

from ec1.errors import InputError
from ec1.recipes.objectives import OBJECTIVES, those
from ec1.recipes.schema import Recipe


def shared(batch: int, accumulation: int, processes: int) -> tuple[int, int]:
    """Rows that each of `processes` holds at once, and batches that it takes per step, so that all of them together
    take the same `batch * accumulation` rows per step as one. Raises InputError if they cannot."""
    rows, left = divmod(batch * accumulation, processes)
    if left:
        raise InputError(
            f"{batch} × {accumulation} rows per step cannot be shared by {processes} processes: change "
            "optimisation.gradient_accumulation, or the deployment's gpu.processes"
        )
    size = next(size for size in range(min(batch, rows), 0, -1) if rows % size == 0)
    return size, rows // size


def refusal(recipe: Recipe, processes: int, fsdp: bool) -> str | None:
    """Why `processes` cannot share the training of this recipe, in one line; None if they can."""
    if processes == 1:
        return None
    objective = OBJECTIVES[recipe.objective]
    if not objective.shares:
        others = those(lambda each: each.shares)
        return f"objective {recipe.objective} is trained by one process: set gpu.processes to 1, or use {others}"
    if recipe.evaluation.task_steps is not None:
        return "evaluation.task_steps is for one process: set gpu.processes to 1, or leave it out"
    if fsdp and not objective.shards:
        allowed = f"{those(lambda each: each.shards)}, not {recipe.objective}"
        return f"gpu.fsdp is for objective {allowed}: switch it off, each card then holds the model"
    if fsdp and recipe.method != "lora":
        return f"gpu.fsdp is for method lora, not {recipe.method}: switch it off, each card then holds the model"
    if fsdp and recipe.lora is not None and recipe.lora.modules_to_save:
        return "gpu.fsdp does not go with lora.modules_to_save: switch one of them off"
    try:
        shared(recipe.optimisation.batch_size, recipe.optimisation.gradient_accumulation, processes)
    except InputError as error:
        return str(error)
    return None

"""Phase 2's training for one night: from a recipe and its dataset to a plan, a specification and a candidate.

Belongs here: what a deployment adds to a recipe (model folders, budget, output folder). Does not: how training works.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ec1.corpus.dataset import Dataset, build_dataset
from ec1.corpus.snapshots import Snapshot
from ec1.corpus.toxicity import ToxicityClassifier, ToxicityOptions
from ec1.deployment import Deployment
from ec1.errors import InputError
from ec1.files import write_json
from ec1.gpu.lease import Grant
from ec1.home import Home
from ec1.models import prepare_model
from ec1.recipes.resolution import ResolvedRecipe
from ec1.recipes.schema import Recipe
from ec1.training.objectives import OBJECTIVES
from ec1.training.plan import HardwareFigures, ModelShape, Plan, plan_training
from ec1.training.spec import METRICS, StartAdapter, TrainingResult, TrainingSpec, read_result

if TYPE_CHECKING:
    from ec1.adapters.registry import AdapterRegistry

SPEC = "spec.json"


@dataclass(frozen=True)
class Candidate:
    """What a training left in its folder."""

    folder: Path
    result: TrainingResult

    @property
    def adapter(self) -> Path:
        return self.folder / (self.result.weights or "adapter")

    @property
    def metrics(self) -> Path:
        return self.folder / METRICS

    @property
    def diverged(self) -> bool:
        return self.result.status == "diverged"

    def problems(self) -> list[str]:
        """Why this is not an adapter that changes the model and can be served; empty if it is."""
        from ec1.adapters.checks import adapter_problems

        if self.diverged:
            return [f"training diverged: {self.result.verdict}"]
        return adapter_problems(self.adapter, self.result.base_model)

    def curves(self) -> dict[str, list[float]]:
        """The columns of the step metrics: step, loss, learning_rate, grad_norm and more."""
        import pyarrow.parquet as parquet

        columns: dict[str, list[float]] = parquet.read_table(self.metrics).to_pydict()
        return columns


def base_model(recipe: Recipe, deployment: Deployment, home: Home) -> Path:
    """The recipe's base model as a folder of safetensors, made ready if it is not."""
    return prepare_model(recipe.base_model.id, recipe.base_model.revision, deployment.models, home.models)


def dataset_of(recipe: Recipe, snapshot: Snapshot, model: Path, deployment: Deployment, home: Home) -> Dataset:
    """The recipe's dataset of a snapshot, with the tokenizer in the base model's folder. Raises as `build_dataset`."""
    from transformers import AutoTokenizer

    def classifier(options: ToxicityOptions) -> ToxicityClassifier:
        folder = prepare_model(options.model, options.revision, deployment.models, home.models)
        return ToxicityClassifier(folder, options)

    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    return build_dataset(snapshot, recipe.data, tokenizer, home=home, objective=recipe.rows, classifier=classifier)


def plan_of(recipe: Recipe, dataset: Dataset, deployment: Deployment, model: Path) -> Plan:
    """The plan of this training on the deployment's hardware. Raises PermanentError for what cannot fit."""
    gpu = deployment.gpu
    return plan_training(
        recipe,
        ModelShape.read(model),
        HardwareFigures(
            name=gpu.name,
            device=gpu.device,
            memory_gib=gpu.memory_gib,
            tokens_per_second=gpu.tokens_per_second,
            cost_per_hour=gpu.cost_per_hour,
        ),
        rows=dataset.train_rows,
        tokens=dataset.tokens,
        longest=dataset.percentiles["p100"],
        heldout_rows=dataset.heldout_rows,
        budget_seconds=deployment.budgets.training_seconds,
    )


def training_folder(home: Home, recipe: Recipe, night: str) -> Path:
    return home.run(recipe.tenant, recipe.role, night) / "training"


def spec_of(
    resolved: ResolvedRecipe,
    dataset: Dataset,
    deployment: Deployment,
    home: Home,
    night: str,
    registry: "AdapterRegistry",
) -> TrainingSpec:
    """The complete specification of this night's training."""
    recipe = resolved.recipe
    return TrainingSpec(
        recipe=recipe,
        recipe_digest=resolved.digest,
        dataset=dataset.path,
        dataset_digest=dataset.digest,
        base_model=base_model(recipe, deployment, home),
        start_adapter=_accepted_sft(recipe, registry) if OBJECTIVES[recipe.objective].goes_on_from_sft else None,
        output=training_folder(home, recipe, night),
        budget_seconds=deployment.budgets.training_seconds,
        device=deployment.gpu.device,
        tracking=deployment.tracking,
        tracking_folder=home.tracking,
    )


def _accepted_sft(recipe: Recipe, registry: "AdapterRegistry") -> StartAdapter | None:
    """The role's newest usable SFT adapter of the same base: preference training goes on from it."""
    for version in reversed(registry.usable(recipe.tenant, recipe.role)):
        manifest = registry.get(recipe.tenant, recipe.role, version)
        if manifest.objective == "sft" and manifest.base_model.id == recipe.base_model.id:
            folder = registry.fetch(recipe.tenant, recipe.role, version)
            return StartAdapter(folder=folder, name=manifest.name, digest=manifest.identity)
    return None


def launch(spec: TrainingSpec, grant: Grant, env: Mapping[str, str], log: Path) -> TrainingResult:
    """Train in a process of its own under the lease, and check what it left."""
    from ec1.launch.launcher import LocalLauncher

    path = spec.output / SPEC
    write_json(path, spec.model_dump(mode="json"))
    return LocalLauncher(grant, log).run(path, env)


def candidate_of(resolved: ResolvedRecipe, home: Home, night: str) -> Candidate:
    """The candidate that this night's training left. Raises InputError if there is none."""
    folder = training_folder(home, resolved.recipe, night)
    result = read_result(folder)
    if result is None:
        raise InputError(f"{folder} holds no finished training: materialise adapter_candidate of night {night} first")
    return Candidate(folder, result)

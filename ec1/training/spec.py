"""Input and output of a trainer process: two JSON files, the same wherever the training runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ec1.errors import InputError, PermanentError
from ec1.files import digest_of, read_json
from ec1.recipes.schema import Recipe
from ec1.settings import Settings
from ec1.strict_yaml import validate
from ec1.training.tracking import Tracker

RUN = "run.json"
SUMMARY = "summary.json"
METRICS = "metrics.parquet"
ADAPTER = "adapter"
MODEL = "model"
CHECKPOINTS = "checkpoints"
OWN_ANSWERS = "own-answers.json"
TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja"),
)


class StartAdapter(Settings):
    """The adapter that training continues from, and that preference training is measured against."""

    folder: Path
    name: str = Field(description="how the registry calls it, such as pointsav/engineering@v3")
    digest: str


class TrainingSpec(Settings):
    """One training, complete: nothing else decides about its result."""

    recipe: Recipe
    recipe_digest: str
    dataset: Path = Field(description="folder with train/ and heldout/, readable by Hugging Face datasets")
    dataset_digest: str
    base_model: Path = Field(description="folder with the base model's safetensors and tokenizer")
    start_adapter: StartAdapter | None = None
    output: Path
    budget_seconds: float = Field(gt=0)
    device: Literal["cuda", "cpu"]
    machine: str = Field("", description="the deployment's name of the device: figures of another one say nothing")
    processes: int = Field(1, ge=1, description="that train together, one on each card; the result is the same")
    fsdp: bool = Field(False, description="each process holds a part of the model, not the whole")
    seed: int | None = Field(None, description="default: the recipe's")
    tracking: tuple[Tracker, ...] = Field((), description="experiment trackers beside TensorBoard")
    tracking_folder: Path | None = Field(None, description="where they keep their files; default: beside the output")
    resume: bool = Field(True, description="go on from the newest checkpoint of the same training, if there is one")

    @property
    def identity(self) -> str:
        """What must be equal for a checkpoint, or a finished result, to count as this training's."""
        return digest_of(
            {
                "recipe": self.recipe_digest,
                "dataset": self.dataset_digest,
                "start_adapter": None if self.start_adapter is None else self.start_adapter.digest,
                "seed": self.effective_seed,
            }
        )

    @property
    def effective_seed(self) -> int:
        return self.recipe.optimisation.seed if self.seed is None else self.seed

    @property
    def run_name(self) -> str:
        """What trackers call it: no two trainings are called alike, or a tracker makes one run of them."""
        night, kind = self.output.parent, self.output.name
        places = night.name if kind == "training" else f"{night.parent.name} {night.name} {kind}"
        return f"{self.recipe.tenant}/{self.recipe.role} {places} seed {self.effective_seed}"

    @property
    def tracked_in(self) -> Path:
        """Where trackers keep their files."""
        return self.tracking_folder or self.output / "tracking"

    @property
    def checkpoints(self) -> Path:
        return self.output / CHECKPOINTS

    @classmethod
    def read(cls, path: Path) -> "TrainingSpec":
        """Raises InputError, one line, for a file that is not a specification."""
        return validate(cls, read_json(path), str(path))


class TrainingResult(Settings, extra="ignore"):
    """`summary.json`: how a training ended. Written last and in one step, so a reader sees a whole result.

    `finished`: all steps done. `partial`: the budget ended first; the adapter is usable and the training can go on.
    `diverged`: stopped, with the reason in `verdict`; there is no adapter.
    """

    status: Literal["finished", "partial", "diverged"]
    verdict: str | None = None
    identity: str
    recipe: str
    recipe_digest: str
    dataset_digest: str
    base_model: str
    base_revision: str
    loader: str = Field("AutoModelForCausalLM", description="class of transformers that loads the base")
    method: str
    objective: str
    start_adapter: str | None = None
    reference: str | None = Field(None, description="preference training: what it was measured against")
    weights: str | None = Field(None, description="folder beside this file: adapter, or model for full training")
    steps: int
    planned_steps: int
    epochs: float
    rows: int
    left_out_rows: int = Field(description="rows that hold no answer within the maximum length")
    full_rows: int = Field(description="rows that fill the maximum length: nearly all of them lost their end to it")
    tokens: int = Field(description="tokens that training read")
    loss_first: float | None
    loss_last: float | None
    heldout_loss_first: float | None = None
    heldout_loss_last: float | None = None
    answered_right: tuple[tuple[int, float], ...] = Field(
        (), description="step, and the share of the questions on the way that were answered rightly after it"
    )
    heldout_margin_first: float | None = Field(None, description="pairs: reward of the chosen less the rejected one's")
    heldout_margin_last: float | None = None
    trainable_parameters: int
    changed_modules: int = Field(description="adapter modules whose B matrix is no longer zero")
    batch_size: int
    gradient_accumulation: int
    processes: int = Field(1, description="that trained together; batch size and accumulation are those of each")
    fsdp: bool = False
    effective_batch: int
    warmup_steps: int
    seconds: float = Field(description="all in all, with loading and saving")
    training_seconds: float = Field(description="of the steps alone")
    tokens_per_second: float
    peak_memory_gib: float
    resumed_from: int | None = Field(None, description="step of the checkpoint that training went on from")
    seed: int
    device: str
    hardware: str
    chat_template_sha256: str
    tokenizer: dict[str, str] = Field({}, description="SHA-256 of each file of the base's tokenizer")
    versions: dict[str, str]
    notes: tuple[str, ...] = ()


def finished(spec: TrainingSpec) -> TrainingResult | None:
    """The result that the same training left in its output folder, or None if it has to run or to resume."""
    result = read_result(spec.output)
    if result is None or result.identity != spec.identity or result.status == "partial":
        return None
    if result.weights is not None and not (spec.output / result.weights).is_dir():
        # Cleaned away since.
        return None
    return result


def spec_in(record: Mapping[str, Any]) -> TrainingSpec:
    """What a training was started with, by its `run.json`. What an earlier release could ask for and this one cannot is
    left out: then the recipe's digest is another one. Raises KeyError or ValueError if there is none."""
    return TrainingSpec.model_validate(record["spec"], extra="ignore")


def read_result(output: Path) -> TrainingResult | None:
    """The result in an output folder; None if no training ended there. Raises PermanentError if it is damaged."""
    path = output / SUMMARY
    if not path.is_file():
        return None
    try:
        return validate(TrainingResult, read_json(path), str(path))
    except InputError as error:
        raise PermanentError(f"{error}: delete the folder to train again") from None


def check_result(spec: TrainingSpec) -> TrainingResult:
    """The result that a trainer left for this specification, checked. Raises PermanentError for a broken contract."""
    result = read_result(spec.output)
    if result is None:
        raise PermanentError(f"the training ended without {spec.output / SUMMARY}: what it left is not trusted")
    if result.identity != spec.identity:
        raise PermanentError(f"{spec.output / SUMMARY} belongs to another recipe or dataset: delete the folder")
    needed = [spec.output / METRICS]
    if result.weights == ADAPTER:
        needed += [spec.output / ADAPTER / name for name in ("adapter_model.safetensors", "adapter_config.json")]
    elif result.weights is not None:
        needed.append(spec.output / result.weights / "config.json")
    missing = [str(path) for path in needed if not path.is_file()]
    if missing:
        raise PermanentError(f"the training reported {result.status} but left no {', '.join(missing)}")
    return result

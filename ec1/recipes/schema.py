"""Recipes: versioned YAML that says how one adapter is trained, typed and checked before anything is loaded.

Belongs here: the types, and the checks that need no data. Does not: finding and resolving files (`resolution.py`),
whether a recipe fits the data and the machine (`ec1.training.plan`), and the training (`ec1.training.trainer`).

This module is imported when Dagster loads its definitions: it stays light.
"""

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from ec1.corpus.options import DataOptions
from ec1.corpus.row_kinds import ANSWERS, TEXTS, RowKindName
from ec1.files import digest_of
from ec1.recipes.evaluation import EvaluationOptions, why_unchecked
from ec1.recipes.objectives import OBJECTIVES, ObjectiveName, those
from ec1.rewards import checks
from ec1.rewards.checks import CheckName
from ec1.settings import Name, Settings

Method = Literal["full", "lora", "qlora"]
DpoLoss = Literal[
    "sigmoid", "sigmoid_norm", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot",
    "aot_unpaired", "apo_zero", "apo_down", "discopop",
]  # fmt: skip

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

RECIPE_NAME = re.compile(r"[a-z0-9-]{1,64}(/[a-z0-9-]{1,64})*")
_MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


class BaseModelRef(Settings):
    """The model that is trained; the same id is trained, referred to and served."""

    id: str = Field(
        description="model id on the hub, owner/name; the deployment's `models` says where its files come from"
    )
    revision: str = Field("main", min_length=1, description="of the model: branch, tag or commit")
    license: str | None = Field(
        None, description="of the model, for the model card, such as apache-2.0; set it beside the id"
    )

    @field_validator("id")
    @classmethod
    def _an_id(cls, value: str) -> str:
        if not _MODEL_ID.fullmatch(value):
            raise ValueError(f"{value!r} is not a model id such as owner/name; a folder belongs in the deployment")
        return value


class LoraOptions(Settings):
    """The adapter's shape (https://arxiv.org/abs/2106.09685)."""

    r: int = Field(16, ge=1, le=512, description="rank; typically 8–64")
    alpha: float = Field(32, gt=0, description="updates are scaled by alpha / r; typically r to 2 × r")
    dropout: float = Field(0.05, ge=0, lt=1, description="typically 0–0.1")
    target_modules: Literal["all-linear"] | tuple[str, ...] = Field(
        PROJECTIONS, description="layers that get an adapter, by the last part of their name; or all-linear"
    )
    modules_to_save: tuple[str, ...] = Field(
        (),
        description="layers that are trained whole, beside the adapter; for kind pretraining: vLLM cannot serve them",
    )
    rank_stabilised: bool = Field(False, description="scale by alpha / sqrt(r); for r of 64 and more")
    upper_share: float | None = Field(
        None, gt=0, lt=1, description="share of the layers that get an adapter, from the top; default: all of them"
    )
    dora: bool = Field(False, description="weight-decomposed; vLLM cannot serve it: for kind experiment")

    @field_validator("target_modules")
    @classmethod
    def _trainable(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(value, str):
            return value
        if not value:
            raise ValueError("names no layer: name some, or write all-linear")
        # TRL computes the loss from the head's weight itself, so an adapter on it would never be trained.
        if "lm_head" in value:
            raise ValueError("lm_head cannot carry an adapter: leave it out")
        if len(set(value)) != len(value):
            raise ValueError("a module is named twice")
        return value


class QuantizationOptions(Settings):
    """How the frozen base is held in memory (https://arxiv.org/abs/2305.14314)."""

    type: Literal["nf4"] = Field("nf4", description="4-bit NormalFloat")
    double: bool = Field(True, description="quantise the quantisation constants too")
    compute_dtype: Literal["bfloat16"] = Field("bfloat16", description="type in which layers compute")


class OptimisationOptions(Settings):
    """How the weights are optimised."""

    epochs: float = Field(gt=0, le=100, description="passes over the training rows; typically 1–4")
    max_steps: int | None = Field(None, ge=1, description="ends after so many steps, if the epochs have more")
    learning_rate: float = Field(gt=0, lt=1, description="LoRA: typically 5e-5–5e-4; full: 5e-6–5e-5")
    batch_size: int = Field(ge=1, description="rows that the device holds at once; typically 1–16")
    gradient_accumulation: int = Field(ge=1, description="batches per optimiser step; typically 1–32")
    warmup_share: float | None = Field(None, ge=0, lt=1, description="share of all steps; typically 0.03–0.1")
    warmup_steps: int | None = Field(None, ge=0, description="instead of warmup_share")
    scheduler: Literal["linear", "cosine", "constant", "constant_with_warmup"] = Field(
        "linear", description="how the learning rate falls after the warm-up"
    )
    min_rate_share: float | None = Field(
        None, gt=0, lt=1, description="scheduler cosine: share of the rate that it ends with; typically 0.1"
    )
    optimizer: Literal["adamw_torch", "adamw_torch_fused", "paged_adamw_8bit"] = Field(
        "adamw_torch", description="paged_adamw_8bit needs a GPU and takes a quarter of the memory for its state"
    )
    weight_decay: float = Field(0.0, ge=0, lt=1, description="typically 0–0.1")
    max_grad_norm: float = Field(1.0, gt=0, description="longer gradients are clipped; typically 0.3–1")
    liger_kernels: bool | None = Field(
        None,
        description="fused Triton kernels (GPU, liger-kernel); default: where that is installed, for an adapter that "
        "learns answers",
    )
    neftune_alpha: float | None = Field(
        None, gt=0, description="noise on the embeddings (NEFTune, sft only); typically 5–15"
    )
    seed: int = Field(17, ge=0, lt=2**32, description="of initialisation, order and dropout")
    gradient_checkpointing: bool = Field(True, description="recompute activations: less memory, a third more time")
    group_by_length: bool = Field(True, description="rows of similar length share a batch: less padding")
    packing: bool = Field(
        False,
        description="sft: short rows share a sequence of data.max_length, hidden from one another; refused where the "
        "model's attention does not hide them",
    )
    evaluation_steps: int | None = Field(
        None,
        ge=1,
        description="steps between two measurements of the held-out loss; default: not measured during training",
    )
    early_stopping_patience: int | None = Field(
        None,
        ge=1,
        description="ends after so many measurements without a lower loss, and keeps the best weights; needs "
        "evaluation_steps. A tenth of training's sources is set aside for it; typically 2–5",
    )
    checkpoint_minutes: float = Field(10, gt=0, description="minutes between checkpoints; typically 5–30")
    keep_checkpoints: int = Field(2, ge=1, description="newest checkpoints that are kept during a training")
    keep_steps: int | None = Field(
        None,
        ge=1,
        description="steps between two copies of the adapter that are kept, with its answers to three held-out prompts "
        "to be read in Studio; lora and qlora, some MB each. evaluation.task_steps counts right answers; default: none",
    )
    divergence_factor: float = Field(
        3.0, gt=1, description="stop if the loss exceeds its running median this many times; typically 2–5"
    )

    @property
    def effective_batch(self) -> int:
        """Rows in one optimiser step."""
        return self.batch_size * self.gradient_accumulation

    @model_validator(mode="after")
    def _one_warmup(self) -> "OptimisationOptions":
        if self.warmup_share is not None and self.warmup_steps is not None:
            raise ValueError("warmup_share and warmup_steps are both set: set one of them to null")
        return self

    @model_validator(mode="after")
    def _goes_together(self) -> "OptimisationOptions":
        if self.min_rate_share is not None and self.scheduler != "cosine":
            raise ValueError(f"min_rate_share is for scheduler cosine, not {self.scheduler}")
        if self.early_stopping_patience is not None and self.evaluation_steps is None:
            raise ValueError("early_stopping_patience needs evaluation_steps: when to measure")
        return self


class DpoOptions(Settings):
    """The reference is the role's version in use if there is one, else the base model."""

    beta: float = Field(gt=0, le=10, description="how strongly the model is held to the reference; typically 0.1–0.5")
    loss: DpoLoss = Field("sigmoid", description="how a difference counts (docs/recipes.md)")
    label_smoothing: float | None = Field(
        None,
        gt=0,
        lt=0.5,
        description="share of pairs whose sides may be exchanged; robust: typically 0.1, exo_pair: 1e-3, aot: 0–0.1",
    )
    sft_weight: float = Field(
        0.0,
        ge=0,
        le=10,
        description="weight of the chosen answer's own likelihood; typically 0–1 (https://arxiv.org/abs/2404.19733)",
    )

    @model_validator(mode="after")
    def _smoothing_fits(self) -> "DpoOptions":
        smooths = self.loss in ("robust", "exo_pair", "aot", "aot_unpaired")
        if self.label_smoothing is not None and not smooths:
            raise ValueError(f"label_smoothing has no effect with loss {self.loss}: set it to null")
        if self.label_smoothing is None and self.loss in ("robust", "exo_pair"):
            raise ValueError(
                f"loss {self.loss} needs label_smoothing: about {0.1 if self.loss == 'robust' else 1e-3:g}"
            )
        return self


class OrpoOptions(Settings):
    """No reference: the chosen answer is learnt, and its odds over the rejected one (https://arxiv.org/abs/2403.07691)."""

    beta: float = Field(gt=0, le=10, description="weight of the odds; typically 0.1–0.5")


class SimpoOptions(Settings):
    """No reference: mean log-probabilities are compared (https://arxiv.org/abs/2405.14734)."""

    beta: float = Field(gt=0, le=100, description="how much a difference counts; typically 2–10")
    gamma: float = Field(
        ge=0, le=100, description="margin by which the chosen answer should win; typically 0.2–0.5 × beta"
    )


class OwnAnswersOptions(Settings):
    """Answers that the model writes itself, held against the checks of tuples of kind `task`."""

    max_tokens: int = Field(ge=1, le=8192, description="tokens of an answer at most; longer ones are cut")
    warm_start: Name | None = Field(
        None, description="role of the tenant whose version in use it starts from while its own role has none"
    )


class RftOptions(OwnAnswersOptions):
    """The model answers each task several times before the first step; right answers are learnt as given ones are
    (rejection sampling: https://arxiv.org/abs/2308.01825)."""

    answers: int = Field(8, ge=1, le=256, description="to each task; typically 4–64")
    temperature: float = Field(1.0, gt=0, le=2, description="of these answers; typically 0.7–1.2")
    kept: int = Field(4, ge=1, le=64, description="different right answers to a task that are learnt, at most")


class GrpoOptions(OwnAnswersOptions):
    """Answers of the model's own, scored by the checks of tuples of kind `task` (https://arxiv.org/abs/2402.03300). A
    step takes `batch_size` × `gradient_accumulation` prompts."""

    group: int = Field(
        8, ge=2, le=128, description="answers to each prompt, which are compared with one another; typically 4–16"
    )
    temperature: float = Field(
        1.0, gt=0, le=2, description="of these answers; all alike teach nothing: a small model needs about 1.3"
    )
    beta: float = Field(0.0, ge=0, le=1, description="how strongly it is held to its start; typically 0–0.04")
    formed_reward: float = Field(
        0.1, ge=0, lt=1, description="what a wrong but well-formed answer earns of a right one's 1; typically 0–0.2"
    )
    weights: dict[CheckName, Annotated[float, Field(gt=0)]] = Field(
        {}, description="of kinds of check in a tuple that has several; default: 1 each"
    )


class HardwareOptions(Settings):
    """What the training needs."""

    device: Literal["cuda", "cpu", "any"] = Field(
        "any", description="what the recipe is written for; refused on another device"
    )
    memory_gib: float | None = Field(None, gt=0, description="the most that training may use; default: all of the card")
    attention: Literal["sdpa", "eager", "flash_attention_2"] = Field(
        "sdpa",
        description="implementation of attention; one without sdpa takes eager; flash_attention_2 must be installed",
    )


class Recipe(Settings):
    """One resolved recipe."""

    name: str = Field(description="if it is not set: the file's path below its folder, without `.yaml`")
    version: int = Field(ge=1, description="of the recipe; raise it when the recipe changes")
    tenant: Name = Field(description="whose adapter")
    role: Name = Field(description="what for; also names the bucket, `<role>-<tenant>`")
    kind: Literal["adapter", "extraction", "pretraining", "experiment"] = Field(
        "adapter",
        description="extraction: learns from chunks and what is named in them, its versions serve phase 1; "
        "pretraining: continued pre-training; experiment: as adapter, but only for the log book. Both are started with "
        "`ec1 train` or `ec1 sweep` only",
    )
    description: str = Field("", description="one line for people")
    base_model: BaseModelRef
    method: Method = Field(description="which weights are trained: all, or an adapter on a 16- or 4-bit base")
    objective: ObjectiveName = Field(description="what is learnt (docs/recipes.md)")
    lora: LoraOptions | None = None
    quantization: QuantizationOptions | None = None
    optimisation: OptimisationOptions
    dpo: DpoOptions | None = None
    orpo: OrpoOptions | None = None
    simpo: SimpoOptions | None = None
    grpo: GrpoOptions | None = None
    rft: RftOptions | None = None
    data: DataOptions
    hardware: HardwareOptions = HardwareOptions()
    evaluation: EvaluationOptions = EvaluationOptions()

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not RECIPE_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a recipe name: use a-z, 0-9, '-' and '/'")
        return value

    @model_validator(mode="after")
    def _sections_fit(self) -> "Recipe":
        problems, objective = [], OBJECTIVES[self.objective]
        imitating = those(lambda each: each.imitates)
        if self.method == "qlora" and self.quantization is None:
            problems.append("method qlora needs a quantization section")
        if self.method != "full" and self.lora is None:
            problems.append(f"method {self.method} needs a lora section")
        if objective.section is not None and getattr(self, objective.section) is None:
            problems.append(f"objective {self.objective} needs the section {objective.section} with {objective.values}")
        if self.kind == "pretraining" and not objective.imitates:
            problems.append(f"kind pretraining learns from every token: objective is {imitating}, not {self.objective}")
        if objective.rows is TEXTS and (self.kind != "pretraining" or self.data.system_prompt is not None):
            problems.append(
                f"objective {self.objective} learns texts that answer nothing: kind pretraining, and no "
                "data.system_prompt"
            )
        if self.kind == "extraction" and (objective.rows is not ANSWERS or self.method == "full"):
            answering = those(lambda each: each.rows is ANSWERS)
            problems.append(
                f"kind extraction trains an adapter on single answers: objective {answering}, method lora or qlora"
            )
        if self.lora is not None and self.lora.dora and (self.method == "qlora" or self.nightly):
            problems.append(
                "lora.dora cannot be served by vLLM; switch it off, or use kind experiment on a 16-bit base"
            )
        if self.lora is not None and self.lora.modules_to_save and self.nightly:
            problems.append(
                "lora.modules_to_save cannot be served by vLLM: leave it out, or use kind pretraining, which `ec1 "
                "train` starts and no night publishes"
            )
        if self.kind == "pretraining" and self.evaluation.task_steps is not None:
            problems.append("evaluation.task_steps counts right answers, and kind pretraining has no questions: null")
        if self.role in self.data.mix:
            problems.append(f"data.mix names {self.role}, the recipe's own role: it is trained on anyway")
        if not objective.imitates and self.optimisation.packing:
            problems.append(f"optimisation.packing is for objective {imitating} only: pairs are compared row by row")
        if not objective.imitates and self.optimisation.neftune_alpha is not None:
            problems.append(
                f"optimisation.neftune_alpha is for objective {imitating} only: what is compared would be noisy too"
            )
        if self.optimisation.liger_kernels and not (self.hardware.device == "cuda" and objective.fuses):
            fusing = those(lambda each: each.fuses)
            problems.append(f"optimisation.liger_kernels needs hardware.device cuda and objective {fusing}")
        if objective.rolls_out and self.optimisation.evaluation_steps is not None:
            problems.append(
                f"optimisation.evaluation_steps measures a held-out loss, and objective {self.objective} has none: null"
            )
        if objective.rolls_out and self.method == "full":
            problems.append(f"objective {self.objective} starts from a version, an adapter: method lora or qlora")
        if self.optimisation.keep_steps is not None and self.method == "full":
            problems.append("optimisation.keep_steps keeps copies of an adapter: method lora or qlora")
        if self.hardware.device == "cpu" and self.optimisation.optimizer == "paged_adamw_8bit":
            problems.append("optimisation.optimizer paged_adamw_8bit needs hardware.device cuda")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def sets_aside(self) -> bool:
        """Whether a part of training's own sources is not trained on, because something is measured on it meanwhile."""
        return self.optimisation.early_stopping_patience is not None or self.evaluation.task_steps is not None

    @property
    def rows(self) -> RowKindName:
        """Which rule of the corpus makes its rows: single answers, or pairs of a chosen and a rejected one."""
        return OBJECTIVES[self.objective].rows.name

    @property
    def own_answers(self) -> OwnAnswersOptions | None:
        """How the model writes answers to learn from; None of an objective that reads them."""
        objective = OBJECTIVES[self.objective]
        return getattr(self, objective.section) if objective.rolls_out and objective.section else None

    @property
    def answers(self) -> int:
        """How many answers the model itself writes to each row of a step; 1 where it reads them."""
        return self.own_answers.group if isinstance(self.own_answers, GrpoOptions) else 1

    @property
    def executes(self) -> bool:
        """Whether programs read or are what its models write."""
        return self.evaluation.runs_programs or OBJECTIVES[self.objective].rolls_out

    def why_unchecked(self) -> str | None:
        """Why this machine cannot check what the recipe will have answered, or None."""
        if (why := why_unchecked(self.evaluation)) is not None:
            return why
        why = checks.why_unchecked({"python"}) if OBJECTIVES[self.objective].rolls_out else None
        return None if why is None else f"objective {self.objective}: answers are executed in a sandbox: {why}"

    @property
    def nightly(self) -> bool:
        """Whether nights run it: they publish adapters. The rest is started with `ec1 train` only."""
        return self.kind not in ("pretraining", "experiment") and self.method != "full"

    def digest(self) -> str:
        """SHA-256 of everything that affects the training; a change of the description or licence does not count, nor
        does what is kept on the way."""
        values = self.model_dump(
            mode="json",
            exclude={"description": True, "base_model": {"license": True}, "optimisation": {"keep_steps": True}},
            exclude_none=True,
        )
        return digest_of(values)

"""Recipes: versioned YAML that says how one adapter is trained, typed and checked before anything is loaded.

Belongs here: the types, the resolution of `extends`, the origin of each value, and the checks that need no data. Does
not: whether a recipe fits the data and the machine (`plan.py`), and the training (`trainer.py`).

This module is imported when Dagster loads its definitions: it stays light.
"""

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node

from ec1.adapters.options import EvaluationOptions
from ec1.corpus.dataset import DataOptions
from ec1.deployment import Name, Settings
from ec1.errors import InputError
from ec1.files import digest_of
from ec1.strict_yaml import load_mapping

Method = Literal["full", "lora", "qlora"]
Objective = Literal["sft", "dpo", "orpo", "simpo"]

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

_RECIPE_NAME = re.compile(r"[a-z0-9-]{1,64}(/[a-z0-9-]{1,64})*")
_MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
# They describe one file, so a recipe that extends it does not inherit them.
_OWN_KEYS = ("name", "version", "description", "abstract", "extends")


class BaseModelRef(Settings):
    """The model that is trained; the same id is trained, referred to and served."""

    id: str = Field(description="model id on the hub, owner/name; where its files come from is the deployment's matter")
    revision: str = Field("main", min_length=1)

    @field_validator("id")
    @classmethod
    def _an_id(cls, value: str) -> str:
        if not _MODEL_ID.fullmatch(value):
            raise ValueError(f"{value!r} is not a model id such as owner/name; a folder belongs in the deployment")
        return value


class LoraOptions(Settings):
    r: int = Field(16, ge=1, le=512, description="rank")
    alpha: float = Field(32, gt=0)
    dropout: float = Field(0.05, ge=0, lt=1)
    target_modules: tuple[str, ...] = Field(PROJECTIONS, min_length=1)
    rank_stabilised: bool = Field(False, description="scale by alpha / sqrt(r)")
    dora: bool = Field(False, description="weight-decomposed; cannot be served by vLLM as it is")

    @field_validator("target_modules")
    @classmethod
    def _trainable(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        # TRL computes the loss from the head's weight itself, so an adapter on it would never be trained.
        if "lm_head" in value:
            raise ValueError("lm_head cannot carry an adapter: leave it out")
        if len(set(value)) != len(value):
            raise ValueError("a module is named twice")
        return value


class QuantizationOptions(Settings):
    """How the frozen base is held in memory (https://arxiv.org/abs/2305.14314)."""

    type: Literal["nf4"] = "nf4"
    double: bool = Field(True, description="quantise the quantisation constants too")
    compute_dtype: Literal["bfloat16"] = "bfloat16"


class OptimisationOptions(Settings):
    epochs: float = Field(gt=0, le=100)
    learning_rate: float = Field(gt=0, lt=1)
    batch_size: int = Field(ge=1, description="rows that the device holds at once")
    gradient_accumulation: int = Field(ge=1, description="batches in one optimiser step")
    warmup_share: float | None = Field(None, ge=0, lt=1, description="of all steps")
    warmup_steps: int | None = Field(None, ge=0)
    scheduler: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear"
    optimizer: Literal["adamw_torch", "adamw_torch_fused", "paged_adamw_8bit"] = "adamw_torch"
    weight_decay: float = Field(0.0, ge=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)
    liger_kernels: bool = Field(False, description="fused Triton kernels (GPU, liger-kernel)")
    neftune_alpha: float | None = Field(None, gt=0, description="noise on the embeddings (NEFTune)")
    seed: int = Field(17, ge=0, lt=2**32)
    gradient_checkpointing: bool = Field(True, description="recompute activations: less memory, a third more time")
    group_by_length: bool = Field(True, description="rows of like length share a batch: less padding")
    evaluation_steps: int | None = Field(None, ge=1, description="held-out loss every so many steps")
    checkpoint_minutes: float = Field(10, gt=0)
    keep_checkpoints: int = Field(2, ge=1)
    divergence_factor: float = Field(3.0, gt=1, description="stop when loss exceeds its running median this many times")

    @property
    def effective_batch(self) -> int:
        """Rows in one optimiser step."""
        return self.batch_size * self.gradient_accumulation

    @model_validator(mode="after")
    def _one_warmup(self) -> "OptimisationOptions":
        if self.warmup_share is not None and self.warmup_steps is not None:
            raise ValueError("warmup_share and warmup_steps are both set: set one of them to null")
        return self


class DpoOptions(Settings):
    """The reference is the role's accepted SFT adapter if there is one, else the base model."""

    beta: float = Field(gt=0, le=10, description="how strongly the model is held to the reference")


class OrpoOptions(Settings):
    """No reference: the chosen answer is learnt, and its odds over the rejected one (https://arxiv.org/abs/2403.07691)."""

    beta: float = Field(gt=0, le=10, description="weight of the odds")


class SimpoOptions(Settings):
    """No reference: mean log-probabilities are compared (https://arxiv.org/abs/2405.14734)."""

    beta: float = Field(gt=0, le=100, description="how much a difference counts")
    gamma: float = Field(ge=0, le=100, description="margin by which the chosen answer should win")


class HardwareOptions(Settings):
    device: Literal["cuda", "cpu", "any"] = "any"
    memory_gib: float | None = Field(None, gt=0, description="the most that training may use; default all of the card")
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"


class Recipe(Settings):
    """One resolved recipe."""

    name: str
    version: int = Field(ge=1)
    tenant: Name
    role: Name
    kind: Literal["adapter", "pretraining"] = Field(
        "adapter", description="pretraining: continued pre-training, started by a person only"
    )
    description: str = ""
    base_model: BaseModelRef
    method: Method
    objective: Objective
    lora: LoraOptions | None = None
    quantization: QuantizationOptions | None = None
    optimisation: OptimisationOptions
    dpo: DpoOptions | None = None
    orpo: OrpoOptions | None = None
    simpo: SimpoOptions | None = None
    data: DataOptions
    hardware: HardwareOptions = HardwareOptions()
    evaluation: EvaluationOptions = EvaluationOptions()

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        if not _RECIPE_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a recipe name: use a-z, 0-9, '-' and '/'")
        return value

    @model_validator(mode="after")
    def _sections_fit(self) -> "Recipe":
        problems = []
        if self.method == "qlora" and self.quantization is None:
            problems.append("method qlora needs a quantization section")
        if self.method != "full" and self.lora is None:
            problems.append(f"method {self.method} needs a lora section")
        if self.objective != "sft" and getattr(self, self.objective) is None:
            values = "beta and gamma" if self.objective == "simpo" else "beta"
            problems.append(f"objective {self.objective} needs the section {self.objective} with {values}")
        if self.kind == "pretraining" and self.objective != "sft":
            problems.append(f"kind pretraining learns from every token: objective is sft, not {self.objective}")
        if self.lora is not None and self.lora.dora and self.method == "qlora":
            problems.append("lora.dora cannot be served by vLLM; switch it off")
        if self.objective != "sft" and self.optimisation.neftune_alpha is not None:
            problems.append("optimisation.neftune_alpha is for objective sft only: what is compared would be noisy too")
        if self.optimisation.liger_kernels and (self.hardware.device != "cuda" or self.objective not in ("sft", "dpo")):
            problems.append("optimisation.liger_kernels needs hardware.device cuda and objective sft or dpo")
        if self.hardware.device == "cpu" and self.optimisation.optimizer == "paged_adamw_8bit":
            problems.append("optimisation.optimizer paged_adamw_8bit needs hardware.device cuda")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def rows(self) -> Literal["sft", "dpo"]:
        """Which rule of the corpus makes its rows: single answers, or pairs of a chosen and a rejected one."""
        return "sft" if self.objective == "sft" else "dpo"

    @property
    def nightly(self) -> bool:
        """Whether nights run it: they publish adapters. The rest is started by a person, with `ec1 train`."""
        return self.kind == "adapter" and self.method != "full"

    def digest(self) -> str:
        """SHA-256 of everything that bears on the training; a new wording of the description is no change."""
        return digest_of(self.model_dump(mode="json", exclude={"description"}, exclude_none=True))


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe with where each of its values comes from.

    `origins` maps a dotted key to `file:line`, or to `default` where no file sets it.
    """

    recipe: Recipe
    origins: dict[str, str]
    digest: str
    path: Path
    chain: tuple[Path, ...] = ()
    """The files it rests on, its own first, the most basic last."""


@dataclass(frozen=True)
class Finding:
    """One thing that `lint` has to say. A warning does not stop a night, an error does."""

    level: Literal["error", "warning"]
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.level}: {self.message}"


@dataclass(frozen=True)
class _File:
    path: Path
    values: dict[str, Any]
    lines: dict[str, int]


def load_recipe(path: Path, search: Sequence[Path]) -> ResolvedRecipe:
    """Resolve one recipe file; bases named by `extends` are looked up in the folders of `search`, in their order.

    Raises InputError, one line: missing base, cycle, unknown key, wrong type, or sections that do not fit together.
    """
    resolved, findings = _resolve(path, search, {})
    if resolved is None:
        raise InputError("; ".join(f"{finding.where}: {finding.message}" for finding in findings))
    return resolved


def find_recipe(recipe: str, search: Sequence[Path]) -> ResolvedRecipe:
    """Resolve a recipe that a person named: a file, or a name such as pointsav/engineering. Raises InputError."""
    named = [folder / f"{recipe}.yaml" for folder in search]
    path = next((path for path in [Path(recipe), *named] if path.is_file()), None)
    if path is None:
        raise InputError(f"there is no recipe {recipe!r}: give a file, or a name below {', '.join(map(str, search))}")
    return load_recipe(path, search)


def discover(folders: Sequence[Path], search: Sequence[Path]) -> list[ResolvedRecipe]:
    """Every concrete recipe below `folders`, ordered by tenant and role; abstract ones are only bases.

    Raises InputError for a broken recipe, a folder that is not there, and two recipes for one tenant and role.
    """
    cache: dict[Path, _File] = {}
    found: dict[tuple[str, str], ResolvedRecipe] = {}
    for path in _recipe_files(folders):
        if _read(path, cache).values.get("abstract") is True:
            continue
        resolved, findings = _resolve(path, search, cache)
        if resolved is None:
            raise InputError("; ".join(f"{finding.where}: {finding.message}" for finding in findings))
        key = (resolved.recipe.tenant, resolved.recipe.role)
        if key in found:
            raise InputError(f"{path} and {found[key].path} are both recipes for {'/'.join(key)}: keep one of them")
        found[key] = resolved
    return [found[key] for key in sorted(found)]


def lint(folders: Sequence[Path], search: Sequence[Path]) -> list[Finding]:
    """Check every recipe file below `folders` (folders or files), abstract ones as far as they go."""
    cache: dict[Path, _File] = {}
    findings: list[Finding] = []
    owners: dict[tuple[str, str], Path] = {}
    for path in _recipe_files(folders):
        try:
            abstract = _read(path, cache).values.get("abstract") is True
            resolved, problems = _resolve(path, search, cache, placeholders=abstract)
        except InputError as error:
            findings.append(Finding("error", str(path), str(error).removeprefix(f"{path}: ")))
            continue
        findings.extend(problems)
        if resolved is None:
            continue
        findings.extend(_advice(resolved))
        key = (resolved.recipe.tenant, resolved.recipe.role)
        if not abstract and key in owners:
            findings.append(Finding("error", str(path), f"{'/'.join(key)} has a recipe already: {owners[key]}"))
        elif not abstract:
            owners[key] = path
    return findings


def show(resolved: ResolvedRecipe) -> str:
    """The resolved recipe as YAML, each value with its origin as a comment. Parses back to the same recipe."""
    lines = _show(resolved.recipe.model_dump(mode="json"), resolved.origins, "", "")
    width = min(64, max(len(text) for text, _ in lines))
    body = "\n".join(f"{text:<{width}}  # {origin}" if origin else text for text, origin in lines)
    return f"# {resolved.path}, digest {resolved.digest}\n{body}\n"


def _recipe_files(folders: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for folder in folders:
        if folder.is_file():
            files.append(folder)
        elif folder.is_dir():
            files.extend(sorted(folder.rglob("*.yaml")))
        else:
            raise InputError(f"{folder} is no recipe and no folder of recipes")
    return files


def _read(path: Path, cache: dict[Path, _File]) -> _File:
    path = path.resolve()
    if path not in cache:
        values = load_mapping(path)
        node = YAML(typ="safe", pure=True).compose(path.read_text(encoding="utf-8"))
        cache[path] = _File(path, values, _lines(node, ""))
    return cache[path]


def _lines(node: Node | None, prefix: str) -> dict[str, int]:
    found: dict[str, int] = {}
    if isinstance(node, MappingNode):
        for key, value in node.value:
            dotted = f"{prefix}{key.value}"
            found[dotted] = key.start_mark.line + 1
            found |= _lines(value, f"{dotted}.")
    return found


def _chain(path: Path, search: Sequence[Path], cache: dict[Path, _File]) -> list[_File]:
    """The file and its bases, the most basic last. Raises InputError for a missing base and for a cycle."""
    chain = [_read(path, cache)]
    while (base := chain[-1].values.get("extends")) is not None:
        where = f"{_shown(chain[-1].path)}:{chain[-1].lines['extends']}"
        if not isinstance(base, str) or not _RECIPE_NAME.fullmatch(base):
            raise InputError(f"{where}: extends: {base!r} is not a recipe name such as pointsav/engineering")
        found = next((file for folder in search if (file := _inside(folder, base)) is not None), None)
        if found is None:
            folders = ", ".join(_shown(folder) for folder in search) or "(no folder)"
            raise InputError(f"{where}: extends: there is no recipe {base!r} in {folders}")
        chain.append(_read(found, cache))
        if chain[-1].path in [file.path for file in chain[:-1]]:
            circle = " -> ".join(_shown(file.path) for file in chain)
            raise InputError(f"{where}: extends: recipes extend each other in a circle: {circle}")
    return chain


def _inside(folder: Path, name: str) -> Path | None:
    """The file of a recipe name below `folder`, unless a symbolic link leads out of it."""
    path = (folder / f"{name}.yaml").resolve()
    return path if path.is_file() and path.is_relative_to(folder.resolve()) else None


def _shown(path: Path) -> str:
    """A path as people refer to it: relative to where they stand, if it lies below."""
    path, here = path.resolve(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _resolve(
    path: Path, search: Sequence[Path], cache: dict[Path, _File], *, placeholders: bool = False
) -> tuple[ResolvedRecipe | None, list[Finding]]:
    chain = _chain(path, search, cache)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for file in reversed(chain):
        own = {key: value for key, value in file.values.items() if file is chain[0] or key not in _OWN_KEYS}
        _merge(values, own, origins, file, "")
    values.pop("extends", None)
    abstract = values.pop("abstract", False)
    if abstract not in (True, False):
        return None, [Finding("error", _shown(path), f"abstract: use true or false, not {abstract!r}")]
    if placeholders:
        # An abstract recipe is checked with these in place of what only a concrete one has.
        values = {"version": 1, "tenant": "any", "role": "any", **values}
    elif abstract:
        return None, [Finding("error", _shown(path), "this recipe is abstract: extend it, do not train it")]
    values.setdefault("name", _name_of(path, search))
    try:
        recipe = Recipe.model_validate(values)
    except ValidationError as error:
        return None, [_explained(item, origins, _shown(path)) for item in error.errors(include_url=False)]
    keys = _dotted(recipe.model_dump(mode="json"), "")
    known = {key: origins.get(key, "default") for key in keys}
    files = tuple(file.path for file in chain)
    return ResolvedRecipe(recipe, known, recipe.digest(), path, files), []


def _name_of(path: Path, search: Sequence[Path]) -> str:
    path = path.resolve()
    for folder in search:
        if path.is_relative_to(folder.resolve()):
            return path.relative_to(folder.resolve()).with_suffix("").as_posix()
    return path.stem


def _merge(into: dict[str, Any], values: Mapping[str, Any], origins: dict[str, str], file: _File, prefix: str) -> None:
    """Mappings are merged key by key; everything else, lists too, is replaced."""
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        merges = isinstance(value, dict) and isinstance(into.get(key), dict)
        if not merges:
            for stale in [known for known in origins if known.startswith(f"{dotted}.")]:
                del origins[stale]
            into[key] = {} if isinstance(value, dict) else value
        # Of a section, the file that touched it last: what is wrong with it as a whole was completed there.
        origins[dotted] = f"{_shown(file.path)}:{file.lines[dotted]}"
        if isinstance(value, dict):
            _merge(into[key], value, origins, file, f"{dotted}.")


def _dotted(values: Mapping[str, Any], prefix: str) -> list[str]:
    keys: list[str] = []
    for key, value in values.items():
        keys += _dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key}"]
    return keys


def _explained(item: ErrorDetails, origins: Mapping[str, str], path: str) -> Finding:
    """One problem as a person wants to read it: where the value was set, what is wrong, what was perhaps meant."""
    parts = [str(part) for part in item["loc"]]
    dotted = ".".join(parts)
    where = next((origins[key] for n in range(len(parts), 0, -1) if (key := ".".join(parts[:n])) in origins), path)
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(parts[-1], _fields_at(parts[:-1]), n=1)
        message = f"unknown key; did you mean {near[0]!r}?" if near else "unknown key"
    elif item["type"] == "missing":
        where, message = path, "is required, in this file or in one that it extends"
    elif item["type"] != "value_error":
        message = f"{message[0].lower()}{message[1:]}, not {item['input']!r}"
    return Finding("error", where, f"{dotted}: {message}" if dotted else message)


def _fields_at(parts: Sequence[str]) -> list[str]:
    """The keys that a section of a recipe knows."""
    model: type[BaseModel] = Recipe
    for part in parts:
        field = model.model_fields.get(part)
        annotation: Any = None if field is None else field.annotation
        options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
        found = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not found:
            return []
        model = found[0]
    return [*model.model_fields, *(("extends", "abstract") if model is Recipe else ())]


def _advice(resolved: ResolvedRecipe) -> list[Finding]:
    """What is allowed and yet rarely meant."""
    recipe, origins, found = resolved.recipe, resolved.origins, []

    def say(key: str, message: str) -> None:
        where = origins.get(key, "default")
        found.append(Finding("warning", _shown(resolved.path) if where == "default" else where, f"{key}: {message}"))

    rate = recipe.optimisation.learning_rate
    if recipe.objective == "dpo" and rate > 5e-5:
        say("optimisation.learning_rate", f"{rate:g} is high for DPO, which usually takes 5e-7 to 5e-5")
    if recipe.objective == "sft" and recipe.method != "full" and rate < 1e-5:
        say("optimisation.learning_rate", f"{rate:g} is low for LoRA, which usually takes 1e-5 to 1e-3")
    if recipe.method == "full" and rate > 1e-4:
        say("optimisation.learning_rate", f"{rate:g} is high for training all weights, which usually takes up to 1e-4")
    if recipe.lora is not None and recipe.lora.alpha < recipe.lora.r:
        say(
            "lora.alpha",
            f"{recipe.lora.alpha:g} is less than the rank {recipe.lora.r}: the adapter's effect is scaled down",
        )
    if not recipe.nightly:
        key = "kind" if recipe.kind == "pretraining" else "method"
        say(key, f"{getattr(recipe, key)} gives no adapter that a night could publish: start it with `ec1 train`")
    if recipe.method != "qlora" and recipe.quantization is not None:
        say("quantization.type", f"has no effect with method {recipe.method}; set the section to null")
    for section in ("dpo", "orpo", "simpo"):
        if section != recipe.objective and getattr(recipe, section) is not None:
            say(f"{section}.beta", f"has no effect with objective {recipe.objective}; set the section to null")
    return found


def _show(values: Mapping[str, Any], origins: Mapping[str, str], prefix: str, indent: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        if isinstance(value, dict):
            lines.append((f"{indent}{key}:", ""))
            lines += _show(value, origins, f"{dotted}.", f"{indent}  ")
        else:
            lines.append((f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}", origins.get(dotted, "default")))
    return lines

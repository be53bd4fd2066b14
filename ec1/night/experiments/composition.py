"""A version composed of others: their weights added up, then evaluated, judged and published like any candidate.

The sum of two adapters that do well need not do well, so nothing of their verdicts is inherited. The result is exact
while the ranks together fit what the engine serves (their matrices side by side); beyond that it is the nearest one of
that rank (singular values), which the evaluation then judges. Belongs here: adding up, and the way through evaluation
and gate. Does not: both of these themselves. https://huggingface.co/docs/peft/developer_guides/model_merging
"""

import datetime as dt
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ec1.adapters.manifest import (
    AdapterManifest,
    DatasetRef,
    RecipeRef,
    SnapshotRef,
)
from ec1.adapters.scores import CANDIDATE
from ec1.corpus.split import moved
from ec1.errors import InputError, PermanentError
from ec1.files import digest_of, read_json, staged_directory, write_json
from ec1.launch.launcher import Launcher
from ec1.night.steps.candidate import (
    BY_HAND,
    EVALUATION_FOLDER,
    CandidateVerdict,
    evaluated_files,
    judged_in,
    run_evaluation,
)
from ec1.night.steps.recipe_night import RecipeNight

_TEMPLATE = "chat_template.jinja"
_CONFIG, _WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Composed:
    """What became of a composition: a version's name, or the place in quarantine."""

    name: str | None
    path: Path
    judged: CandidateVerdict


def compose(
    step: RecipeNight,
    weights: Mapping[tuple[str, str, int], float],
    max_rank: int,
    launcher: Launcher,
    env: Mapping[str, str],
    log: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> Composed:
    """Add up versions (-> weight), judge the sum on the held-out examples of `step`'s role, publish it if accepted.

    `progress` gets a line before whatever takes a while.

    Raises InputError for versions that cannot be added up or judged there, PermanentError for one that is not trusted.
    """
    parts = [step.registry.get(*version) for version in weights]
    check_parts(step, parts)
    folders = {manifest.name: step.registry.fetch(*version) for version, manifest in zip(weights, parts, strict=True)}
    named = {manifest.name: weight for manifest, weight in zip(parts, weights.values(), strict=True)}
    snapshot = step.snapshot(dt.datetime.now(dt.UTC))
    dataset = step.dataset(snapshot)
    check_heldout(step, dataset.path, parts)
    ranks = sum(int(read_json(folder / _CONFIG)["r"]) for folder in folders.values())
    how = "exact" if ranks <= max_rank else f"the nearest of rank {max_rank}, which is what the engine serves"
    progress(f"adding up {len(named)} versions of rank {ranks} together: {how}")
    root = step.folder / BY_HAND / f"composed-{digest_of([named, max_rank, dataset.digest])[:12]}"
    adapter = root / "adapter"
    if not adapter.is_dir():
        with staged_directory(adapter) as staging:
            add_up(step.base_model, folders, named, max_rank, staging)
    trained = "composed of " + ", ".join(f"{name} × {weight:g}" for name, weight in named.items())
    spec = step.evaluation_spec(dataset, adapter, root / EVALUATION_FOLDER, trained)
    against = ", ".join(name for name in spec.candidates if name != CANDIDATE)
    progress(f"scoring it on {dataset.heldout_rows} held-out examples of {step.name}, beside {against}; log: {log}")
    run_evaluation(spec, step.subject, launcher, env, log)
    judged = judged_in(spec.output, step.recipe.evaluation)
    manifest = _manifest(
        step,
        named,
        judged,
        snapshot_ref=SnapshotRef(bucket=snapshot.bucket, digest=snapshot.digest, tuples=snapshot.trainable),
        dataset_ref=DatasetRef(digest=dataset.digest, train_rows=dataset.train_rows, heldout_rows=dataset.heldout_rows),
    )
    attachments = evaluated_files(spec.output)
    if judged.verdict.accepted:
        published = step.registry.publish(adapter, manifest, attachments)
        assert published.version is not None
        path = step.registry.fetch(manifest.tenant, manifest.role, published.version)
        return Composed(published.name, path, judged)
    reason = "; ".join(judged.verdict.reasons)
    return Composed(None, step.registry.quarantine(adapter, manifest, reason, attachments), judged)


def check_parts(step: RecipeNight, parts: list[AdapterManifest]) -> None:
    """Raises InputError for versions that cannot be added up, or were withdrawn."""
    if len(parts) < 2:
        raise InputError("name at least two versions to compose, such as acme/engineering@v2=0.5 acme/editor@v1=0.5")
    base = step.recipe.base_model
    for manifest in parts:
        if (manifest.base_model.id, manifest.base_model.revision) != (base.id, base.revision):
            raise InputError(
                f"{manifest.name} belongs to {manifest.base_model.id}, recipe {step.recipe.name} to {base.id}"
            )
        assert manifest.version is not None
        if withdrawn := step.registry.withdrawal(manifest.tenant, manifest.role, manifest.version):
            raise InputError(f"{manifest.name} was withdrawn: {withdrawn.reason}")


def check_heldout(step: RecipeNight, dataset: Path, parts: list[AdapterManifest]) -> None:
    """Raises InputError if a part was trained on what the sum would be judged on, or if that cannot be told."""
    folders = {}
    for manifest in parts:
        folders[manifest.name] = step.home.datasets / manifest.dataset.digest
        if not (folders[manifest.name] / "train" / "rows.parquet").is_file():
            raise InputError(f"{manifest.name} cannot be composed here: what it was trained on is not in this home")
    for found in moved(dataset, folders):
        if found.trained_on:
            raise InputError(
                f"{found.version} was trained on {found.trained_on} of the groups that are held out for "
                f"{step.name}: the sum cannot be judged on them"
            )


def add_up(base: Path, folders: Mapping[str, Path], weights: Mapping[str, float], max_rank: int, output: Path) -> None:
    """Write the weighted sum of adapters into `output`; `base` is the base model's folder, of which only shapes are
    read.

    Raises InputError for adapters that PEFT cannot add up.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM

    configs = {name: read_json(folder / _CONFIG) for name, folder in folders.items()}
    if any(config.get("use_rslora") for config in configs.values()):
        raise InputError("rank-stabilised adapters are scaled by another rule: they cannot be added up")
    templates = {(folder / _TEMPLATE).read_bytes() for folder in folders.values() if (folder / _TEMPLATE).is_file()}
    if len(templates) > 1:
        raise InputError("the versions were trained with different chat templates: they cannot be added up")
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base, local_files_only=True))
    for name, parameter in list(model.named_parameters()):
        # The base's weights take no part: one zero stands for each matrix, whatever its size.
        owner = model.get_submodule(name.rpartition(".")[0])
        empty = torch.zeros((), dtype=torch.float32).expand(parameter.shape)
        setattr(owner, name.rpartition(".")[2], torch.nn.Parameter(empty, requires_grad=False))
    labels = {name: f"part{number}" for number, name in enumerate(folders)}
    peft: Any = None
    for name, folder in folders.items():
        if peft is None:
            peft = PeftModel.from_pretrained(model, str(folder), adapter_name=labels[name], torch_device="cpu")
        else:
            peft.load_adapter(str(folder), adapter_name=labels[name], torch_device="cpu")
    try:
        peft.base_model.add_weighted_adapter(
            list(labels.values()), [weights[name] for name in labels], adapter_name="sum", combination_type="cat"
        )
    except ValueError as error:
        raise InputError(f"these versions cannot be added up: {str(error).splitlines()[0]}") from None
    peft.set_adapter("sum")
    peft.peft_config["sum"].inference_mode = True
    peft.save_pretrained(output, selected_adapters=["sum"], save_embedding_layers=False)
    for path in (output / "sum").iterdir():
        path.rename(output / path.name)
    (output / "sum").rmdir()
    (output / "README.md").unlink(missing_ok=True)
    first = next(iter(folders.values()))
    if templates:
        shutil.copyfile(first / _TEMPLATE, output / _TEMPLATE)
    if not (output / _WEIGHTS).is_file():
        raise PermanentError(f"{output} holds no weights: PEFT wrote another form")
    if sum(int(config["r"]) for config in configs.values()) > max_rank:
        _reduce(output, max_rank)


def _reduce(adapter: Path, rank: int) -> None:
    """Replace every pair of matrices by the nearest one of `rank`, in the same file.

    By their own small factors: the singular values of the products, which PEFT takes, cost a 7B hours on a CPU.
    """
    import torch
    from safetensors.torch import load_file, save_file

    config, tensors = read_json(adapter / _CONFIG), load_file(adapter / _WEIGHTS)
    scale = config["lora_alpha"] / config["r"]
    for name in [name for name in tensors if ".lora_A." in name]:
        other = name.replace(".lora_A.", ".lora_B.")
        a, b = tensors[name], tensors[other]
        left, r_left = torch.linalg.qr(b.float() * scale)
        right, r_right = torch.linalg.qr(a.float().T)
        u, values, v = torch.linalg.svd(r_left @ r_right.T)
        root = values[:rank].sqrt()
        tensors[name] = ((v[:rank] * root[:, None]) @ right.T).to(a.dtype).contiguous()
        tensors[other] = (left @ (u[:, :rank] * root)).to(b.dtype).contiguous()
    save_file(tensors, adapter / _WEIGHTS, metadata={"format": "pt"})
    write_json(adapter / _CONFIG, {**config, "r": rank, "lora_alpha": rank})


def _manifest(
    step: RecipeNight,
    named: Mapping[str, float],
    judged: CandidateVerdict,
    snapshot_ref: SnapshotRef,
    dataset_ref: DatasetRef,
) -> AdapterManifest:
    recipe = step.recipe
    return AdapterManifest(
        tenant=recipe.tenant,
        role=recipe.role,
        night=step.night.date,
        base_model=step.base_model_ref,
        method="composition",
        objective=recipe.objective,
        recipe=RecipeRef(name=recipe.name, version=recipe.version, digest=step.resolved.digest),
        dataset=dataset_ref,
        snapshot=snapshot_ref,
        composed_of=dict(named),
        evaluation=judged.summary(recipe.objective),
        seeds={"evaluation": recipe.evaluation.seed},
    )

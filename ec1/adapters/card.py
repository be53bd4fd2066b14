"""The model card of a version, `README.md`: what its manifest says, for people and for model hubs.

Belongs here: the card's words. Does not: any fact of its own.
https://huggingface.co/docs/hub/model-cards
"""

from ec1.adapters.manifest import AdapterManifest, EvaluationSummary
from ec1.adapters.scores import CANDIDATE, Success, counted


def card_of(manifest: AdapterManifest) -> str:
    """The card in Markdown, with the metadata that a model hub reads in front."""
    from huggingface_hub import ModelCard, ModelCardData

    data = ModelCardData(
        base_model=manifest.base_model.id,
        library_name="peft",
        pipeline_tag="text-generation",
        license=manifest.base_model.license,
        model_name=manifest.name,
        tags=["lora", manifest.objective],
    )
    sections = (
        _summary(manifest),
        _use(manifest),
        _data(manifest),
        _training(manifest),
        _evaluation(manifest),
        _limits(),
    )
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n"))


def _summary(manifest: AdapterManifest) -> str:
    base = manifest.base_model
    licence = (
        f"The base model's licence is {base.license}; it holds for the adapter as far as it is derived from it."
        if base.license
        else "The licence of the base model was not recorded: see the base model's own card."
    )
    return (
        f"# {manifest.name}\n\nA LoRA adapter for `{base.id}` (revision `{base.revision}`), of the role "
        f"`{manifest.role}` of `{manifest.tenant}`, night {manifest.night}.\n\n{licence}"
    )


def _use(manifest: AdapterManifest) -> str:
    return (
        f"## Use\n\nThrough `ec1 serve` under the name `{manifest.name}`, or in any engine that loads PEFT adapters, "
        "with the base model's own tokenizer"
        + (" and the chat template beside this file." if "chat_template.jinja" in manifest.files else ".")
        + f" With this folder as `./{manifest.role}`:\n\n"
        + _code("python", _PEFT.format(base=manifest.base_model, role=manifest.role, loader=_loader_of(manifest)))
        + "\n\n"
        + _code("shell", _VLLM.format(base=manifest.base_model, role=manifest.role, rank=_rank_for_vllm(manifest)))
    )


_PEFT = """from peft import PeftModel
from transformers import {loader}

base = {loader}.from_pretrained("{base.id}", revision="{base.revision}")
model = PeftModel.from_pretrained(base, "./{role}")"""
_VLLM = """vllm serve {base.id} --revision {base.revision} --enable-lora --max-lora-rank {rank} \\
  --lora-modules {role}=./{role}"""
_VLLM_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""https://docs.vllm.ai/en/latest/features/lora: what `--max-lora-rank` may be (1 beside these)."""


def _loader_of(manifest: AdapterManifest) -> str:
    """The class of transformers whose layers have the names that the adapter knows."""
    return str(manifest.training.get("base is loaded by", "AutoModelForCausalLM"))


def _rank_for_vllm(manifest: AdapterManifest) -> int:
    """The least that serves the adapter; of a version that does not tell its rank, the recipes' usual one."""
    rank = manifest.training.get("rank", 16)
    return next(each for each in _VLLM_RANKS if each >= float(rank))


def _code(language: str, lines: str) -> str:
    return f"```{language}\n{lines}\n```"


def _data(manifest: AdapterManifest) -> str:
    return _table(
        "Data",
        {
            "bucket": manifest.snapshot.bucket,
            "tuples in the snapshot": str(manifest.snapshot.tuples),
            "snapshot (SHA-256)": f"`{manifest.snapshot.digest}`",
            "rows trained on": str(manifest.dataset.train_rows),
            "rows held out": str(manifest.dataset.heldout_rows),
            "dataset (SHA-256)": f"`{manifest.dataset.digest}`",
        },
    )


def _training(manifest: AdapterManifest) -> str:
    rows = {
        "recipe": f"{manifest.recipe.name}, version {manifest.recipe.version}",
        "recipe (SHA-256)": f"`{manifest.recipe.digest}`",
        "method": manifest.method,
        "objective": manifest.objective,
    }
    if manifest.reference:
        rows["measured against"] = manifest.reference
    if manifest.started_from:
        rows["went on from"] = manifest.started_from
    rows |= {name: str(value) for name, value in manifest.training.items()}
    rows |= {f"seed of the {name}": str(seed) for name, seed in manifest.seeds.items()}
    if manifest.git_commit:
        rows["code"] = f"commit `{manifest.git_commit}`"
    rows |= {name: str(value) for name, value in manifest.hardware.items()}
    rows |= {f"package {name}": value for name, value in manifest.packages.items()}
    rows |= {f"{name} (SHA-256)": f"`{digest}`" for name, digest in manifest.tokenizer.items()}
    return _table("Training", rows)


def _evaluation(manifest: AdapterManifest) -> str:
    if manifest.evaluation is None:
        return f"## Evaluation\n\nNone. Published by a person: {manifest.override}"
    found = manifest.evaluation
    lines = [f"Verdict: **{found.verdict}**, on {found.examples} held-out examples. {'; '.join(found.reasons)}"]
    if (success := found.success) is not None:
        lines = [_right(found, success), *lines]
    if manifest.override:
        lines.append(f"Published by a person against the gate: {manifest.override}")
    if found.judge is not None:
        lines.append(f"Task cases were judged by {found.judge.model} (`{found.judge.digest[:12]}`).")
    rows = [
        f"| {model} | {'not finite' if score is None else f'{score:.3f}'} |" for model, score in found.scores.items()
    ]
    measure = "F1 on held-out chunks" if found.objective == "extraction" else "mean score, nats per token"
    if any(each.unit == "of the tasks" for each in found.differences.values()):
        measure = "share of the held-out tasks solved"
    lines.append("\n".join([f"| model | {measure} |", "|---|---|", *rows]))
    if found.general:
        asked = counted(found.general, found.general_asked, CANDIDATE)
        lines.append(f"General questions whose right answer it finds likelier than a wrong one: {asked}.")
    overlap = "was not compared" if found.overlap is None else str(found.overlap)
    lines.append(
        f"Overlap with training: {overlap}. The held-out groups were looked at {found.looks:.1f} times before."
    )
    against = [f"- better than `{name}` by {difference}" for name, difference in found.differences.items()]
    return "## Evaluation\n\n" + "\n\n".join([*lines, "\n".join(against)])


def _right(found: EvaluationSummary, success: Success) -> str:
    said = [f"**{success.of(CANDIDATE)}**"]
    if success.formed:
        said.append(counted(success.formed, success.prompts, CANDIDATE, "well formed"))
    if success.prompts < success.held_out:
        left = f", {success.too_long} have too long an answer" if success.too_long else ""
        said.append(f"asked were {success.prompts} of {success.held_out} held-out prompts{left}")
    said += [f"against {name} {difference}" for name, difference in found.right.items()]
    return "Answers: " + "; ".join(said) + "."


def _limits() -> str:
    return (
        "## Limits\n\nThe verdict is about written answers to held-out prompts of this bucket, about their likelihood "
        "and about general questions. It says nothing about prompts of another kind, about facts, or about safety: the "
        "base model's limits remain. The adapter may repeat what is in its tuples."
    )


def _table(title: str, rows: dict[str, str]) -> str:
    return "\n".join([f"## {title}", "", "| what | value |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])

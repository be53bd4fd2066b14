"""What a training leaves behind on its way: copies of its adapter, each with its answers to a few held-out prompts.

They are for people who want to see when a training learnt what, or lost it (`optimisation.keep_steps`). Nothing decides
by them: they choose no weights, the gate never sees them, and a training takes the same steps with and without them.
Belongs here: writing them at the edge of a step, and finding them. Does not: checkpoints to go on from
(`checkpoints.py`), questions that are counted (`on_the_way.py`), serving a copy (`ec1.serving`).
"""

import copy
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ec1.answers.answering import tokens_of, write_meanwhile
from ec1.errors import InputError
from ec1.files import read_json, staged_directory, write_json
from ec1.recipes.schema import BaseModelRef
from ec1.training.checkpoints import is_whole, seal
from ec1.training.monitor import Monitor
from ec1.training.spec import TrainingSpec

if TYPE_CHECKING:
    from transformers import TrainerCallback

STEPS = "steps"
"""Folder of the copies in a training's folder."""
ANSWERS = "answers.json"
PROMPTS, MAX_TOKENS = 3, 96
_NAME = re.compile(r"step-([1-9][0-9]{0,8})")


def steps_of(training: Path) -> list[int]:
    """After which steps a copy of the adapter was kept, ascending. `training` is the training's folder."""
    matches = (_NAME.fullmatch(path.name) for path in (training / STEPS).glob("step-*"))
    return sorted(int(match[1]) for match in matches if match)


def step_folder(training: Path, step: int) -> Path:
    """The adapter as it was after a step. Raises InputError if it was not kept, or was damaged since."""
    folder = training / STEPS / f"step-{step}"
    if not is_whole(folder):
        raise InputError(f"{training} has no whole copy of step {step}: optimisation.keep_steps says when one is kept")
    return folder


def answers_on_the_way(training: Path) -> dict[int, list[dict[str, str]]]:
    """What was answered after each step: `prompt`, `expected` and `text` of a few held-out prompts, always the same."""
    found = {}
    for step in steps_of(training):
        path = training / STEPS / f"step-{step}" / ANSWERS
        if path.is_file():
            found[step] = [{str(key): str(value) for key, value in each.items()} for each in read_json(path)]
    return found


def save_config(config: Any, base: BaseModelRef, folder: Path) -> None:
    """Write an adapter's configuration for whoever loads it: it names the base by its id, where PEFT wrote the folder
    that it was loaded from."""
    config = copy.deepcopy(config)
    config.base_model_name_or_path = base.id
    config.revision = base.revision
    config.inference_mode = True
    config.save_pretrained(folder)


def callback_of_copies(spec: TrainingSpec, trainer: Any, tokenizer: Any, monitor: Monitor) -> "TrainerCallback":
    """Keeps a copy of the adapter every `optimisation.keep_steps` steps, and after the last."""
    from transformers import TrainerCallback

    every = spec.recipe.optimisation.keep_steps
    assert every is not None
    prompts = _held_out_prompts(spec.dataset) if monitor.team.leads and not spec.fsdp else []

    class CopiesCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            step = state.global_step
            if step % every and step < state.max_steps:
                return
            # Each process may hold a part of it: all must ask.
            weights = trainer.whole_adapter()
            if monitor.team.leads:
                _keep(spec, trainer, weights, step, _answers(trainer.model, tokenizer, prompts, spec.device))

    return CopiesCallback()


def _keep(
    spec: TrainingSpec, trainer: Any, weights: Mapping[str, Any], step: int, answers: Sequence[Mapping[str, str]]
) -> None:
    folder = spec.output / STEPS / f"step-{step}"
    # Of a training that was interrupted after it, and takes this step again: the same.
    shutil.rmtree(folder, ignore_errors=True)
    with staged_directory(folder) as staging:
        trainer.write(staging, weights)
        save_config(trainer.model.peft_config["default"], spec.recipe.base_model, staging)
        write_json(staging / ANSWERS, list(answers))
        seal(staging)


def _held_out_prompts(dataset: Path) -> list[tuple[list[dict[str, Any]], str]]:
    """The first held-out prompts with their wanted answers; none of rows that have no prompt."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(dataset / "heldout" / "rows.parquet")
    answer = next((name for name in ("completion", "chosen") if name in file.schema_arrow.names), None)
    if "prompt" not in file.schema_arrow.names:
        return []
    batch = next(file.iter_batches(PROMPTS, columns=["prompt", *([answer] if answer else [])]), None)
    rows = batch.to_pylist() if batch is not None else []
    return [(row["prompt"], str(row[answer][-1].get("content") or "") if answer else "") for row in rows]


def _answers(
    model: Any, tokenizer: Any, prompts: Sequence[tuple[list[dict[str, Any]], str]], device: str
) -> list[dict[str, str]]:
    if not prompts:
        return []
    asked = [tokens_of(tokenizer, each, ask=True) for each, _ in prompts]
    written = write_meanwhile(model, tokenizer, asked, device=device, max_tokens=MAX_TOKENS)
    return [
        {
            "prompt": next((str(each.get("content") or "") for each in reversed(said) if each["role"] == "user"), ""),
            "expected": expected,
            "text": answer.text,
        }
        for (said, expected), answer in zip(prompts, written, strict=True)
    ]

"""One prompt to the base and to an adapter, in a separate process: `python -m ec1.adapters.trial SPEC.json`.

Belongs here: what that process reads and leaves. Does not: which adapter and which prompt
(`ec1.night.experiments.trial`).
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from ec1.answers.answering import load_candidates, tokens_of, write_answers
from ec1.files import write_json
from ec1.launch.by_spec import run_by_spec
from ec1.settings import Settings


class TrialSpec(Settings):
    """What to ask. Paths are absolute, or relative to the process's folder."""

    model: Path = Field(description="the base model's folder")
    device: Literal["cuda", "cpu"]
    candidates: dict[str, Path | None] = Field(description="name -> adapter folder; null: the base alone")
    messages: tuple[dict[str, str], ...] = Field(min_length=1, description="the conversation (role, content)")
    max_tokens: int = Field(gt=0, description="of an answer")
    output: Path = Field(description="file for the answers: name -> text, and whether max_tokens cut it")


class TrialAnswer(Settings):
    """What one of the two wrote; `cut` if the limit on its tokens ended it."""

    text: str
    cut: bool = False


def run_trial(spec: TrialSpec) -> dict[str, TrialAnswer]:
    """Ask every candidate, write the answers to `spec.output` and return them. Raises as `load_candidates`."""
    import torch
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(spec.model, local_files_only=True)
    asked = tokens_of(tokenizer, [dict(message) for message in spec.messages], ask=True)
    model, switch = load_candidates(spec.model, spec.candidates, spec.device)
    answers = {}
    for name in spec.candidates:
        with torch.inference_mode(), switch(name):
            (answer,) = write_answers(model, tokenizer, [asked], device=spec.device, max_tokens=spec.max_tokens)
        answers[name] = TrialAnswer(text=answer.text, cut=answer.cut)
    write_json(spec.output, {name: answer.model_dump() for name, answer in answers.items()})
    return answers


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 1 failed, 2 usage."""
    return run_by_spec("ec1.adapters.trial", TrialSpec, arguments, ["peft"], run_trial)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Prompts to the base and to an adapter, in a separate process: `python -m ec1.adapters.trial SPEC.json`.

Belongs here: what that process reads and leaves. Does not: which adapter and which prompts
(`ec1.night.experiments.trial`).
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from ec1.answers.answering import load_candidates, ready_to_answer, tokens_of, write_answers
from ec1.files import write_json
from ec1.launch.by_spec import run_by_spec
from ec1.settings import Settings


class TrialSpec(Settings):
    """What to ask. Paths are absolute, or relative to the process's folder."""

    model: Path = Field(description="the base model's folder")
    device: Literal["cuda", "cpu"]
    candidates: dict[str, Path | None] = Field(description="name -> adapter folder; null: the base alone")
    conversations: tuple[tuple[dict[str, str], ...], ...] = Field(
        min_length=1, description="each a list of messages (role, content)"
    )
    max_tokens: int = Field(gt=0, description="of an answer")
    output: Path = Field(
        description="file for the answers: name -> per conversation text, and whether max_tokens cut it"
    )


class TrialAnswer(Settings):
    """What one of the two wrote; `cut` if the limit on its tokens ended it."""

    text: str
    cut: bool = False


def run_trial(spec: TrialSpec) -> dict[str, list[TrialAnswer]]:
    """Ask every candidate, write the answers to `spec.output`, in the order asked, and return them.

    Raises as `load_candidates`.
    """
    import torch
    from transformers import AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(spec.model, local_files_only=True)
    asked = [tokens_of(tokenizer, [dict(message) for message in each], ask=True) for each in spec.conversations]
    model, switch = load_candidates(spec.model, spec.candidates, spec.device)
    answers = {}
    for name in spec.candidates:
        with torch.inference_mode(), switch(name):
            written = write_answers(model, tokenizer, asked, device=spec.device, max_tokens=spec.max_tokens)
        answers[name] = [TrialAnswer(text=answer.text, cut=answer.cut) for answer in written]
    write_json(spec.output, {name: [answer.model_dump() for answer in each] for name, each in answers.items()})
    return answers


def _alone(spec: TrialSpec) -> None:
    with ready_to_answer(spec.model):
        run_trial(spec)


def main(arguments: Sequence[str]) -> int:
    """Exit status: 0 done, 1 failed, 2 usage."""
    return run_by_spec("ec1.adapters.trial", TrialSpec, arguments, _alone)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

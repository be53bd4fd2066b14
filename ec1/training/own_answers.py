"""Rejection sampling: the model answers each task several times before training, and the right answers become rows.

Belongs here: writing them with the version that training starts from, executing them, going on after an interruption,
and which are kept. Does not: the checks (`ec1.rewards`), and learning the rows (`trainer.py`).

https://arxiv.org/abs/2308.01825
"""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ec1.answers.answering import load_candidates, tokens_of, write_answers
from ec1.errors import PermanentError
from ec1.files import read_json, write_json
from ec1.launch.reporting import Reporter
from ec1.recipes.schema import RftOptions
from ec1.rewards.checks import checks_of
from ec1.rewards.rewards import score_all
from ec1.training.monitor import Monitor
from ec1.training.spec import OWN_ANSWERS, TrainingSpec

_CHUNK = 256
"""Answers that are written and executed together; an interruption costs no more than these."""
Answered = list[tuple[str, bool]]
"""What was written to one task, and whether it is right."""


def right_answers(spec: TrainingSpec, tasks: Any, tokenizer: Any, monitor: Monitor) -> Any:
    """Rows of a prompt and a right answer of the model's own, as a data set; `tasks` are rows of kind `task`.

    All answers stand in the output's `own-answers.json`. Raises PermanentError if none is right.
    """
    from datasets import Dataset

    wish = spec.recipe.rft
    assert wish is not None
    asked = tasks.to_list()
    answered = _answered(spec, wish, asked, tokenizer, monitor.report)
    rows = [
        {"prompt": task["prompt"], "completion": [{"role": "assistant", "content": text}]}
        for task, mine in zip(asked, answered, strict=True)
        for text in list(dict.fromkeys(text for text, right in mine if right))[: wish.kept]
    ]
    solved = sum(any(right for _, right in mine) for mine in answered)
    right = sum(right for mine in answered for _, right in mine)
    said = (
        f"{right} of {len(answered) * wish.answers} answers of the model's own are right, to {solved} of "
        f"{len(answered)} tasks: {len(rows)} rows"
    )
    if not rows:
        raise PermanentError(
            f"recipe {spec.recipe.name}: {said}; train its start on answers first, or raise rft.answers"
        )
    monitor.note(said)
    monitor.report.progress(said)
    return Dataset.from_list(rows)


def _answered(
    spec: TrainingSpec, wish: RftOptions, tasks: Sequence[dict[str, Any]], tokenizer: Any, report: Reporter
) -> list[Answered]:
    """By task what the start answers; what was written before is not written again."""
    path = spec.output / OWN_ANSWERS
    answered = _before(path, spec.identity)
    at_once = max(1, _CHUNK // wish.answers)
    if len(answered) < len(tasks):
        assert spec.start_adapter is not None
        model, switch = load_candidates(spec.base_model, {"start": spec.start_adapter.folder}, spec.device)
        with switch("start"):
            while len(answered) < len(tasks):
                chunk = tasks[len(answered) : len(answered) + at_once]
                answered += _write(spec, wish, chunk, len(answered), model, tokenizer)
                write_json(path, {"identity": spec.identity, "answers": answered})
                report.progress(f"{len(answered)} of {len(tasks)} tasks are answered {wish.answers} times")
        del model, switch
        # The trainer loads its own.
        gc.collect()
    return answered


def _before(path: Path, identity: str) -> list[Answered]:
    found = read_json(path) if path.is_file() else {}
    if found.get("identity") != identity:
        return []
    return [[(str(text), bool(right)) for text, right in mine] for mine in found["answers"]]


def _write(
    spec: TrainingSpec, wish: RftOptions, tasks: Sequence[dict[str, Any]], place: int, model: Any, tokenizer: Any
) -> list[Answered]:
    import torch

    asked = [tokens_of(tokenizer, task["prompt"], ask=True) for task in tasks for _ in range(wish.answers)]
    with torch.random.fork_rng(), torch.inference_mode():
        # Of seed and place alone: what follows an interruption is what would have followed without one.
        torch.manual_seed(spec.effective_seed * 1_000_003 + place)
        written = write_answers(
            model, tokenizer, asked, device=spec.device, max_tokens=wish.max_tokens, temperature=wish.temperature
        )
    checks = [checks_of(task["checks"][0]["content"]) for task in tasks for _ in range(wish.answers)]
    scores = score_all([answer.text for answer in written], checks)
    judged = [(answer.text, all(score.right for score in mine)) for answer, mine in zip(written, scores, strict=True)]
    return [judged[start : start + wish.answers] for start in range(0, len(judged), wish.answers)]

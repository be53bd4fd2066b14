"""Held-out tasks: what each model answers to them, and which of its answers are right by the tasks' own checks.

Belongs here: reading tasks, having them answered in batches, and scoring the answers. Does not: loading models
(`ec1.answers.answering`), what a check says (`ec1.rewards`), and what follows (`gate.py`).
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ec1.adapters.likelihood import name_of, rows_of
from ec1.adapters.scores import THINKING, ExampleScores, Sample
from ec1.answers.answering import ModelAnswer
from ec1.errors import InputError
from ec1.rewards.checks import Check, checks_of
from ec1.rewards.rewards import CheckScore, score_all

_BATCH = 32


@dataclass(frozen=True)
class HeldOutTask:
    """One held-out task; `prompt` as tokens."""

    name: str
    group: str
    prompt: list[int]
    prompt_text: str
    checks: tuple[Check, ...]


def read_tasks(path: Path, ask: Callable[[list[dict[str, str]]], list[int]], limit: int) -> list[HeldOutTask]:
    """At most `limit` tasks, a stable choice that does not depend on the order of rows. `ask`: a conversation as
    tokens, up to where an answer goes. Raises InputError for rows of another shape."""
    found = []
    for index, row in enumerate(rows_of(path)):
        try:
            messages = [{"role": each["role"], "content": each["content"]} for each in row["prompt"]]
            checks = checks_of(row["checks"][0]["content"])
        except (KeyError, TypeError, IndexError, ValueError):
            raise InputError(f"{path}: a row is not a task: it needs the columns prompt and checks") from None
        name = name_of(index, row)
        group = str(row.get("group") or name)
        found.append(HeldOutTask(name, group, ask(messages), messages[-1]["content"], checks))
    found.sort(key=lambda task: hashlib.sha256(task.name.encode()).digest())
    return found[:limit]


def answered(
    tasks: Sequence[HeldOutTask], write: Callable[[list[list[int]]], Sequence[ModelAnswer]]
) -> list[ModelAnswer]:
    """The answer to each task, likeliest token by token; prompts of like length share a batch."""
    order = sorted(range(len(tasks)), key=lambda place: (len(tasks[place].prompt), tasks[place].name))
    answers: dict[int, ModelAnswer] = {}
    for start in range(0, len(order), _BATCH):
        places = order[start : start + _BATCH]
        answers |= zip(places, write([tasks[place].prompt for place in places]), strict=True)
    return [answers[place] for place in range(len(tasks))]


def scored_tasks(
    tasks: Sequence[HeldOutTask], answers: Mapping[str, Sequence[ModelAnswer]], samples: int
) -> tuple[tuple[ExampleScores, ...], tuple[Sample, ...]]:
    """1 for each task that a model's answer solves, all its checks passed, else 0; and the first answers to be read."""
    checks = [task.checks for task in tasks]
    judged = {model: score_all([each.text for each in mine], checks) for model, mine in answers.items()}
    examples = tuple(
        ExampleScores(
            example=task.name,
            group=task.group,
            tokens=len(task.prompt),
            scores={model: float(all(score.right for score in scores[place])) for model, scores in judged.items()},
        )
        for place, task in enumerate(tasks)
    )
    shown = tuple(
        Sample(
            prompt=task.prompt_text,
            expected="; ".join(check.check for check in task.checks),
            answers={model: mine[place].text for model, mine in answers.items()},
            faults={
                model: _faults(mine[place], scores)
                for model, mine in answers.items()
                for scores in [judged[model][place]]
            },
        )
        for place, task in enumerate(tasks[:samples])
    )
    return examples, shown


def _faults(answer: ModelAnswer, scores: Sequence[CheckScore]) -> tuple[str, ...]:
    """What is wrong with the form of an answer; whether it is right is its score."""
    if answer.thinking:
        return (THINKING,)
    if not answer.text.strip():
        return ("empty",)
    exploits = any(score.exploit is not None for score in scores)
    return (*(("endless",) if answer.cut else ()), *(("refused_by_the_sandbox",) if exploits else ()))

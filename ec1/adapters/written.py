"""Answers to held-out prompts: which prompts are answered, how, and what each model's answers come to.

Most of an answer need not be written. The pass that gives the likelihood of a wanted answer also shows how far the
likeliest tokens are the wanted ones: what a model would write of it is read there, and only from where it leaves the
wanted answer is the rest written, and no more of it than shows that it is wrong. (Not the same bit for bit: of two
tokens that are equally likely in 16 bits, one batch may choose the one and another the other.)

Belongs here: the choice, what is read and what is written, and putting answers beside what was wanted. Does not:
writing (`ec1.answers.answering`), what makes one answer right (`ec1.answers.success`), and what follows (`gate.py`).
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ec1.adapters.likelihood import HeldOutExample, ReadAnswer
from ec1.adapters.scores import THINKING, Sample
from ec1.answers.answering import ModelAnswer, write_answers
from ec1.answers.behaviour import faults_of
from ec1.answers.success import hopeless, judged_all, kind_of
from ec1.answers.wording import Wording
from ec1.corpus.cases import chosen
from ec1.recipes.evaluation import EvaluationOptions

_ROOM = 1.25
"""An answer this much longer than every wanted one is not going to end in time."""
_ROOM_TOKENS = 16


def to_write(examples: Sequence[HeldOutExample], options: EvaluationOptions) -> tuple[list[int], int]:
    """The places of the examples whose prompts are answered, and how many were left out because their wanted answer
    cannot be written out in full. A stable choice, the same on every night; evaluation cases come first."""
    fitting = [index for index, each in enumerate(examples) if len(each.answers[0]) < options.sample_tokens]
    fitting.sort(key=lambda index: hashlib.sha256(examples[index].name.encode()).digest())
    asked = chosen(((examples[index].group, index) for index in fitting), options.sample_generations)
    return sorted(asked), len(examples) - len(fitting)


def room_for(examples: Sequence[HeldOutExample], options: EvaluationOptions) -> int:
    """How many tokens an answer to any of these may take."""
    longest = max((len(each.answers[0]) for each in examples), default=1)
    return min(options.sample_tokens, math.ceil(_ROOM * longest) + _ROOM_TOKENS)


def answers_to(
    model: Any,
    tokenizer: Any,
    examples: Sequence[HeldOutExample],
    read: Sequence[ReadAnswer],
    *,
    device: str,
    max_tokens: int,
    options: EvaluationOptions,
) -> list[ModelAnswer]:
    """The answer to each example, the likeliest token each time: read as far as it is the wanted one, then written.

    What a thought takes, no wanted answer says: one that `max_tokens` ends is written on to `sample_tokens`.
    """
    wording = Wording.of(tokenizer)
    answers: list[ModelAnswer | None] = [
        ModelAnswer(wording.text(example.answers[0][: own.same]), cut=False) if own.whole else None
        for example, own in zip(examples, read, strict=True)
    ]

    def write(places: Sequence[int], most: int) -> None:
        written = write_answers(
            model,
            tokenizer,
            [examples[place].prompt for place in places],
            begun=[examples[place].answers[0][: read[place].same] for place in places],
            hopeless=lambda at, text: hopeless(
                text, examples[places[at]].expected, examples[places[at]].prompt_text, options
            ),
            device=device,
            max_tokens=most,
        )
        for place, answer in zip(places, written, strict=True):
            answers[place] = answer

    write([place for place, answer in enumerate(answers) if answer is None], max_tokens)
    whole = [answer for answer in answers if answer is not None]
    if max_tokens < options.sample_tokens and any(answer.thinking for answer in whole):
        write([place for place, answer in enumerate(whole) if answer.thinking], options.sample_tokens)
    return [answer for answer in answers if answer is not None]


def samples_of(
    examples: Sequence[HeldOutExample], answers: Mapping[str, Sequence[ModelAnswer]], options: EvaluationOptions
) -> tuple[Sample, ...]:
    """One sample per example; `answers` has one per example and model."""
    wanted, prompts = [each.expected for each in examples], [each.prompt_text for each in examples]
    found = {name: judged_all(each, wanted, prompts, options) for name, each in answers.items()}
    return tuple(
        Sample(
            prompt=example.prompt_text,
            expected=example.expected,
            answers={name: each[place].text for name, each in answers.items()},
            faults={
                name: (THINKING,)
                if each[place].thinking
                else tuple(faults_of(each[place].text, example.expected, cut=each[place].cut))
                for name, each in answers.items()
            },
            example=example.name,
            group=example.group,
            kind=kind_of(example.expected, example.prompt_text),
            right={name: each[place].right for name, each in found.items()},
            formed={name: each[place].formed for name, each in found.items()},
            similarity={name: round(each[place].similarity, 3) for name, each in found.items()},
        )
        for place, example in enumerate(examples)
    )

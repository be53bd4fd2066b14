"""Scores of several models on the same held-out examples: what the evaluation writes and the gate reads."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from ec1.corpus.row_kinds import ROW_KINDS, TASKS, RowKind, RowKindName
from ec1.errors import InputError, PermanentError
from ec1.files import read_json, write_atomic, write_json
from ec1.settings import Settings

BASE = "base"
CANDIDATE = "candidate"
EVALUATION = "evaluation.json"
EXAMPLES = "examples.jsonl"
THINKING = "thinking"
"""The fault of an answer that was cut while the model thought: nobody knows whether it would have been right."""

ScoredObjective = Literal[RowKindName, "extraction"]
"""What a score is of: an answer, a pair of answers, or what was read out of a text."""


class ExampleScores(Settings):
    """One held-out example. A value is null where a model's answer was not finite.

    `scores`: per model, more is better, nats per token. SFT: the mean log-probability of the completion. Pairs: that
    of the chosen answer minus that of the rejected one. `losses`: per model, the mean negative log-probability of
    the completion or the chosen answer. `shuffled`: per model, the mean log-probability of that answer behind the
    prompt of an example from another group. Tasks: `scores` are 1 where the answer passes all checks, else 0; `tokens`
    are those of the prompt. Extraction: `scores` are shares of F1 (`ec1.adapters.reading`), and
    `counts` are, per model, the entities that were found, that should have been, and that were right.
    """

    example: str
    group: str
    tokens: int = Field(gt=0, description="of the completion, or of the chosen answer; words of a text that is read")
    scores: dict[str, float | None]
    losses: dict[str, float | None] = Field({})
    shuffled: dict[str, float | None] = Field({})
    counts: dict[str, tuple[int, int, int]] = Field({})


class Sample(Settings):
    """What each model answered to one held-out prompt, whether that is right, and what is wrong with its form.

    `kind`: by what it was judged (`ec1.answers.success`); empty where nobody judged it, as before there were counts.
    """

    prompt: str
    expected: str
    answers: dict[str, str]
    faults: dict[str, tuple[str, ...]] = Field({})
    example: str = ""
    group: str = ""
    kind: str = ""
    right: dict[str, bool] = Field({})
    formed: dict[str, bool] = Field({}, description="per model, whether the answer is well formed; right ones are")
    similarity: dict[str, float] = Field({}, description="per model, to the wanted answer's words, 0 to 1")


class Success(Settings):
    """How many held-out prompts each model answered rightly, and, of pairs, how often it prefers the chosen answer."""

    prompts: int = Field(ge=0, description="that were answered")
    right: dict[str, int]
    formed: dict[str, int] = Field({}, description="empty of tasks: their checks say right or wrong")
    pairs: int = Field(0, ge=0)
    wins: dict[str, int] = Field({}, description="pairs whose chosen answer is likelier than the rejected one")
    too_long: int = Field(0, ge=0, description="held-out prompts whose wanted answer does not fit `sample_tokens`")
    held_out: int = Field(0, ge=0, description="prompts that could have been asked")

    def of(self, candidate: str) -> str:
        """`12 of 50 right, base 0`; of pairs also how often the chosen answer is preferred."""
        said = f"{counted(self.right, self.prompts, candidate, 'right')}"
        if self.pairs:
            said += f"; prefers the chosen answer in {counted(self.wins, self.pairs, candidate)}"
        return said


def counted(counts: Mapping[str, int], total: int, candidate: str, what: str = "") -> str:
    """`12 of 50 right, base 0, incumbent 9`: the candidate's count before those of the others."""
    others = "".join(f", {name} {count}" for name, count in counts.items() if name != candidate)
    return f"{counts.get(candidate, 0)} of {total}{what and f' {what}'}{others}"


class Overlap(Settings):
    """What of the held-out examples the training side knows, measured over what was read of it.

    Examples that overlap are in no score: `equal_answers` have an answer, not a trivial one, that stands in training
    word for word, `equal_prompts` such a prompt, and `near` share almost all n-grams of both with one training row.
    """

    examples: int = Field(ge=0, description="held-out examples that were compared")
    rows: int = Field(ge=0, description="training rows")
    equal_answers: int = 0
    equal_prompts: int = 0
    near: int = 0
    removed: int = 0
    ngrams: float = Field(0.0, ge=0, le=1, description="share of the held-out answers' n-grams that stand in training")
    n: int = 8

    def __str__(self) -> str:
        return (
            f"{self.removed} of {self.examples} held-out examples stand in training, too, and are not scored "
            f"({self.equal_answers} equal answers, {self.equal_prompts} equal prompts, {self.near} by {self.n}-grams); "
            f"{self.ngrams:.0%} of the answers' {self.n}-grams stand in training"
        )


class Judge(Settings):
    """The model that judged task cases."""

    model: str = Field(description="as the deployment names it; `base`: the base model itself")
    digest: str = Field(
        description="SHA-256 of the model, as far as it can be seen, and of the words that it is asked in"
    )
    problem: str = Field("", description="why it did not decide every case")


class Scores(Settings):
    """An evaluation. `skipped` counts examples whose prompt alone fills `max_length`."""

    objective: ScoredObjective
    models: tuple[str, ...]
    examples: tuple[ExampleScores, ...]
    skipped: int = 0
    samples: tuple[Sample, ...] = ()
    too_long: int = Field(0, ge=0, description="held-out prompts that were not answered: their answer is too long")
    overlap: Overlap | None = Field(None, description="with the training side; null: it was not compared")
    general: dict[str, tuple[float, ...]] = Field(
        {}, description="per model, the mean log-probability of each answer of the fixed general set"
    )
    general_right: dict[str, tuple[bool, ...]] = Field(
        {}, description="per model, of each general question whether the right answer is likelier than the wrong one"
    )
    tasks: dict[str, dict[str, bool | None]] = Field(
        {}, description="per model, which of the recipe's task cases it passed; null: the judge could not tell"
    )
    judge: Judge | None = Field(None, description="of the task cases that a model judges; null: there is none")
    noise: float = Field(0.0, ge=0, description="what another batching changes in a score of the base, on average")
    looks: float = Field(0.0, ge=0, description="how often each held-out group was looked at before, on average")
    scored: dict[str, dict[str, str]] = Field(
        {}, description="per adapter, the SHA-256 of each of its files as they were scored"
    )
    trained: str = Field("", description="how the candidate was trained: its rate and steps")
    precision: str = ""
    device: str = ""
    seconds: dict[str, float] = Field({}, description="what took how long")

    @property
    def rows(self) -> RowKind | None:
        """What kind of rows was scored; None for texts that were read."""
        return ROW_KINDS.get(self.objective)

    @property
    def unit(self) -> str:
        """What a score is counted in."""
        return "F1" if self.rows is None else "of the tasks" if self.rows is TASKS else "nats/token"

    @property
    def counts_right(self) -> bool:
        """Whether a score counts what is right, and is not a likelihood."""
        return self.rows is None or self.rows is TASKS

    def values(self, model: str) -> list[float]:
        """The scores of one model, NaN where they are not finite. Raises InputError for a model that has none."""
        return self._column(model, "scores")

    def losses(self, model: str) -> list[float]:
        """As `values`, the losses."""
        return self._column(model, "losses")

    def shuffled(self, model: str) -> list[float]:
        """As `values`, of the answers behind other prompts."""
        return self._column(model, "shuffled")

    def faults(self, model: str) -> dict[str, int]:
        """How many of a model's written answers have each fault."""
        return dict(Counter(fault for sample in self.samples for fault in sample.faults.get(model, ())))

    def success(self) -> Success | None:
        """The counts over written answers and pairs, or over tasks; None where no answer was judged."""
        if self.rows is TASKS:
            solved = {model: sum(value > 0 for value in self.values(model)) for model in self.models}
            return Success(prompts=len(self.examples), right=solved, held_out=len(self.examples))
        judged = [sample for sample in self.samples if sample.kind]
        if not judged:
            return None
        pairs = self.rows is not None and len(self.rows.sides) > 1
        return Success(
            prompts=len(judged),
            right={model: sum(sample.right.get(model, False) for sample in judged) for model in self.models},
            formed={model: sum(sample.formed.get(model, False) for sample in judged) for model in self.models},
            pairs=len(self.examples) if pairs else 0,
            wins={model: sum(value > 0 for value in self.values(model)) for model in self.models} if pairs else {},
            too_long=self.too_long,
            held_out=len(self.examples),
        )

    def means(self) -> dict[str, float | None]:
        """The mean score of each model; None if it is not finite."""
        return {model: _finite(_mean(self.values(model))) for model in self.models}

    def mean_losses(self) -> dict[str, float | None]:
        """The mean loss of each model; None if it is not finite."""
        return {model: _finite(_mean(self.losses(model))) for model in self.models}

    def _column(self, model: str, name: Literal["scores", "losses", "shuffled"]) -> list[float]:
        if model not in self.models:
            raise InputError(f"{model!r} was not evaluated: there are {', '.join(self.models)}")
        column = [getattr(example, name).get(model) for example in self.examples]
        return [math.nan if value is None else value for value in column]


def write_scores(scores: Scores, folder: Path) -> None:
    """Write `examples.jsonl` (a line per example) and then `evaluation.json` (the rest, and the means)."""
    value = scores.model_dump(mode="json")
    lines = [json.dumps(example, ensure_ascii=False, allow_nan=False) for example in value.pop("examples")]
    write_atomic(folder / EXAMPLES, "".join(f"{line}\n" for line in lines))
    means = {"examples": len(lines), "mean_scores": scores.means(), "mean_losses": scores.mean_losses()}
    write_json(folder / EVALUATION, value | means)


def load_scores(folder: Path) -> Scores:
    """Read what `write_scores` wrote. Raises InputError if it is not there, PermanentError if it is damaged."""
    if not (folder / EVALUATION).is_file():
        raise InputError(f"{folder} holds no {EVALUATION}: evaluate first")
    value = read_json(folder / EVALUATION)
    try:
        count, _, _ = value.pop("examples"), value.pop("mean_scores"), value.pop("mean_losses")
        lines = (folder / EXAMPLES).read_text(encoding="utf-8").splitlines()
        scores = Scores.model_validate(value | {"examples": [json.loads(line) for line in lines]})
    except (KeyError, ValueError, ValidationError, FileNotFoundError) as error:
        raise PermanentError(f"{folder} holds a damaged evaluation: {str(error).splitlines()[0]}") from None
    if len(scores.examples) != count:
        raise PermanentError(f"{folder / EXAMPLES} has {len(scores.examples)} examples, {EVALUATION} says {count}")
    return scores


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None

"""How a candidate is judged: the `evaluation:` section of a recipe. Light: recipes import it at definition time."""

from typing import Any

from pydantic import Field, field_validator

from ec1.rewards import checks
from ec1.rewards.checks import Check
from ec1.settings import Name, Settings


class TaskCase(Check):
    """One prompt whose answer is checked by a program, or by a judge model (which sees all of it)."""

    name: Name = Field(description="names the case in the verdict")
    prompt: str = Field(min_length=1, description="what is asked, as a user's message")


class EvaluationOptions(Settings):
    """Figures in nats per token are differences of mean log-probability; more is better for the candidate. Recipes of
    kind extraction are judged by F1: of what follows they use `min_effect_f1`, `confidence`, the limits on looks,
    examples and sources, `resamples`, `sample_generations` and `seed`."""

    min_success: float = Field(
        0.1, gt=0, le=1, description="share of the written answers that must be right, whatever the base's are"
    )
    min_similarity: float = Field(
        0.85,
        gt=0.5,
        le=1,
        description="answers in words: how much of the wanted answer's words, in their order, a right one has",
    )
    answer_schema: dict[str, Any] | None = Field(
        None, description="answers in JSON: the JSON Schema of a well-formed one; default: the wanted answer's own keys"
    )

    min_effect_nats: float = Field(0.02, ge=0, le=1, description="answers: a smaller gain over the base is none")
    min_effect_pairs_nats: float = Field(
        0.02, ge=0, le=1, description="pairs: a smaller gain of the chosen over the rejected answer is none"
    )
    min_effect_f1: float = Field(
        0.01, ge=0, le=1, description="kind extraction: a smaller gain in F1 over the base is none"
    )
    min_effect_tasks: float = Field(
        0.02, ge=0, le=1, description="kind task: a smaller gain in the share of tasks solved over the base is none"
    )
    keep_share: float = Field(
        0.8, ge=0, le=1, description="how much of the gain of the version in use, and of the best, must be kept"
    )
    min_prompt_share: float = Field(
        0.0, ge=0, le=1, description="how much of a gain must come from the prompt: the rest is form alone"
    )
    max_forgetting_nats: float = Field(
        0.3, gt=0, description="how much less likely the answers to general questions may become on average"
    )
    max_general_lost: float = Field(
        0.1, ge=0, le=1, description="share of the general questions that may be answered rightly less often"
    )
    max_new_faults: float = Field(
        0.25, ge=0, le=1, description="share of written answers that may be worse formed than the base's"
    )
    max_chosen_loss_nats: float = Field(
        0.5, gt=0, description="preference pairs: how much less likely the chosen answer may become on average"
    )
    tasks: tuple[TaskCase, ...] = Field((), description="cases; the candidate must pass as many of them as the base")
    confidence: float = Field(0.95, gt=0.5, lt=1, description="of the one-sided bounds, over all looks together")
    max_looks: int = Field(30, ge=1, description="how often the same held-out groups may be looked at")
    min_examples: int = Field(8, ge=2, description="fewer held-out examples are inconclusive")
    min_groups: int = Field(4, ge=2, description="fewer sources among them are inconclusive")
    resamples: int = Field(4000, ge=1000, description="of the bootstrap; typically 2000–10000")
    max_examples: int = Field(200, ge=2, description="held-out examples that are scored at most; typically 100–500")
    sample_generations: int = Field(
        50,
        ge=0,
        description="held-out prompts that each model answers, to count right answers; fewer only where there are "
        "fewer. Without any, nothing is accepted; typically 50–200",
    )
    sample_tokens: int = Field(
        256, gt=0, description="tokens of such an answer at most; prompts whose wanted answer is longer are left out"
    )
    task_steps: int | None = Field(
        None,
        ge=1,
        description="after so many steps of a training the model answers questions, and the right answers are counted: "
        "rows of a tenth of training's own sources, which are then not trained on. They choose nothing, and are never "
        "the gate's. optimisation.keep_steps keeps the weights",
    )
    task_rows: int | None = Field(None, ge=1, le=500, description="how many such questions; default: 16")
    seed: int = Field(17, description="of the bootstrap")

    @field_validator("tasks")
    @classmethod
    def _names_differ(cls, value: tuple[TaskCase, ...]) -> tuple[TaskCase, ...]:
        if len({task.name for task in value}) != len(value):
            raise ValueError("two tasks have the same name")
        return value

    @property
    def runs_programs(self) -> bool:
        """Whether a task's check runs a program that reads what a model wrote, or that is what it wrote."""
        return any(task.runs for task in self.tasks)

    @field_validator("answer_schema")
    @classmethod
    def _is_a_schema(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        import jsonschema

        if value is not None:
            try:
                jsonschema.Draft202012Validator.check_schema(value)
            except jsonschema.SchemaError as error:
                raise ValueError(f"answer_schema is not a JSON Schema: {error.message}") from None
        return value


def why_unchecked(options: EvaluationOptions) -> str | None:
    """Why this machine cannot check an answer's tasks, or None: programs need a sandbox that works."""
    why = checks.why_unchecked({task.check for task in options.tasks})
    return None if why is None else f"evaluation.tasks: a program is run in a sandbox: {why}"

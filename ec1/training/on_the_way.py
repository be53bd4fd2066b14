"""Questions on the way: every few steps the model answers some that it is not trained on; right answers are counted.

Belongs here: which questions, when they are put, where the figure stands. Does not: writing and judging answers
(`ec1.answers`), which rows are not trained on (`building.py`), and the gate, whose questions these never are. Nothing
is decided by the figure: the weights are those of a training without questions.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ec1.answers.answering import tokens_of, write_meanwhile
from ec1.answers.success import judged_all
from ec1.files import digest_of
from ec1.launch.reporting import Reporter
from ec1.recipes.objectives import OBJECTIVES
from ec1.recipes.schema import Recipe
from ec1.rewards.checks import checks_of
from ec1.rewards.rewards import score_all

if TYPE_CHECKING:
    from transformers import TrainerCallback

RIGHT = "answered_right"
"""What its entries in the training's history are called: the share of the questions answered rightly."""
ROWS = 16


class Questions:
    """Some of the rows that were set aside, a stable choice; all of them if they are few."""

    def __init__(self, recipe: Recipe, rows: Sequence[dict[str, Any]], tokenizer: Any, device: str) -> None:
        self._options, self._tokenizer, self._device = recipe.evaluation, tokenizer, device
        kind = OBJECTIVES[recipe.objective].rows
        self._wanted = kind.sides[0] if kind.sides else None
        self._tokens = recipe.own_answers.max_tokens if recipe.own_answers else recipe.evaluation.sample_tokens
        chosen = sorted(rows, key=lambda row: digest_of([recipe.evaluation.seed, row.get("row"), row["prompt"]]))
        self._rows = chosen[: recipe.evaluation.task_rows or ROWS]
        self._asked = [tokens_of(tokenizer, row["prompt"], ask=True) for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def right(self, model: Any) -> float:
        """The share of them that a model answers rightly, token by token the likeliest."""
        answers = write_meanwhile(model, self._tokenizer, self._asked, device=self._device, max_tokens=self._tokens)
        if self._wanted is None:
            checks = [checks_of(row["checks"][0]["content"]) for row in self._rows]
            scores = score_all([answer.text for answer in answers], checks)
            return sum(all(each.right for each in mine) for mine in scores) / len(scores)
        wanted = ["\n".join(message["content"] for message in row[self._wanted]) for row in self._rows]
        prompts = [row["prompt"][-1]["content"] for row in self._rows]
        judged = judged_all(answers, wanted, prompts, self._options)
        return sum(each.right for each in judged) / len(judged)


def asking(questions: Questions, every: int, report: Reporter) -> "TrainerCallback":
    """Puts the questions before the first step, after every so many, and after the last."""
    from transformers import TrainerCallback

    class AskingCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
        share: float | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 0:
                state.log_history.append({"step": 0, RIGHT: self._ask(state, kwargs["model"])})

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % every == 0 or state.global_step == state.max_steps:
                self.share = self._ask(state, kwargs["model"])

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            # Trainer has just appended the step's figures; trackers, which are called after this, are given `logs`.
            if self.share is not None and "loss" in state.log_history[-1]:
                state.log_history[-1][RIGHT] = logs[RIGHT] = self.share
                self.share = None

        def _ask(self, state: Any, model: Any) -> float:
            share = questions.right(model)
            report.progress(
                f"after step {state.global_step}: {round(share * len(questions))} of {len(questions)} questions that "
                "are not trained on are answered rightly"
            )
            return share

    return AskingCallback()

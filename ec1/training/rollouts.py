"""Rollouts: objectives for which the model writes the answers itself, and rewards say what each is worth.

Belongs here: GRPO's settings for TRL, and the reward of a step's answers. Does not: the checks and what each says
(`ec1.rewards`), and the loop (`trainer.py`).

https://huggingface.co/docs/trl/grpo_trainer, https://arxiv.org/abs/2402.03300
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ec1.answers.wording import Wording
from ec1.recipes.schema import Recipe
from ec1.rewards.checks import checks_of
from ec1.rewards.rewards import score_all

Messages = Sequence[dict[str, Any]]
_checks = functools.lru_cache(maxsize=4096)(checks_of)


def grpo() -> tuple[Any, Any]:
    from trl import GRPOConfig, GRPOTrainer

    return GRPOTrainer, GRPOConfig


def grpo_settings(recipe: Recipe) -> dict[str, Any]:
    assert recipe.grpo is not None
    return {
        "num_generations": recipe.grpo.group,
        "max_completion_length": recipe.grpo.max_tokens,
        "temperature": recipe.grpo.temperature,
        "beta": recipe.grpo.beta,
    }


def grpo_rewards(recipe: Recipe, tokenizer: Any) -> Callable[..., list[float]]:
    """The reward of each answer, 0 to 1, as TRL asks for it, read as evaluations read it. A check counts by its
    weight; an answer that is right earns all of it, one that is only well formed a part, one that tries to be counted
    as right otherwise nothing."""
    wish = recipe.grpo
    assert wish is not None
    wording = Wording.of(tokenizer)

    def reward(
        completion_ids: Sequence[Sequence[int]],
        checks: Sequence[Messages],
        log_metric: Callable[[str, float], None],
        **columns: Any,
    ) -> list[float]:
        pairs = [
            (wording.text(answer), message[0]["content"])
            for answer, message in zip(completion_ids, checks, strict=True)
        ]
        # Of a group many answers are the same.
        different = list(dict.fromkeys(pairs))
        wanted = [_checks(text) for _, text in different]
        worth, right, refused = {}, {}, {}
        for pair, mine, scores in zip(
            different, wanted, score_all([answer for answer, _ in different], wanted), strict=True
        ):
            weights = [wish.weights.get(check.check, 1.0) for check in mine]
            earned = [score.right + wish.formed_reward * (score.formed and not score.right) for score in scores]
            refused[pair] = any(score.exploit is not None for score in scores)
            share = sum(weight * each for weight, each in zip(weights, earned, strict=True)) / sum(weights)
            worth[pair] = 0.0 if refused[pair] else share
            right[pair] = all(score.right for score in scores)
        log_metric("right", sum(right[pair] for pair in pairs) / len(pairs))
        log_metric("refused", sum(refused[pair] for pair in pairs) / len(pairs))
        return [worth[pair] for pair in pairs]

    return reward

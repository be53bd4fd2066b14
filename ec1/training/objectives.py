"""Objectives, as they are trained: TRL's trainer for each entry of `ec1.recipes.objectives`.

Belongs here: TRL's classes, what a recipe's section sets in them, what we change in them. Does not: what recipes, plans
and nights ask of an objective (`ec1.recipes.objectives`), which weights are trained (`methods.py`) and the loop
(`trainer.py`).

https://huggingface.co/docs/trl/sft_trainer, https://huggingface.co/docs/trl/dpo_trainer,
https://huggingface.co/docs/trl/orpo_trainer, https://huggingface.co/docs/trl/cpo_trainer
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ec1.recipes.schema import Recipe
from ec1.training.repeatable import in_epoch_order, in_group_order
from ec1.training.rollouts import grpo, grpo_rewards, grpo_settings


@dataclass(frozen=True)
class ObjectiveTrainer:
    """How one objective is trained."""

    classes: Callable[[], tuple[Any, Any]]
    """TRL's trainer and its configuration; the library is imported when this is called."""
    settings: Callable[[Recipe], dict[str, Any]]
    """What a recipe sets in that configuration, beyond what all objectives share."""
    base: Callable[[Any], Any] = in_epoch_order
    """What makes a subclass of TRL's trainer that resumes exactly: `repeatable` alone for one that orders its rows in a
    way of its own."""
    fused_head: bool = True
    """Whether TRL scores tokens without keeping the logits of all of them. One that does not also counts no tokens,
    keeps rows without an answer, and casts a quantised base to 32 bits when it is left to make the adapter."""
    casts: bool = True
    """Whether it is computed in 16 bits where the weights of an adapter are held in 32."""
    rewards: Callable[[Recipe, Any], Callable[..., list[float]]] | None = None
    """What gives TRL the reward of answers that the model writes; None of one that reads its answers."""
    margin: str | None = "eval_rewards/margins"
    """What TRL calls the held-out reward of the chosen answers less the rejected ones'; None if it has none."""


def _sft() -> tuple[Any, Any]:
    from trl import SFTConfig, SFTTrainer

    return SFTTrainer, SFTConfig


def _dpo() -> tuple[Any, Any]:
    from trl import DPOConfig, DPOTrainer

    return DPOTrainer, DPOConfig


def _orpo() -> tuple[Any, Any]:
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    return ORPOTrainer, ORPOConfig


def _simpo() -> tuple[Any, Any]:
    from trl.experimental.cpo import CPOConfig, CPOTrainer

    return CPOTrainer, CPOConfig


def _sft_settings(recipe: Recipe) -> dict[str, Any]:
    return {
        # Continued pre-training learns from every token, fine-tuning from the answers.
        "completion_only_loss": recipe.kind != "pretraining",
        "packing": recipe.optimisation.packing,
        "packing_strategy": "bfd",
        "eval_packing": False,
        "neftune_noise_alpha": recipe.optimisation.neftune_alpha,
    }


def _dpo_settings(recipe: Recipe) -> dict[str, Any]:
    assert recipe.dpo is not None
    settings: dict[str, Any] = {"beta": recipe.dpo.beta, "loss_type": [recipe.dpo.loss]}
    if recipe.dpo.label_smoothing is not None:
        settings["label_smoothing"] = recipe.dpo.label_smoothing
    if recipe.dpo.sft_weight:
        settings |= {"loss_type": [recipe.dpo.loss, "sft"], "loss_weights": [1.0, recipe.dpo.sft_weight]}
    return settings


def _orpo_settings(recipe: Recipe) -> dict[str, Any]:
    assert recipe.orpo is not None
    return {"beta": recipe.orpo.beta, "remove_unused_columns": False}


def _simpo_settings(recipe: Recipe) -> dict[str, Any]:
    assert recipe.simpo is not None
    # TRL has it as a loss of CPO without that one's own term.
    own = {"loss_type": "simpo", "cpo_alpha": 0.0, "beta": recipe.simpo.beta, "simpo_gamma": recipe.simpo.gamma}
    return {**own, "remove_unused_columns": False}


TRAINERS: dict[str, ObjectiveTrainer] = {
    "sft": ObjectiveTrainer(_sft, _sft_settings, margin=None),
    "dpo": ObjectiveTrainer(_dpo, _dpo_settings),
    "orpo": ObjectiveTrainer(_orpo, _orpo_settings, fused_head=False),
    "simpo": ObjectiveTrainer(_simpo, _simpo_settings, fused_head=False),
    "grpo": ObjectiveTrainer(grpo, grpo_settings, base=in_group_order, casts=False, rewards=grpo_rewards, margin=None),
    "rft": ObjectiveTrainer(_sft, _sft_settings, margin=None),
    "clm": ObjectiveTrainer(_sft, _sft_settings, margin=None),
}
"""By the objective's name."""

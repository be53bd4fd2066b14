"""Objectives: what a training makes more likely. One entry each, with TRL's trainer for it.

Belongs here: what differs between objectives: the columns that they read, TRL's classes, what a recipe's section sets
in them. Does not: which weights are trained (`methods.py`) and the loop (`trainer.py`).

KTO is left out: docs/decisions/no-kto.md.

https://huggingface.co/docs/trl/sft_trainer, https://huggingface.co/docs/trl/dpo_trainer,
https://huggingface.co/docs/trl/orpo_trainer, https://huggingface.co/docs/trl/cpo_trainer
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ec1.recipes.schema import Recipe

ANSWERS = ("prompt", "completion")
TOKENS = ("input_ids", "completion_mask")
PAIRS = ("prompt", "chosen", "rejected")


@dataclass(frozen=True)
class Objective:
    """One objective."""

    columns: tuple[str, ...]
    """What it reads of a dataset."""
    classes: Callable[[], tuple[Any, Any]]
    """TRL's trainer and its configuration; the library is imported when this is called."""
    settings: Callable[[Recipe], dict[str, Any]]
    """What a recipe sets in that configuration, beyond what all objectives share."""
    tokens: tuple[str, ...] = ()
    """What it reads instead where the dataset says itself which tokens there are and which of them count."""
    reference: bool = False
    """Whether a frozen reference scores every row too."""
    goes_on: bool = False
    """Whether it starts from the role's version in use, if there is one."""
    fused_head: bool = True
    """Whether TRL scores tokens without keeping the logits of all of them. One that does not also counts no tokens,
    keeps rows without an answer, and casts a quantised base to 32 bits when it is left to make the adapter."""

    @property
    def pairs(self) -> bool:
        """Whether a row is two sequences for the model."""
        return self.columns == PAIRS


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


OBJECTIVES: dict[str, Objective] = {
    "sft": Objective(ANSWERS, _sft, _sft_settings, tokens=TOKENS),
    "dpo": Objective(PAIRS, _dpo, _dpo_settings, reference=True, goes_on=True),
    "orpo": Objective(PAIRS, _orpo, _orpo_settings, fused_head=False),
    "simpo": Objective(PAIRS, _simpo, _simpo_settings, goes_on=True, fused_head=False),
}

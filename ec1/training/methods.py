"""Methods: which weights are trained, and in what form the base is held meanwhile.

Belongs here: loading the base model and putting an adapter on it, one small class a method. Does not: what is learnt
(`objectives.py`) and the loop (`trainer.py`).
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from ec1.models import Precision, load_model
from ec1.recipes.objectives import OBJECTIVES
from ec1.recipes.schema import Recipe
from ec1.training.cpu import keep_gradients
from ec1.training.shape import beside_the_text
from ec1.training.spec import ADAPTER, MODEL


class Method(Protocol):
    """One way to train a base model."""

    weights: str
    """Folder of what is left behind: `adapter` or `model`."""

    def base(self, recipe: Recipe, folder: Path, card: int | None, precision: Precision) -> Any:
        """The base model, in the form in which it is held while training: on the card of that index, or on the CPU.

        `precision`: what it is computed in.
        """

    def adapter(self, recipe: Recipe, model: Any) -> Any | None:
        """PEFT's configuration of a fresh adapter for that model, None if all weights are trained."""


class Full:
    """All weights, held in 32 bits whatever they are computed in (https://arxiv.org/abs/1710.03740).

    In 16 bits an update below a 256th of a weight is rounded away: at a rate of 1e-5 only 2 % of the weights of
    SmolLM2-135M can move.
    """

    weights = MODEL

    def base(self, recipe: Recipe, folder: Path, card: int | None, precision: Precision) -> Any:
        return _load(recipe, folder, card, "float32")

    def adapter(self, recipe: Recipe, model: Any) -> None:
        return None


class Lora:
    """Low-rank matrices beside a frozen base (https://arxiv.org/abs/2106.09685)."""

    weights = ADAPTER

    def base(self, recipe: Recipe, folder: Path, card: int | None, precision: Precision) -> Any:
        return _load(recipe, folder, card, precision)

    def adapter(self, recipe: Recipe, model: Any) -> Any:
        from peft import LoraConfig

        assert recipe.lora is not None
        targets, layers = recipe.lora.target_modules, model.config.get_text_config().num_hidden_layers
        return LoraConfig(
            r=recipe.lora.r,
            lora_alpha=recipe.lora.alpha,
            lora_dropout=recipe.lora.dropout,
            target_modules=targets if isinstance(targets, str) else list(targets),
            exclude_modules=beside_the_text(model),
            modules_to_save=list(recipe.lora.modules_to_save) or None,
            use_rslora=recipe.lora.rank_stabilised,
            use_dora=recipe.lora.dora,
            layers_to_transform=None
            if recipe.lora.upper_share is None
            else list(range(layers - upper_layers(recipe, layers), layers)),
            task_type="CAUSAL_LM",
        )


class Qlora(Lora):
    """The same, with the base's projections in 4 bits (https://arxiv.org/abs/2305.14314)."""

    def base(self, recipe: Recipe, folder: Path, card: int | None, precision: Precision) -> Any:
        from transformers import BitsAndBytesConfig

        assert recipe.quantization is not None
        quantization = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type=recipe.quantization.type,
            bnb_4bit_use_double_quant=recipe.quantization.double,
            bnb_4bit_compute_dtype=precision,
        )
        model = _load(recipe, folder, card, precision, quantization)
        if card is None:
            keep_gradients(model)
        return model


def upper_layers(recipe: Recipe, layers: int) -> int:
    """How many of a model's layers get an adapter."""
    share = recipe.lora.upper_share if recipe.lora is not None else None
    return layers if share is None else max(1, round(share * layers))


def fuses_kernels(recipe: Recipe, device: str) -> bool:
    """Whether Liger's kernels run: if the recipe asks for them, or leaves it open where their worth was measured."""
    wish = recipe.optimisation.liger_kernels
    if wish is not None:
        return wish
    learns_answers = OBJECTIVES[recipe.objective].imitates and recipe.method != "full"
    return device == "cuda" and learns_answers and find_spec("liger_kernel") is not None


METHODS: dict[str, Method] = {"full": Full(), "lora": Lora(), "qlora": Qlora()}


def put_adapter_on(model: Any, config: Any) -> Any:
    """The model with a fresh adapter."""
    from peft import get_peft_model

    return get_peft_model(model, config)


def in_32_bits(model: Any) -> None:
    """Hold what is trained beside a frozen base, and so the optimiser's state, in 32 bits; the base stays as it is.

    TRL casts the adapter of a quantised base to 16 bits. There an update below a 256th of a weight is rounded away: at
    DPO's usual rates that is most of them. 40 million parameters take 0.3 GiB more.
    """
    for name, parameter in model.named_parameters():
        if ".lora_" in name or (".modules_to_save." in name and parameter.requires_grad):
            parameter.data = parameter.data.float()


def _load(recipe: Recipe, folder: Path, card: int | None, precision: Precision, quantization: Any = None) -> Any:
    attention = recipe.hardware.attention
    return load_model(
        folder,
        # A model's own default may be float32, which takes twice the memory on a card.
        dtype=precision,
        quantization_config=quantization,
        # Asked for by name it is refused for a model that has none, such as gpt-oss; unasked it is taken where it is.
        attn_implementation=None if attention == "sdpa" else attention,
        device_map=None if card is None else {"": card},
    )

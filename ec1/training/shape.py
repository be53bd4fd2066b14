"""The shape of a base model: what of it costs memory, and which layers it has.

Belongs here: counting on a model without weights. Does not: what a training makes of the figures (`plan.py`).

The model is built by transformers from its `config.json` on torch's `meta` device, where a tensor has a size and no
memory: experts, nested text models and fused projections are counted as they will be loaded.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ec1.errors import InputError, PermanentError
from ec1.models import loader_of
from ec1.recipes.schema import Recipe
from ec1.settings import Settings


class Linear(Settings):
    """The linear layers of one name and size: `count` of them, with so many inputs and outputs each."""

    name: str
    inputs: int
    outputs: int
    count: int


class ModelShape(Settings):
    """What of a model affects memory. Names are the last part of a layer's name, such as `q_proj`."""

    hidden: int
    layers: int
    attention: int
    """Width of all queries of a token."""
    heads: int
    fused_attention: bool
    """Whether torch's own attention computes it, which keeps no score of a token for each other token."""
    keys: int
    """Width of all keys of a token, and of all values."""
    intermediate: int
    """Width of the gated layers that one token passes: with experts, of those that it is sent to."""
    vocabulary: int
    linears: tuple[Linear, ...]
    """All linear layers but the head: what quantisation and adapters apply to."""
    other_parameters: int
    """Embeddings, head, norms, and experts that the model holds as one block each: they stay in 16 bits."""
    modules: dict[str, int]
    """Parameters of all layers of a name, with whatever is inside them."""

    @classmethod
    def read(cls, folder: Path) -> "ModelShape":
        """Read `config.json` of a model's folder; no weights. Raises InputError if it is not a causal language
        model."""
        if not (folder / "config.json").is_file():
            raise InputError(f"{folder} holds no config.json: it is not a model")
        import torch
        from transformers import AutoConfig
        from transformers.pytorch_utils import Conv1D

        try:
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            with torch.device("meta"):
                model = loader_of(config).from_config(config, dtype=torch.bfloat16)
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise InputError(
                f"{folder}/config.json describes no causal language model that transformers knows: {reason}"
            ) from None
        head, beside = model.get_output_embeddings(), re.compile(beside_the_text(model) or "(?!)")
        linears: Counter[tuple[str, int, int]] = Counter()
        modules: Counter[str] = Counter()
        for path, module in model.named_modules():
            name = path.rpartition(".")[-1]
            if not name.isdigit() and path:
                modules[name] += sum(parameter.numel() for parameter in module.parameters())
            if module is head or beside.fullmatch(path):
                continue
            if isinstance(module, torch.nn.Linear):
                linears[name, module.in_features, module.out_features] += 1
            elif isinstance(module, Conv1D):
                linears[name, module.nx, module.nf] += 1
        # A tied head is counted once: `parameters` names each tensor only once.
        whole = sum(parameter.numel() for parameter in model.parameters())
        return cls(
            **_widths(config.get_text_config()),
            fused_attention=model.get_decoder().config._attn_implementation != "eager",
            linears=tuple(Linear(name=n, inputs=i, outputs=o, count=c) for (n, i, o), c in sorted(linears.items())),
            other_parameters=whole - sum(i * o * count for (_, i, o), count in linears.items()),
            modules={name: size for name, size in sorted(modules.items()) if size},
        )

    @property
    def projection_parameters(self) -> int:
        """Weights that quantisation applies to."""
        return sum(each.count * each.inputs * each.outputs for each in self.linears)

    @property
    def parameters(self) -> int:
        return self.projection_parameters + self.other_parameters

    def targets(self, wanted: str | Sequence[str]) -> list[Linear]:
        """The layers that carry an adapter: those of some names, or `all-linear`."""
        return [each for each in self.linears if isinstance(wanted, str) or each.name in wanted]


def beside_the_text(model: Any) -> str | None:
    """A pattern of the names of all layers outside the part that reads text, if linear ones are among them: those that
    see pictures get no adapter, for no row has any."""
    import torch

    head, text = model.get_output_embeddings(), model.get_decoder()
    path = next((path for path, module in model.named_modules() if module is text and path), None)
    if path is None:
        return None
    pattern = rf"(?!{re.escape(path)}\.).*"
    outside = (
        module is not head and isinstance(module, torch.nn.Linear) and re.fullmatch(pattern, name)
        for name, module in model.named_modules()
    )
    return pattern if any(outside) else None


def require_modules(recipe: Recipe, model: ModelShape) -> None:
    """Check that the model has every layer that the recipe names. PEFT refuses only if none matches at all.

    Raises PermanentError, naming what is meant perhaps, and what there is.
    """
    lora = recipe.lora
    if lora is None or recipe.method == "full":
        return
    linear = {each.name for each in model.linears}
    targets = () if isinstance(lora.target_modules, str) else lora.target_modules
    for key, wanted, there in (
        ("target_modules", targets, linear),
        ("modules_to_save", lora.modules_to_save, model.modules),
    ):
        if missing := [_with_neighbour(name, there) for name in wanted if name not in there]:
            raise PermanentError(
                f"recipe {recipe.name}: {recipe.base_model.id} has no module {', '.join(missing)}; "
                f"lora.{key} can be of {', '.join(sorted(there))}"
            )


def _with_neighbour(name: str, there: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(there), n=1, cutoff=0.75)
    return f"{name} (did you mean {near[0]}?)" if near else name


def _value(config: Any, name: str) -> Any:
    """A figure of the model; of one that differs between layers, the greatest."""
    try:
        return getattr(config, name, None)
    except RuntimeError:
        return max(getattr(layer, name) for layer in config.per_layer_config)


def _widths(config: Any) -> dict[str, int]:
    """The figures that a configuration gives for its text model, under the names that families use."""

    def first(*names: str) -> int | None:
        values = (_value(config, name) for name in names)
        return next((value for value in values if isinstance(value, int) and value), None)

    hidden, heads = first("hidden_size", "n_embd", "d_model"), first("num_attention_heads", "n_head")
    layers, vocabulary = first("num_hidden_layers", "n_layer"), first("vocab_size")
    if not (hidden and heads and layers and vocabulary):
        raise InputError("config.json does not say hidden_size, num_attention_heads, num_hidden_layers and vocab_size")
    head = first("head_dim") or hidden // heads
    inner = first("intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    if (experts := first("num_experts_per_tok", "num_experts_per_token")) is not None:
        inner = experts * (first("moe_intermediate_size") or inner) + (first("shared_expert_intermediate_size") or 0)
    return {
        "hidden": hidden,
        "layers": layers,
        "attention": heads * head,
        "heads": heads,
        "keys": (first("num_key_value_heads") or heads) * head,
        "intermediate": inner,
        "vocabulary": vocabulary,
    }

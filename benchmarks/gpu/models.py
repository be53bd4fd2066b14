"""Models of random weights: for speed and memory only their shape counts."""

import json
from pathlib import Path
from typing import Any

SHAPES: dict[str, dict[str, int]] = {
    # The widths of OLMo 3 7B.
    "7b": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32}
    | {"num_key_value_heads": 32, "vocab_size": 100278},
    # A quarter of its depth, for what compares two scripts and need not wait for the whole weights.
    "7b-quarter": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 8, "num_attention_heads": 32}
    | {"num_key_value_heads": 32, "vocab_size": 100278},
    # Those of OLMo 3 32B, for what is computed only.
    "32b": {"hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40}
    | {"num_key_value_heads": 8, "vocab_size": 100278},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    | {"num_key_value_heads": 2, "vocab_size": 512},
}
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write_config(shape: str, folder: Path, longest: int) -> Path:
    """A folder that holds a configuration, and so is a model for the plan."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {"model_type": "llama", **SHAPES[shape], "tie_word_embeddings": False, "max_position_embeddings": longest}
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def random_model(folder: Path, device: str, *, quantised: bool) -> Any:
    """The model of a configuration on a device, in bfloat16; its projections in 4 bits if `quantised`."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
    model.config.use_cache = False
    if quantised:
        _quantise(model, device)
        if device == "cuda":
            # What the 16-bit weights took would count as what the training takes.
            torch.cuda.empty_cache()
    return model.requires_grad_(False)


def _quantise(model: Any, device: str) -> None:
    import bitsandbytes as bnb
    import torch

    for module in list(model.modules()):
        for name, linear in list(module.named_children()):
            if name not in TARGETS:
                continue
            packed = bnb.nn.Linear4bit(
                linear.in_features,
                linear.out_features,
                bias=False,
                compute_dtype=torch.bfloat16,
                compress_statistics=True,
                quant_type="nf4",
                device="meta",
            )
            weight: Any = bnb.nn.Params4bit(
                linear.weight.data, requires_grad=False, compress_statistics=True, quant_type="nf4", module=packed
            )
            packed.weight = weight.to(device)
            setattr(module, name, packed)
    if device == "cpu":
        from ec1.training.cpu import keep_gradients

        keep_gradients(model)


def with_adapter(model: Any, *, checkpointing: bool) -> Any:
    """The model with a fresh LoRA adapter of the recipes' default shape, in 32 bits."""
    from peft import LoraConfig, get_peft_model

    from ec1.training.methods import in_32_bits

    adapted = get_peft_model(
        model, LoraConfig(r=16, lora_alpha=32, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    )
    in_32_bits(adapted)
    base = adapted.get_base_model()
    if checkpointing:
        adapted.enable_input_require_grads()
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    else:
        base.gradient_checkpointing_disable()
    return adapted.train()


def write_model(shape: str, folder: Path, device: str, longest: int) -> Path:
    """Weights and a tokenizer of bytes, on disk: for trainers that load a model from a folder."""
    write_config(shape, folder, longest)
    random_model(folder, device, quantised=False).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of bytes, with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = (
        "{% for message in messages %}{{ message.role }}:{{ message.content }}<eos>{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}"
    )
    fast.save_pretrained(folder)


def write_adapter(model: Path, folder: Path, rank: int, seed: int) -> Path:
    """An adapter of random weights for the model of a configuration, as PEFT writes one."""
    import torch
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        base = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model, local_files_only=True))
        config = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=list(TARGETS), task_type="CAUSAL_LM")
        adapted = get_peft_model(base, config)
    shapes = get_peft_model_state_dict(adapted, save_embedding_layers=False)
    random = torch.Generator().manual_seed(seed)
    weights = {
        name: (0.02 * torch.randn(each.shape, generator=random)).to(torch.bfloat16) for name, each in shapes.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapter_model.safetensors")
    config.save_pretrained(folder)
    return folder

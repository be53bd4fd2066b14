"""A model of the small one's architecture and tokenizer, with two narrow layers of random weights."""

from pathlib import Path


def make_tiny_model(small_model: Path, folder: Path) -> Path:
    """Write it to `folder`, which is returned; always the same weights."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(5)
    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(**{**LlamaConfig.from_pretrained(small_model).to_dict(), **shape, **heads})
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(small_model).save_pretrained(folder)
    return folder

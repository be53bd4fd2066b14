"""An adapter merged into its base: the same model as both side by side, made once, only the newest kept."""

from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from ec1.adapters.merged import merged_model
from ec1.gpu.engine import ServedAdapter


def adapter_of(base: Path, folder: Path, seed: int) -> ServedAdapter:
    torch.manual_seed(seed)
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base),
        LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False),
    )
    model.save_pretrained(folder)
    return ServedAdapter(f"extractor@{seed}", folder, str(seed), 4)


def test_a_merged_model_is_base_and_adapter_and_only_the_newest_is_kept(tiny_model: Path, tmp_path: Path) -> None:
    first, second = (adapter_of(tiny_model, tmp_path / str(seed), seed) for seed in (1, 2))
    folder = merged_model(tiny_model, first, tmp_path / "models")
    assert merged_model(tiny_model, first, tmp_path / "models") == folder

    prompt = torch.tensor([[1, 5, 9, 3]])
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    plain = base(prompt).logits
    beside = PeftModel.from_pretrained(base, first.folder)(prompt).logits
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(prompt).logits
    # What rounding the sum of both to the base's 16 bits may change, and far less than what the adapter does.
    assert (merged - beside).abs().mean() < 0.1 * (plain - beside).abs().mean()

    other = merged_model(tiny_model, second, tmp_path / "models")
    assert other != folder and not folder.exists() and (other / "config.json").is_file()

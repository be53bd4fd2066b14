"""Versions added up: exactly, within what the engine serves, and never judged on what a part was trained on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from ec1.errors import InputError
from ec1.night.experiments.composition import add_up

KEY = "base_model.model.model.layers.{}.self_attn.q_proj"


@pytest.fixture
def part(tiny_model: Path, tmp_path: Path) -> Callable[..., Path]:
    """An adapter of the tiny model with random weights."""
    config = json.loads((tiny_model / "config.json").read_text())
    width, heads = config["hidden_size"], config["num_attention_heads"]
    out = heads * (config.get("head_dim") or width // heads)

    def make(seed: int, rank: int, alpha: int, **more: Any) -> Path:
        folder = tmp_path / f"part-{seed}"
        folder.mkdir()
        torch.manual_seed(seed)
        tensors = {}
        for layer in range(config["num_hidden_layers"]):
            tensors[f"{KEY.format(layer)}.lora_A.weight"] = torch.randn(rank, width)
            tensors[f"{KEY.format(layer)}.lora_B.weight"] = torch.randn(out, rank)
        save_file(tensors, folder / "adapter_model.safetensors")
        settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha, "bias": "none"}
        settings |= {"target_modules": ["q_proj"], "base_model_name_or_path": "acme/base"}
        (folder / "adapter_config.json").write_text(json.dumps(settings | more))
        (folder / "chat_template.jinja").write_text("{{ messages }}")
        return folder

    return make


def delta(folder: Path, layer: int) -> torch.Tensor:
    """What an adapter adds to a weight, from its files alone."""
    config, tensors = json.loads((folder / "adapter_config.json").read_text()), None
    tensors = load_file(folder / "adapter_model.safetensors")
    a, b = (tensors[f"{KEY.format(layer)}.lora_{which}.weight"].float() for which in "AB")
    return (b @ a) * config["lora_alpha"] / config["r"]


def test_the_sum_is_exact_where_the_ranks_fit(part: Callable[..., Path], tiny_model: Path, tmp_path: Path) -> None:
    folders = {"a@v1": part(1, 4, 8), "b@v2": part(2, 2, 2)}
    (tmp_path / "sum").mkdir()
    add_up(tiny_model, folders, {"a@v1": 0.75, "b@v2": -0.5}, 16, tmp_path / "sum")
    names = sorted(path.name for path in (tmp_path / "sum").iterdir())
    assert names == ["adapter_config.json", "adapter_model.safetensors", "chat_template.jinja"]
    for layer in (0, 1):
        wanted = 0.75 * delta(folders["a@v1"], layer) - 0.5 * delta(folders["b@v2"], layer)
        assert torch.allclose(delta(tmp_path / "sum", layer), wanted, atol=1e-4)
    config = json.loads((tmp_path / "sum" / "adapter_config.json").read_text())
    assert config["r"] == 6 and config["base_model_name_or_path"] == "acme/base"


def test_beyond_the_served_rank_it_is_the_nearest_one(
    part: Callable[..., Path], tiny_model: Path, tmp_path: Path
) -> None:
    folders = {"a@v1": part(1, 4, 8), "b@v2": part(2, 4, 8)}
    (tmp_path / "sum").mkdir()
    add_up(tiny_model, folders, {"a@v1": 1.0, "b@v2": 1.0}, 4, tmp_path / "sum")
    wanted = delta(folders["a@v1"], 0) + delta(folders["b@v2"], 0)
    found = delta(tmp_path / "sum", 0)
    values = torch.linalg.svdvals(wanted)
    assert torch.linalg.matrix_rank(found, atol=1e-3) == 4
    # No matrix of that rank is nearer (Eckart and Young).
    assert torch.linalg.norm(wanted - found) == pytest.approx(float(values[4:].square().sum().sqrt()), rel=1e-3)


def test_what_cannot_be_added_up_is_refused(part: Callable[..., Path], tiny_model: Path, tmp_path: Path) -> None:
    one, scaled, other = part(1, 4, 8), part(2, 4, 8, use_rslora=True), part(3, 4, 8)
    (other / "chat_template.jinja").write_text("another")
    for second, problem in ((scaled, "rank-stabilised"), (other, "different chat templates")):
        with pytest.raises(InputError, match=problem):
            add_up(tiny_model, {"a@v1": one, "b@v1": second}, {"a@v1": 1, "b@v1": 1}, 16, tmp_path)

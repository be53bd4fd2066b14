"""Other families of models than the sample's, tiny and of random weights: all of them can be trained and read."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from small_trainings import losses, run

from ec1.adapters.likelihood import HeldOutExample, read_answers
from ec1.answers.answering import load_candidates, tokens_of
from ec1.training.shape import ModelShape
from ec1.training.spec import ADAPTER, TrainingSpec

SHAPE: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256}
SHAPE |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
WINDOW = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
STATE = {"layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 4}
STATE |= {"linear_key_head_dim": 16, "linear_value_head_dim": 16}
SIGHT: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
SIGHT |= {"depth": 1, "num_heads": 2, "out_hidden_size": 64, "image_size": 28, "patch_size": 14}
FAMILIES: dict[str, dict[str, Any]] = {
    # No attention of torch's own, experts in one block, a window.
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, **WINDOW},
    # Sees pictures, and a causal language model all the same; a window.
    "gemma3": {
        "text_config": {"model_type": "gemma3_text", **WINDOW},
        "vision_config": {"model_type": "siglip_vision_model"},
    },
    # Sees pictures, and is no causal language model to transformers.
    "qwen3_vl": {
        "text_config": {
            "model_type": "qwen3_vl_text",
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]},
        },
        "vision_config": {"deepstack_visual_indexes": [0]},
    },
    # Some layers keep a state instead of looking back; two classes for one configuration.
    "qwen3_5": {"text_config": {"model_type": "qwen3_5_text", **STATE}, "vision_config": {}},
    # Takes no mask of a token for each token.
    "bloom": {"n_layer": 2, "n_head": 4},
}
EVERY_LAYER = {"target_modules": "all-linear"}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder, with the sample's tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

    folder, own = tmp_path_factory.mktemp("family") / request.param, FAMILIES[request.param]
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    shape = SHAPE | {"vocab_size": len(tokenizer)}
    sees = "vision_config" in own
    if sees:
        parts = {"text_config": shape | own["text_config"], "vision_config": SIGHT | own["vision_config"]}
        config = AutoConfig.for_model(request.param, **parts)
    else:
        config = AutoConfig.for_model(request.param, **shape, **own)
    torch.manual_seed(5)
    model = (AutoModelForImageTextToText if sees else AutoModelForCausalLM).from_config(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_an_adapter_is_planned_trained_loaded_and_read(
    make: Callable[..., TrainingSpec], family: Path, tmp_path: Path
) -> None:
    """Of the layers that read text alone, and several answers behind one prompt as each alone."""
    from peft import PeftModel
    from transformers import AutoTokenizer

    planned = {each.name: each.count for each in ModelShape.read(family).targets("all-linear")}
    spec = make("engineering", tmp_path, model=family, lora=EVERY_LAYER)
    result = run(spec)
    # Random weights: no more than not knowing which token comes. Experts' balance would come on top.
    assert losses(spec)[0] == pytest.approx(math.log(len(AutoTokenizer.from_pretrained(family))), abs=0.5)
    with safe_open(spec.output / ADAPTER / "adapter_model.safetensors", "np") as weights:
        names = [name.split(".lora_A")[0] for name in weights.keys() if ".lora_A" in name]  # noqa: SIM118
    trained = [name.rpartition(".")[-1] for name in names]
    assert {name: trained.count(name) for name in trained} == planned
    assert not [name for name in names if "vis" in name]
    # As the version's card says.
    base = getattr(transformers, result.loader).from_pretrained(family)
    loaded = PeftModel.from_pretrained(base, spec.output / ADAPTER)
    assert all(weight.any() for name, weight in loaded.named_parameters() if ".lora_B" in name)

    candidates = {"base": None, "candidate": spec.output / ADAPTER}
    model, switch = load_candidates(family, candidates, "cpu")
    computes = model.get_base_model().get_decoder().config._attn_implementation
    assert ModelShape.read(family).fused_attention == (computes != "eager")
    tokenizer = AutoTokenizer.from_pretrained(family)
    prompt = tokens_of(tokenizer, [{"role": "user", "content": "Which word is it that you say?"}], ask=True)
    answers = tuple(tokenizer(text)["input_ids"] for text in ("The word is amber.", "I will not say it, not today."))
    both = [HeldOutExample("both", "group", prompt, answers, "", "")]
    each = [HeldOutExample(str(place), "group", prompt, (answer,), "", "") for place, answer in enumerate(answers)]
    read: dict[str, list[float]] = {}
    for name in candidates:
        with switch(name), torch.no_grad():
            (together,) = read_answers(model, both, batch_tokens=256, pad=0, ends={2}, device="cpu")
            alone = read_answers(model, each, batch_tokens=256, pad=0, ends={2}, device="cpu")
        read[name] = [answer.loss for answer in together]
        assert read[name] == pytest.approx([answer.loss for (answer,) in alone], abs=1e-4)
    assert read["base"] != pytest.approx(read["candidate"], abs=1e-5)


def test_pairs_are_learnt(make: Callable[..., TrainingSpec], family: Path, tmp_path: Path) -> None:
    spec = make("apprenticeship", tmp_path, model=family, lora=EVERY_LAYER)
    run(spec)
    assert losses(spec)[0] == pytest.approx(0.693, abs=0.005)

"""Adapters to publish (tiny, constructed) and to judge (trained on the small model)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gcs_emulator import bucket, gcs_server, store
from safetensors.numpy import save_file

from ec1.adapters.gate import ScoreDifference
from ec1.adapters.manifest import (
    AdapterBase,
    AdapterManifest,
    DatasetRef,
    EvaluationSummary,
    RecipeRef,
    SnapshotRef,
)

__all__ = ["bucket", "gcs_server", "store"]

BASE_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def make_candidate(tmp_path: Path) -> Callable[..., Path]:
    """A folder with a well-formed rank-2 adapter; `seed` decides its weights."""

    def make(seed: int = 0, *, name: str | None = None, **config: Any) -> Path:
        folder = tmp_path / (name or f"candidate-{seed}")
        folder.mkdir()
        random = np.random.default_rng(seed)
        key = "base_model.model.model.layers.0.self_attn.q_proj"
        tensors = {
            f"{key}.lora_A.weight": random.normal(size=(2, 8)).astype(np.float32),
            f"{key}.lora_B.weight": random.normal(size=(8, 2)).astype(np.float32),
        }
        save_file(tensors, folder / "adapter_model.safetensors")
        settings = {"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"], "base_model_name_or_path": BASE_ID}
        (folder / "adapter_config.json").write_text(json.dumps(settings | config))
        return folder

    return make


def manifest(
    night: str = "2026-06-01", *, verdict: str = "accepted", gain: float = 0.1, **fields: Any
) -> AdapterManifest:
    difference = ScoreDifference(
        mean=gain, lower=gain - 0.02, upper=gain + 0.02, examples=16, groups=8, better=gain > 0.02
    )
    evaluation = EvaluationSummary(
        verdict=verdict,  # type: ignore[arg-type]
        objective="sft",
        examples=16,
        scores={"base": -2.0, "candidate": -2.0 + gain},
        differences={"base": difference},
    )
    values: dict[str, Any] = {
        "tenant": "fernhollow",
        "role": "engineering",
        "night": night,
        "base_model": AdapterBase(id=BASE_ID, revision="main"),
        "method": "qlora",
        "objective": "sft",
        "recipe": RecipeRef(name="fernhollow/engineering", version=1, digest="a" * 64),
        "dataset": DatasetRef(digest="b" * 64, train_rows=64, heldout_rows=16),
        "snapshot": SnapshotRef(bucket="engineering-fernhollow", digest="c" * 64, tuples=80),
        "evaluation": evaluation,
        "seeds": {"training": 17},
    }
    return AdapterManifest(**values | fields)


@pytest.fixture(name="manifest")
def _manifest() -> Callable[..., AdapterManifest]:
    return manifest


PEOPLE = [
    "Maria",
    "Tomas",
    "Ilse",
    "Ravi",
    "Chen",
    "Nadia",
    "Omar",
    "Petra",
    "Lukas",
    "Aiko",
    "Bruno",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Katya",
]
TEAMS = ("orchard", "mill", "archive", "harbour")


def example(person: str, team: str) -> dict[str, Any]:
    """One row in a house style that the model has never seen, so that a few steps visibly help."""

    def answer(text: str) -> list[dict[str, str]]:
        return [{"role": "assistant", "content": text}]

    styled = f"Ledger: {person} / {team}."
    return {
        "prompt": [{"role": "user", "content": f"Where does {person} of the {team} team keep the keys?"}],
        "completion": answer(styled),
        "chosen": answer(styled),
        "rejected": answer(f"I am not sure where {person} keeps them, please ask somebody else."),
        "group": person,
        "row": f"{person}-{team}",
    }


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def heldout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 examples of 5 people, none of whom is trained on."""
    rows = [example(person, team) for person in PEOPLE[8:13] for team in TEAMS[:2]]
    return write_rows(tmp_path_factory.mktemp("heldout") / "heldout.jsonl", rows)


@pytest.fixture(scope="session")
def adapters(small_model: Path, small_precision: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Adapters of the small model: `trained` for a few steps, `noop` (lora_B zero), `damaged` (large random lora_B)."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("adapters")
    tokenizer = AutoTokenizer.from_pretrained(small_model)
    model = AutoModelForCausalLM.from_pretrained(small_model, dtype=small_precision)
    # Only the last layers: the gradient need not go through the others.
    config = LoraConfig(
        r=8,
        lora_alpha=16,
        target_modules=["q_proj", "v_proj", "o_proj"],
        layers_to_transform=list(range(20, 30)),
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(model, config)
    model.peft_config["default"].base_model_name_or_path = BASE_ID

    def save(name: str) -> Path:
        model.save_pretrained(root / name, save_embedding_layers=False)  # else it asks the hub
        shutil.copy(small_model / "chat_template.jinja", root / name)
        return root / name

    folders = {"noop": save("noop")}
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=3e-3)
    rows = [example(person, team) for person in PEOPLE[:8] for team in TEAMS]
    for step in range(16):
        batch = [rows[(step * 4 + place * 5) % len(rows)] for place in range(4)]
        for row in batch:
            row["whole"] = row["prompt"] + row["completion"]
        asked = [
            tokenizer.apply_chat_template(r["prompt"], add_generation_prompt=True, return_dict=False) for r in batch
        ]
        whole = [tokenizer.apply_chat_template(r["whole"], return_dict=False) for r in batch]
        width = max(map(len, whole))
        tokens = torch.tensor([row + [2] * (width - len(row)) for row in whole])
        labels = torch.tensor(
            [[-100] * len(a) + w[len(a) :] + [-100] * (width - len(w)) for a, w in zip(asked, whole, strict=True)]
        )
        loss = model(input_ids=tokens, attention_mask=(tokens != 2) | (labels != -100), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    folders["trained"] = save("trained")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=1.0)
    folders["damaged"] = save("damaged")
    return folders

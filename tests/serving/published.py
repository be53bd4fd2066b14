"""Versions to serve: well-formed adapters with random weights, published by hand."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ec1.adapters.manifest import AdapterBase, AdapterManifest, DatasetRef, RecipeRef, SnapshotRef
from ec1.adapters.registry import AdapterRegistry

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"
TENANT, ROLE = "fernhollow", "engineering"
NAME = f"{TENANT}/{ROLE}"


def write_adapter(folder: Path, seed: int, base: str, *, size: int = 8, outputs: int = 8, layers: int = 1) -> Path:
    """A rank-2 adapter of the first layers' query projection; `size` and `outputs` are that projection's shape."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    tensors = {}
    for layer in range(layers):
        key = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{key}.lora_A.weight"] = random.normal(size=(2, size)).astype(np.float32)
        tensors[f"{key}.lora_B.weight"] = random.normal(size=(outputs, 2)).astype(np.float32)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps({**config, "base_model_name_or_path": base}))
    return folder


def publish(
    registry: AdapterRegistry,
    folder: Path,
    seed: int,
    *,
    role: str = ROLE,
    base: str = BASE,
    dataset: str = "b" * 64,
    snapshot: str = "c" * 64,
    attachments: Mapping[str, Path] | None = None,
    labels: tuple[str, ...] = (),
    **shape: int,
) -> int:
    """Publish one more version, trained on a dataset of a snapshot by their digests; return its number."""
    candidate = write_adapter(folder / f"candidate-{role}-{seed}", seed, base, **shape)
    manifest = AdapterManifest(
        tenant=TENANT,
        role=role,
        night="2026-06-01",
        base_model=AdapterBase(id=base, revision="main"),
        method="lora",
        objective="sft",
        recipe=RecipeRef(name=f"{TENANT}/{role}", version=1, digest="a" * 64),
        dataset=DatasetRef(digest=dataset, train_rows=64, heldout_rows=16),
        snapshot=SnapshotRef(bucket=f"{role}-{TENANT}", digest=snapshot, tuples=80),
        override="made for a test",
        labels=labels,
    )
    version = registry.publish(candidate, manifest, attachments).version
    assert version is not None
    return version

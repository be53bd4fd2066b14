"""The shipped adapter: small, whole, of the embedded model, part of the fingerprint, started with the engine."""

import json
import shutil
from pathlib import Path

import pytest

from ec1.adapters.extractor import extractor_adapter
from ec1.deployment import load_deployment
from ec1.errors import InputError
from ec1.extraction.naming.trained import SHIPPED
from ec1.extraction.reading.extractor import Extractor
from ec1.files import sha256_file
from ec1.gpu.engine import VllmEngine
from ec1.home import CHECKOUT

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"


def test_the_shipped_adapter_was_trained_on_the_shipped_tuples() -> None:
    origin = json.loads((SHIPPED / "origin.json").read_text())
    assert origin["tuples"] == sha256_file(CHECKOUT / "examples" / "extractor" / "tuples.jsonl")


def test_the_shipped_adapter_is_small_whole_and_of_the_embedded_model() -> None:
    adapter = extractor_adapter(SHIPPED, BASE)
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 5_000_000
    assert adapter.name == f"extractor@{adapter.digest[:12]}"
    with pytest.raises(InputError, match="cannot be served with other/model"):
        extractor_adapter(SHIPPED, "other/model")


def test_another_adapter_is_another_extractor(tmp_path: Path) -> None:
    adapter = extractor_adapter(SHIPPED, BASE)
    settings = load_deployment("embedded", CHECKOUT).extraction
    plain = Extractor(settings, BASE, "main", tmp_path)
    with_adapter = Extractor(settings, BASE, "main", tmp_path, adapter)
    assert plain.fingerprint("meeting") != with_adapter.fingerprint("meeting")
    other = tmp_path / "other"
    shutil.copytree(SHIPPED, other)
    config = json.loads((other / "adapter_config.json").read_text())
    (other / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": config["lora_alpha"] * 2}))
    changed = Extractor(settings, BASE, "main", tmp_path, extractor_adapter(other, BASE))
    assert changed.fingerprint("meeting") != with_adapter.fingerprint("meeting")


def test_the_engine_is_started_with_it(tmp_path: Path) -> None:
    adapter = extractor_adapter(SHIPPED, BASE)
    settings = load_deployment("embedded", CHECKOUT).inference
    assert settings.kind == "vllm"
    command = VllmEngine(settings, tmp_path, BASE, "cpu", adapter).command(8123)
    assert command[command.index("--lora-modules") + 1] == f"{adapter.name}={adapter.folder}"
    assert "--enable-lora" in command

"""One training by several processes (gloo, on this machine): the same curve and the same adapter as by one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from small_trainings import losses, run

from ec1.training.spec import TrainingResult, TrainingSpec, check_result

pytestmark = pytest.mark.slow
PLAIN: dict[str, Any] = {
    "method": "lora",
    "quantization": None,
    # Dropout would differ: each process draws its own.
    "lora": {"dropout": 0.0},
    "optimisation": {"batch_size": 2, "gradient_accumulation": 2, "epochs": 2},
}
# Sums in another order differ in the last bits of bfloat16, as with another shape of batch.
TOLERANCE = 0.02


def train(spec: TrainingSpec) -> "subprocess.CompletedProcess[str]":
    path = spec.output / "spec.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(spec.model_dump_json())
    return subprocess.run([sys.executable, "-m", "ec1.training", str(path)], capture_output=True, text=True)


def together(spec: TrainingSpec) -> TrainingResult:
    ended = train(spec)
    assert ended.returncode == 0, ended.stderr[-5000:]
    return check_result(spec)


def weights(spec: TrainingSpec) -> dict[str, torch.Tensor]:
    return dict(load_file(spec.output / "adapter" / "adapter_model.safetensors"))


@pytest.fixture(scope="module")
def alone(make: Callable[..., TrainingSpec], tmp_path_factory: pytest.TempPathFactory) -> TrainingSpec:
    spec = make("engineering", tmp_path_factory.mktemp("alone"), **PLAIN)
    run(spec)
    return spec


@pytest.mark.parametrize("fsdp", [True, False])
def test_two_processes_learn_the_same_as_one(
    alone: TrainingSpec, make: Callable[..., TrainingSpec], tmp_path: Path, fsdp: bool
) -> None:
    spec = make("engineering", tmp_path, processes=2, fsdp=fsdp, **PLAIN)
    result, single = together(spec), check_result(alone)
    assert losses(spec) == pytest.approx(losses(alone), rel=TOLERANCE)
    assert (result.processes, result.fsdp, result.batch_size, result.gradient_accumulation) == (2, fsdp, 2, 1)
    same = ("steps", "tokens", "rows", "effective_batch", "trainable_parameters", "changed_modules", "identity")
    assert [getattr(result, name) for name in same] == [getattr(single, name) for name in same]
    ours, theirs = weights(spec), weights(alone)
    assert ours.keys() == theirs.keys() and {tensor.dtype for tensor in ours.values()} == {torch.float32}
    assert all(ours[name].shape == theirs[name].shape for name in theirs)
    moved = sum(float(tensor.abs().sum()) for name, tensor in theirs.items() if "lora_B" in name)
    apart = sum(float((ours[name] - theirs[name]).abs().sum()) for name in theirs if "lora_B" in name)
    assert apart < 0.2 * moved

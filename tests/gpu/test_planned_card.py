"""What a plan and a new deployment take from the card that is here."""

from pathlib import Path
from typing import Any

import pytest
from eight_cards import EightCards

from ec1.deployment import Deployment
from ec1.launch.device import GpuSettings
from ec1.launch.ssh_launcher import SshLauncherSettings
from ec1.memory import GIB, Memory
from ec1.night.operations.new_deployment import write_deployment
from ec1.night.steps.hardware import gpu_of
from ec1.strict_yaml import load_mapping


def test_a_deployment_that_names_no_card_is_planned_on_the_one_that_is_here(
    eight: EightCards, embedded: Deployment
) -> None:
    def planned(**said: Any) -> tuple[str, float]:
        gpu = gpu_of(embedded.model_copy(update={"gpu": GpuSettings(device="cuda", **said)}))
        return gpu.name, gpu.memory_gib

    assert planned() == ("NVIDIA L4", 24.0)
    assert planned(name="NVIDIA H100", memory_gib=80) == ("NVIDIA H100", 80)
    eight.tell(0, name="NVIDIA H200", total=140)
    assert planned() == ("NVIDIA H200", 140.0)
    assert planned(memory_gib=48) == ("NVIDIA L4", 48), "who says one of them says both"
    eight.tell(0, lost=True)
    assert planned() == ("NVIDIA L4", 24.0)
    far = {
        "launcher": SshLauncherSettings(host="far", python="/p/bin/python", folder="/p"),
        "gpu": GpuSettings(),
    }
    eight.tell(0, name="NVIDIA H200", total=140)
    assert gpu_of(embedded.model_copy(update=far)).name == "NVIDIA L4", "the card here is not the one that trains"


def test_a_cpu_has_no_more_memory_than_a_container_leaves_of_it(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ec1.gpu.cards.usable_memory", lambda: Memory(GIB, 5 * GIB))
    assert embedded.gpu.memory_gib > 5
    assert gpu_of(embedded).memory_gib == 5
    far = SshLauncherSettings(host="far", python="/p/bin/python", folder="/p")
    assert gpu_of(embedded.model_copy(update={"launcher": far})) == embedded.gpu


def test_a_new_deployment_names_the_card_that_is_here(eight: EightCards, tmp_path: Path) -> None:
    def written(name: str) -> dict[str, Any]:
        path = write_deployment(name, tmp_path, "cuda")[0]
        return dict(load_mapping(path)["gpu"])

    eight.tell(0, name="NVIDIA H200", total=139.8)
    assert {"name": "NVIDIA H200", "memory_gib": 139, "min_free_gib": 127}.items() <= written("acme").items()
    eight.tell(0, lost=True)
    assert {"name": "NVIDIA L4", "memory_gib": 24, "min_free_gib": 22}.items() <= written("other").items()

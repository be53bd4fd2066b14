"""What a Ray cluster lacks for a piece of work, in words."""

import pytest
from worker_parts import light_work

from ec1.launch.launcher import DeviceWork
from ec1.launch.ray_jobs import RayNeed
from ec1.launch.ray_launcher import RayLauncherSettings

NODES = ({"CPU": 4.0, "memory": 8 * 2**30}, {"CPU": 8.0, "GPU": 2.0, "accelerator_type:L4": 1.0, "memory": 64 * 2**30})


def need(folder: object, processes: int = 1, **settings: object) -> RayNeed:
    work = DeviceWork(**{**vars(light_work(folder)), "device": "cuda", "processes": processes})  # type: ignore[arg-type]
    return RayLauncherSettings.model_validate({"cpus": 2, **settings}).need(work)


@pytest.mark.parametrize(
    ("processes", "settings", "lacks"),
    [
        (1, {}, ""),
        (2, {"accelerator_type": "L4", "memory_gib": 20}, ""),
        (4, {}, "the light work needs 4 times a node with 2 CPU and 1 GPU, the nodes have 4 CPU, 0 GPU; 8 CPU, 2 GPU"),
        (2, {"files": "store"}, ""),
        (4, {"files": "store"}, "the light work needs a node with 8 CPU and 4 GPU, "),
        (1, {"accelerator_type": "H100"}, "2 CPU and 1 GPU and H100, the nodes have 4 CPU, 0 GPU, another card; "),
        (1, {"memory_gib": 100}, "100.0 GiB, the nodes have 4 CPU, 0 GPU, 8.0 GiB; 8 CPU, 2 GPU, 64.0 GiB"),
    ],
)
def test_what_nodes_lack(tmp_path: object, processes: int, settings: dict[str, object], lacks: str) -> None:
    said = need(tmp_path, processes, **settings).lacking(NODES)
    assert lacks in said and bool(said) == bool(lacks)
    assert "not begun" in need(tmp_path).lacking([])


def test_what_ray_is_asked_for(tmp_path: object) -> None:
    assert need(tmp_path, accelerator_type="L4", memory_gib=1).options == {
        "num_cpus": 2,
        "num_gpus": 1,
        "memory": 2**30,
        "resources": {"accelerator_type:L4": 0.001},
    }
    assert need(tmp_path).options["memory"] is None, "none is set aside"

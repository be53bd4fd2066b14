"""A training that is forked of a server of loaded libraries is that of a new process, to the last bit."""

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from patience import until

from ec1.files import sha256_file, write_json
from ec1.gpu.lease import GpuLease
from ec1.launch.environment import process_environment
from ec1.launch.launcher import NOBODY, DeviceWork, LocalLauncher
from ec1.launch.warm import is_there, start_server
from ec1.training.spec import TrainingSpec, check_result


@pytest.mark.slow
def test_weights_and_losses_are_the_same(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    environment = process_environment("cpu", {**os.environ, "OMP_NUM_THREADS": "2"})
    warm = tmp_path / "warm.sock"
    start_server(warm, os.getpid(), environment, tmp_path / "warm.log")
    until(lambda: is_there(warm))
    lease = GpuLease(tmp_path / "gpu.lock", device="cpu", min_free_gib=0)

    def trained(role: str, output: Path, server: Path | None) -> TrainingSpec:
        spec = make(role, output)
        path = output / "spec.json"
        write_json(path, spec.model_dump(mode="json"))
        launcher = LocalLauncher(
            lambda: lease.hold("training", night="2026-06-01", holder="test", wait_seconds=0), warm=server
        )
        work = DeviceWork("the training", "ec1.training", path, "cpu", NOBODY, (spec.dataset,), output)
        launcher.run(work, environment, output / "log")
        return spec

    # One after the other of one server: what a training leaves in its process is not what the next one begins with.
    for role in ("engineering", "apprenticeship"):
        new = check_result(trained(role, tmp_path / f"new-{role}", None))
        forked = check_result(trained(role, tmp_path / f"forked-{role}", warm))
        assert (forked.loss_first, forked.loss_last, forked.steps) == (new.loss_first, new.loss_last, new.steps)
        adapters = [tmp_path / f"{kind}-{role}" / "adapter" / "adapter_model.safetensors" for kind in ("new", "forked")]
        assert sha256_file(adapters[0]) == sha256_file(adapters[1])
    assert "Traceback" not in (tmp_path / "warm.log").read_text()
    (server,) = [each for each in psutil.Process().children() if "ec1.launch.warm" in each.cmdline()]
    assert not server.children(), "nothing is left of what was forked"
    server.kill()

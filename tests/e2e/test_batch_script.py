"""The batch script in deploy/slurm, as `sbatch` runs it, without Slurm."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from light import light_project


@pytest.mark.soak
def test_the_batch_script_trains_and_goes_on_after_a_termination(
    tmp_path: Path, project: Path, tiny_model: Path
) -> None:
    """As `sbatch` runs it, without Slurm: the termination before the time is up, then the same job again."""
    ec1 = light_project(tmp_path, project, tiny_model)
    recipe = tmp_path / "recipes" / "engineering.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 1", "epochs: 6, checkpoint_minutes: 0.01"))
    ec1.run("plan")
    run = ["bash", str(project / "deploy/slurm/train.sh"), "engineering", "1", "0"]
    env = {**ec1.environment, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with subprocess.Popen(run, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as first:
        deadline = time.monotonic() + 120
        while not list(ec1.home.runs.glob("*/*/*/*/*/checkpoints/checkpoint-*")):
            assert first.poll() is None and time.monotonic() < deadline, first.communicate()[0]
            time.sleep(0.2)
        first.terminate()
        first.communicate(timeout=90)
    assert first.returncode == 130
    second = subprocess.run(run, env=env, capture_output=True, text=True, timeout=300)
    assert second.returncode == 0, second.stderr
    result = json.loads(second.stdout)
    assert result["status"] == "finished" and result["resumed_from"] >= 1
    assert result["steps"] == result["planned_steps"]

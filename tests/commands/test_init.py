"""The first steps of a newcomer: a deployment of one's own, and what a wheel says."""

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from typer.testing import CliRunner

from ec1.cli import app
from ec1.deployment import load_deployment
from ec1.errors import InputError
from ec1.night.steps.recipes import nightly_recipes


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_new_deployment_loads_lints_and_says_what_is_next(device: Literal["cpu", "cuda"], tmp_path: Path) -> None:
    def ec1(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["--project", str(tmp_path), *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    said = ec1("init", "acme", "--device", device)
    assert "EC1_DEPLOYMENT=acme" in said and "ec1 doctor" in said and "warning" not in said
    deployment = load_deployment("acme", tmp_path)
    assert (deployment.tenant, deployment.gpu.device) == ("acme", device)
    (resolved,) = nightly_recipes(deployment, tmp_path)
    assert (resolved.recipe.tenant, resolved.recipe.hardware.device) == ("acme", device)
    assert resolved.recipe.base_model.id in {*deployment.models, "allenai/Olmo-3-7B-Instruct"}
    if deployment.extraction.adapter is not None:
        assert (deployment.extraction.adapter / "adapter_config.json").is_file(), "the shipped one, from any project"
    assert "0 errors, 0 findings" in ec1("--deployment", "acme", "recipe", "lint", str(resolved.path))


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    recipe = tmp_path / "configs" / "recipes" / "acme" / "engineering.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("mine")
    result = CliRunner().invoke(app, ["--project", str(tmp_path), "init", "acme", "--device", "cpu"])
    assert isinstance(result.exception, InputError) and "is there already" in str(result.exception)
    assert recipe.read_text() == "mine"
    assert not (tmp_path / "configs" / "deployments").exists(), "nothing was written"
    bad = CliRunner().invoke(app, ["--project", str(tmp_path), "init", "../acme", "--device", "cpu"])
    assert isinstance(bad.exception, InputError)


def test_a_wheel_is_refused_in_one_line(project: Path) -> None:
    """What would be in it could not run a night."""
    for hook in ("build_wheel", "build_sdist"):
        code = f"import checkout_only; checkout_only.{hook}('somewhere')"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=project / "deploy", capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert done.stderr.startswith("EC1 runs from a checkout") and "make install" in done.stderr

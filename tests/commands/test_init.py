"""The first steps of a newcomer: a deployment of one's own, and what a wheel says."""

import json
import os
import re
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


@pytest.fixture
def things(tmp_path: Path, small_model: Path) -> Path:
    """A folder with documents, a repository and a file of rows, and a home that has the model."""
    for name in ("reports/a.txt", "mail/b.txt", "mail/c.mp3"):
        (path := tmp_path / "share" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Ann Lee of Glass Ltd met Bo Wu in Riga.")
    rows = [{"question": f"What is {n} plus {n}?", "answer": f"{n} plus {n} is {2 * n}."} for n in range(60)]
    (tmp_path / "maths.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (repo := tmp_path / "code").mkdir()
    for step in (("init", "-q", "-b", "main"), *((f"{n}",) for n in range(3))):
        if len(step) == 1:
            (repo / "a.py").write_text(f"value = {step[0]}\n" + "".join(f"x{i} = {i}\n" for i in range(9)))
            git(repo, "add", "-A")
            step = ("commit", "-q", "-m", f"fix: value {step[0]} is what the meter shows")
        git(repo, *step)
    folder = tmp_path / "home" / "models" / "HuggingFaceTB--SmolLM2-135M-Instruct"
    folder.mkdir(parents=True)
    (folder / "main").symlink_to(small_model)
    return tmp_path


def git(repo: Path, *arguments: str) -> None:
    who = ("-c", "user.name=dev", "-c", "user.email=dev@acme.example")
    subprocess.run(["git", *who, "-C", str(repo), *arguments], check=True, capture_output=True)


def test_what_a_newcomer_has_becomes_streams_recipes_and_a_plan(things: Path) -> None:
    options = ["--project", str(things), "--home", str(things / "home"), "--deployment", "acme"]

    def ec1(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*options, *arguments])
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    sources = ["--documents", f"{things}/share", "--git", f"{things}/code", "--rows", f"{things}/maths.jsonl"]
    said = ec1("init", "acme", "--device", "cpu", *sources)
    assert "stream mail: 1 .txt" in said and "stream reports: 1 .txt" in said
    assert "1 file that no stream reads: 1 .mp3 of kinds that EC1 cannot read" in said
    assert "3 tuples" in said and "60 rows" in said
    # The plan of tonight, with its time; three commits are too few to train on.
    assert "2 to read" in said and "about " in said and "min to read" in said
    assert "acme/maths                 train: 60 new" in said
    assert "acme/engineering           skip: 3 new trainable tuples, 17 short" in said
    deployment = load_deployment("acme", things)
    recipes = {each.recipe.role: each.recipe for each in nightly_recipes(deployment, things)}
    assert recipes["maths"].data.max_length == 64 and recipes["maths"].data.threshold == 20
    # With three short answers nothing could be shown to be right, so no first adapter was ever accepted.
    judged = recipes["maths"].evaluation
    assert judged.sample_generations >= 50 and judged.sample_tokens == recipes["maths"].data.max_length
    assert recipes["engineering"].data.max_length == 256
    on = ec1("plan", "--card", "L4", "--card", "H100")
    assert re.search(r"acme/maths +L4: about \d+ s for \d+ tokens; [\d.]+ GiB of 22\.3, fits", on), on
    assert re.search(r"acme/maths +H100: ", on) and "35% (as on an H100) of what the data sheet of L4 allows" in on
    # Rows of a role that no recipe names are named, with the command that mends it, wherever one looks.
    rest = "no recipe of acme reads physics (60 rows in 1 file): ec1 recipe new --role physics"
    assert rest in ec1("corpus", "import", f"{things}/maths.jsonl", "--role", "physics")
    assert rest in ec1("corpus", "stats") and rest in ec1("plan")
    doctor = CliRunner().invoke(app, [*options, "doctor"])
    assert rest in doctor.stdout and "1 file that no stream reads: 1 .mp3" in doctor.stdout
    assert "wrote" in ec1("recipe", "new", "--role", "physics")
    assert "acme/physics" in (planned := ec1("plan")) and rest not in planned


@pytest.mark.slow
def test_on_a_terminal_without_options_it_asks(things: Path) -> None:
    ours, terminal = os.openpty()
    command = ["-m", "ec1.cli", "--project", str(things), "--home", str(things / "home"), "init", "--device", "cpu"]
    with subprocess.Popen([sys.executable, *command], stdin=terminal, stdout=subprocess.PIPE, text=True) as process:
        os.write(ours, f"acme\n{things}/share\n\n{things}/maths.jsonl\n".encode())
        said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    asked = ("Name of the deployment", "A folder of documents", "A git repository", "A file of rows")
    assert [question for question in asked if question in said] == list(asked)
    assert "stream mail: 1 .txt" in said and "60 rows" in said and "engineering" not in said


def test_what_cannot_be_looked_at_leaves_nothing_behind(things: Path) -> None:
    options = ["--project", str(things), "--home", str(things / "home"), "init", "acme", "--device", "cpu"]
    for sources, reason in (
        (["--git", f"{things}/nowhere"], "does not exist"),
        (["--git", f"{things}/share"], "git log failed"),
        (["--rows", f"{things}/share"], "holds no .jsonl"),
    ):
        result = CliRunner().invoke(app, [*options, *sources])
        assert isinstance(result.exception, InputError) and re.search(reason, str(result.exception))
        assert not list((things / "configs").rglob("*.yaml")), "the command can be given again"


def test_without_a_name_and_a_terminal_it_says_what_it_needs(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["--project", str(tmp_path), "init"])
    assert isinstance(result.exception, InputError) and "ec1 init NAME" in str(result.exception)

"""Recipes from version control: the steps of the GitHub workflow, run here against a real webserver and its queue."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from light import LightCommandLine, light_project
from loopback_server import free_port
from ruamel.yaml import YAML
from typer.testing import CliRunner

from ec1.cli import app
from ec1.night.records import DecisionRecord, Records
from jobs.instance import prepare_instance

pytestmark = pytest.mark.system
TOKEN = "a-token-of-this-test"
RECIPE = """
extends: pointsav/engineering
version: 1
tenant: fernhollow
role: {role}
base_model: {{id: HuggingFaceTB/SmolLM2-135M-Instruct}}
optimisation: {{epochs: {epochs}}}
data: {{max_length: 192, threshold: 5000}}
hardware: {{device: cpu, memory_gib: 12}}
"""


@pytest.fixture
def ec1(tmp_path: Path, project: Path, tiny_model: Path) -> Iterator[LightCommandLine]:
    """A project in a clone of a repository, as on a server."""
    ec1 = light_project(tmp_path / "clone", project, tiny_model, train=False)
    write(ec1, "engineering", 1)
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch", "main", "origin.git")
    clone = tmp_path / "clone"
    git(clone, "init", "--quiet", "--initial-branch", "main")
    git(clone, "add", "configs", "recipes")
    commit(clone)
    git(clone, "remote", "add", "origin", str(tmp_path / "origin.git"))
    git(clone, "push", "--quiet", "--set-upstream", "origin", "main")
    yield ec1
    for left in ec1.processes():
        left.kill()


def write(ec1: LightCommandLine, role: str, epochs: int) -> None:
    (ec1.home.root.parent / "recipes" / f"{role}.yaml").write_text(RECIPE.format(role=role, epochs=epochs))


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path) -> None:
    git(folder, "commit", "--quiet", "--all", "--message", "recipes")


def step(project: Path, job: str, name: str) -> str:
    """What a step of the workflow runs."""
    workflow: Any = YAML(typ="safe").load((project / ".github" / "workflows" / "recipes.yml").read_text())
    (found,) = [each for each in workflow["jobs"][job]["steps"] if each.get("name") == name]
    return str(found["run"])


def run_step(ec1: LightCommandLine, job: str, name: str, cwd: Path, **environment: str) -> Any:
    program = cwd / "ec1"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ec1.cli "$@"\n')
    program.chmod(0o755)
    return subprocess.run(
        # As the runner does it.
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(ec1.project, job, name)],
        cwd=cwd,
        env={**ec1.environment, "PYTHONPATH": str(ec1.project), "EC1": str(program), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_a_pull_request_is_told_what_its_recipes_cost(ec1: LightCommandLine, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "origin.git", "request")
    request = tmp_path / "request"
    recipe = request / "recipes" / "engineering.yaml"
    recipe.write_text(recipe.read_text().replace("epochs: 1", "epochs: 3"))
    summary = tmp_path / "summary.md"
    done = run_step(ec1, "plan", "plan", request, BASE="origin/main", GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == 0, done.stderr
    text = (request / "plan.md").read_text()
    assert summary.read_text() == text and "| `optimisation.epochs` | `1.0` | `3.0` |" in text
    lines = {line.split(" | ")[0]: line.split(" | ") for line in text.splitlines() if " USD | " in line}
    before, after = (int(lines[f"| {name}"][1].replace(",", "")) for name in ("before", "after"))
    assert after == 3 * before > 0
    assert "skip: " in lines["| after"][-1], "what is refused tonight is planned all the same"
    choice = ["--deployment", "light", "--home", str(ec1.home.root), "--project", str(request)]
    as_json = CliRunner().invoke(app, [*choice, "plan", "--diff", "origin/main", "--json"])
    (change,) = json.loads(as_json.stdout)
    assert (change["before"]["plan"]["tokens"], change["after"]["plan"]["tokens"]) == (before, after)


def test_a_merge_trains_what_changed_through_the_queue(
    ec1: LightCommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(ec1, "unchanged", 1)
    clone = ec1.home.root.parent
    git(clone, "add", "recipes")
    commit(clone)
    git(clone, "push", "--quiet")
    port = free_port()
    server = subprocess.Popen(
        [*ec1.command, "ui", "--port", str(port)],
        cwd=ec1.project,
        env={**ec1.environment, "EC1_UI_TOKEN": TOKEN},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(server, port)
        # Somebody merges.
        git(tmp_path, "clone", "--quiet", "origin.git", "other")
        other = tmp_path / "other"
        for role, epochs in (("engineering", 2), ("feedback", 1)):
            (other / "recipes" / f"{role}.yaml").write_text(RECIPE.format(role=role, epochs=epochs))
        git(other, "add", "recipes")
        commit(other)
        git(other, "push", "--quiet")
        where = {
            "EC1_PROJECT": str(clone),
            "EC1_URL": f"http://127.0.0.1:{port}",
            "BEFORE": git(clone, "rev-parse", "HEAD"),
        }
        refused = run_step(ec1, "submit", "submit", tmp_path, **where)
        assert refused.returncode == 1 and "set EC1_UI_TOKEN" in refused.stderr, refused.stderr
        assert TOKEN not in refused.stderr + refused.stdout
        done = run_step(ec1, "submit", "submit", tmp_path, EC1_UI_TOKEN=TOKEN, **where)
        assert done.returncode == 0, done.stderr
        submitted = json.loads(done.stdout)
        assert submitted["recipes"] == ["fernhollow/engineering", "fernhollow/feedback"]
        monkeypatch.setenv("DAGSTER_HOME", "set by prepare_instance")
        with prepare_instance(ec1.home) as instance:
            run = finished(instance, submitted["run"])
            assert run.status == dg.DagsterRunStatus.SUCCESS
            events = [each.dagster_event.event_type for each in instance.all_logs(run.run_id) if each.dagster_event]
        assert dg.DagsterEventType.PIPELINE_ENQUEUED in events
        assert run.tags["dagster/partition"] == submitted["night"]
        decided = {
            folder.parent.name
            for folder in ec1.home.runs.glob(f"fernhollow/*/{submitted['night']}")
            if Records(folder).find(DecisionRecord, run.run_id)
        }
        assert decided == {"engineering", "feedback"}
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


def wait_for(server: "subprocess.Popen[bytes]", port: int) -> None:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/server_info", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    deadline = time.monotonic() + 180
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5):
                return
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.5)


def finished(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    deadline = time.monotonic() + 240
    while True:
        run = instance.get_run_by_id(run_id)
        assert run is not None and time.monotonic() < deadline
        if run.is_finished:
            return run
        time.sleep(1)

"""`ec1 worker`: what it says of its machine, an empty store, and the end by a signal."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from ec1.cli import app
from ec1.deployment import load_deployment
from ec1.launch.orders import own_version
from ec1.launch.settings import WorkerSettings

DEPLOYMENT = """
tenant: acme
recipes: [recipes]
models: {m: {source: directory, path: m}}
inference: {kind: vllm, model: m}
gpu: {device: cpu, min_free_gib: 0}
worker: {poll_seconds: 0.5, beat_seconds: 1, expire_seconds: 10}
"""


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    (tmp_path / "configs" / "deployments").mkdir(parents=True)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "configs" / "deployments" / "one.yaml").write_text(DEPLOYMENT)
    return ["--deployment", "one", "--project", str(tmp_path), "--home", str(tmp_path / "home"), "worker"]


def test_it_says_what_its_machine_has(options: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*options, "--check", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["version"], found["device"], found["name"]) == (own_version(), "cpu", "CPU")
    assert 0 < found["free_gib"] < found["total_gib"] < psutil.virtual_memory().total / 2**30 + 1
    assert not (tmp_path / "home").exists()


def test_nothing_waits(options: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*options, "--once", "--json", "--folder", str(tmp_path / "store")])
    assert (result.exit_code, result.stdout) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(options: list[str], tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "ec1.cli", *options]
    # As a script's background job, which is told to ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        worker = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        assert "waiting for work on cpu" in worker.stderr.readline()
        time.sleep(1)
        worker.send_signal(number)
        _, said = worker.communicate(timeout=60)
    finally:
        worker.kill()
    assert worker.returncode == 130 and "Traceback" not in said


def test_settings(options: list[str], tmp_path: Path) -> None:
    file = tmp_path / "configs" / "deployments" / "one.yaml"
    file.write_text(DEPLOYMENT + "launcher: worker\n")
    assert load_deployment("one", tmp_path).launcher.kind == "worker"
    file.write_text(DEPLOYMENT + "launcher: worker\ntracking: [mlflow]\n")
    with pytest.raises(Exception, match="tracking keeps its files on the machine that trains"):
        load_deployment("one", tmp_path)
    with pytest.raises(ValueError, match="three times"):
        WorkerSettings(beat_seconds=60, expire_seconds=100)
    for host in ("-oProxyCommand=x", "a b", ""):
        file.write_text(DEPLOYMENT + f"launcher: {{kind: ssh, host: '{host}', python: p, folder: /x}}\n")
        with pytest.raises(Exception, match="host"):
            load_deployment("one", tmp_path)

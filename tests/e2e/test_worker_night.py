"""A night whose trainings and evaluations a worker on another home does: it looks the same as a local one."""

import json
import signal
import sys
from pathlib import Path

import pytest
from commandline import CommandLine
from light import light_project
from ssh_server import SshServer

from ec1.home import Home
from ec1.night.records import OutcomeRecord, Records

NIGHT = "2026-06-01"
THROUGH_A_WORKER = """
launcher: worker
store: {store}
worker: {{poll_seconds: 1, beat_seconds: 1, expire_seconds: 20}}
"""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("model", "kind"),
    [("tiny_model", "directory"), ("tiny_model", "gcs"), ("tiny_model", "s3"), ("small_model", "directory")],
)
def test_a_night_through_a_worker(
    model: str, kind: str, request: pytest.FixtureRequest, project: Path, tmp_path: Path
) -> None:
    """The sample's engineering tuples, also with the real small model, also through a bucket; the worker has a home of
    its own."""
    ec1 = light_project(tmp_path, project, request.getfixturevalue(model))
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    store = json.dumps({"kind": kind, **store_settings(kind, request, tmp_path)})
    deployment.write_text(deployment.read_text() + THROUGH_A_WORKER.format(store=store))
    elsewhere = Home(tmp_path / "worker-home")
    worker = ec1.start("--home", str(elsewhere.root), "worker", "--json", own_group=True)
    try:
        night = ec1.run("night", "--date", NIGHT)
    finally:
        worker.send_signal(signal.SIGINT)
        output, _ = worker.communicate(timeout=120)
    assert night.returncode == 0, night.stdout + output
    assert worker.returncode == 130, output
    done = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert [each["outcome"] for each in done] == ["completed", "completed"], output
    settled_here(ec1, elsewhere)


def store_settings(kind: str, request: pytest.FixtureRequest, folder: Path) -> dict[str, str]:
    """A deployment's settings of a store that is there."""
    if kind == "gcs":
        return {"bucket": request.getfixturevalue("bucket"), "endpoint": request.getfixturevalue("gcs_server").url}
    if kind == "s3":
        return {"bucket": request.getfixturevalue("s3_bucket"), "endpoint": request.getfixturevalue("s3_server")}
    return {"root": str(folder / "store")}


@pytest.mark.soak
def test_a_night_through_ssh(tiny_model: Path, project: Path, tmp_path: Path, ssh_server: SshServer) -> None:
    """The other machine is this one behind a real sshd; nothing of EC1 runs there before."""
    ec1 = light_project(tmp_path, project, tiny_model)
    deployment = tmp_path / "configs" / "deployments" / "light.yaml"
    there = tmp_path / "there"
    launcher = {
        "kind": "ssh",
        "host": ssh_server.address,
        "options": list(ssh_server.options),
        "python": sys.executable,
        "folder": str(there),
        "project": str(tmp_path),
        "follow_seconds": 1,
    }
    settings = {"launcher": launcher, "worker": {"beat_seconds": 1, "expire_seconds": 20}}
    deployment.write_text(deployment.read_text() + "".join(f"{key}: {json.dumps(settings[key])}\n" for key in settings))
    night = ec1.run("night", "--date", NIGHT)
    assert night.returncode == 0, night.stdout + (there / "worker.log").read_text()
    settled_here(ec1, Home(there / "home"))


def settled_here(ec1: CommandLine, elsewhere: Home) -> None:
    """The home has all that a local training leaves; where the work was done nothing was judged or published."""
    run = ec1.home.run("fernhollow", "engineering", NIGHT)
    assert (run / "training" / "summary.json").is_file() and (run / "evaluation" / "evaluation.json").is_file()
    assert not (run / "training" / "checkpoints").exists(), "of use only where they were made"
    # The worker published nothing; the night settled, and its report has the verdict.
    assert not (elsewhere.root / "adapters").exists() and not (elsewhere.root / "runs").exists()
    outcome = Records(run).find(OutcomeRecord)
    assert outcome is not None and outcome.path.is_dir(), "a version, or a candidate in quarantine"
    report = json.loads(ec1.run("report", "--date", NIGHT, "--json").stdout)
    assert report["recipes"][0]["outcome"] == outcome.verdict

"""The `machine` section of a deployment: what is refused, and the deployment that is shipped."""

from pathlib import Path
from typing import Any

import pytest

from ec1.deployment import Deployment, load_deployment
from ec1.errors import InputError
from ec1.home import Home
from ec1.night.experiments.by_hand import launcher_by_hand
from ec1.night.machines import engine_arguments, machine_of
from ec1.night.operations.doctor import examine
from ec1.night.steps.extractor import adapter_of
from ec1.serving.server import engine_settings

MACHINE: dict[str, Any] = {"kind": "gce", "project": "acme-nights", "zones": ["us-central1-a"], "daily_cost": 2}


def load(folder: Path, **changes: Any) -> Deployment:
    import json

    model = {"kind": "vllm", "model": "acme/model"}
    values: dict[str, Any] = {"tenant": "acme", "recipes": [], "inference": model, "gpu": {"cost_per_hour": 1}}
    values |= {"machine": MACHINE, **changes}
    (folder / "configs" / "deployments").mkdir(parents=True, exist_ok=True)
    (folder / "configs" / "deployments" / "mine.yaml").write_text(json.dumps(values))
    return load_deployment("mine", folder)


def test_the_shipped_deployment(project: Path, home: Home) -> None:
    deployment = load_deployment("gce", project)
    assert deployment.machine is not None and len(deployment.machine.zones) == 3
    assert deployment.trains_on_machine and adapter_of(deployment, home) is None
    arguments = engine_arguments(deployment)
    assert arguments[arguments.index("--model") + 1] == "/data/weights/allenai--Olmo-3-32B-Think"
    assert "--reasoning-parser" in arguments and "127.0.0.1" not in arguments
    machine = machine_of(deployment, home)
    assert machine is not None and machine.why_not() is None
    # Each home has its own, and the lease of its card with it.
    assert deployment.gpu_locks(home)[0].parent == home.machine


def test_without_the_section_there_is_no_machine(embedded: Deployment, home: Home) -> None:
    assert embedded.machine is None and machine_of(embedded, home) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine": {**MACHINE, "zones": ["us-central1"]}}, "is not a zone"),
        ({"machine": {**MACHINE, "zones": []}}, "zones"),
        ({"machine": {**MACHINE, "zones": ["us-central1-a"] * 2}}, "twice"),
        ({"machine": {**MACHINE, "project": "../x"}}, "project"),
        ({"machine": {**MACHINE, "instance": "EC1_gpu"}}, "instance"),
        ({"machine": {**MACHINE, "poll_seconds": 60, "dead_man_seconds": 100}}, "three times poll_seconds"),
        ({"gpu": {}}, "cost_per_hour"),
        ({"recipes": ["recipes"]}, "launcher local"),
        ({"machine": None, "launcher": {"kind": "ssh", "python": "p", "folder": "/w"}}, r"launcher\.host is missing"),
        ({"inference": {"kind": "server", "base_url": "http://127.0.0.1:1", "model": "m"}}, "engine of our own"),
        ({"extraction": {"adapter": "somewhere"}}, "not on the machine"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    load(tmp_path)
    with pytest.raises(InputError, match=message):
        load(tmp_path, **change)


@pytest.mark.parametrize("endpoint", ["http://compute.googleapis.com", "https://10.0.0.1:80", "127.0.0.1:80"])
def test_an_emulator_is_on_this_machine_or_nowhere(tmp_path: Path, home: Home, endpoint: str) -> None:
    machine = machine_of(load(tmp_path, machine={**MACHINE, "endpoint": endpoint}), home)
    assert machine is not None
    with pytest.raises(InputError, match="not on this machine"):
        _ = machine.compute


def test_only_nights_use_it(tmp_path: Path, home: Home) -> None:
    deployment = load(tmp_path)
    with pytest.raises(InputError, match=r"serving\.engine"):
        engine_settings(deployment)
    with pytest.raises(InputError, match="in nights only"):
        launcher_by_hand("training", deployment, home, "a test")


@pytest.mark.needs("ssh", "rsync")
def test_the_doctor_knows_what_trainings_there_need(tmp_path: Path, home: Home) -> None:
    key = tmp_path / "id_ed25519"
    launcher = {"kind": "ssh", "options": ["-l", "ec1", "-i", str(key)], "python": "/opt/ec1/python", "folder": "/w"}
    deployment = load(tmp_path, launcher=launcher)
    found = {finding.subject: finding for finding in examine(deployment, home)}
    assert found["ssh"].level == "problem" and str(key) in found["ssh"].detail
    key.touch()
    found = {finding.subject: finding for finding in examine(deployment, home)}
    assert found["ssh"].level == "ok" and "the machine that is booted" in found["ssh"].detail


def test_the_doctor_asks_for_no_card_here_and_shows_the_books(tmp_path: Path, home: Home) -> None:
    deployment = load(tmp_path)
    found = {finding.subject: finding for finding in examine(deployment, home)}
    assert not {"device", "engine", "inference"} & set(found)
    assert found["machine"].level == "ok" and "stopped; 0.00 USD today" in found["machine"].detail
    home.create()
    home.machine_off.write_text("")
    found = {finding.subject: finding for finding in examine(deployment, home)}
    assert found["machine"].level == "note" and "remove it to go on" in found["machine"].detail

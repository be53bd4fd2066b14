"""When nights begin is what Dagster takes, and what it does not take is said before the definitions are gone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ec1.deployment import load_deployment
from ec1.errors import InputError
from ec1_assets.definitions import build_defs
from resources.environment import DeploymentChoice
from resources.schedule import check_schedule

GOOD = "tenant: acme\ninference: {kind: vllm, model: m}\nrecipes: []\n"


def choice(folder: Path, cron: str) -> DeploymentChoice:
    (folder / "configs" / "deployments").mkdir(parents=True)
    (folder / "configs" / "deployments" / "here.yaml").write_text(f"{GOOD}schedule: {{cron: '{cron}'}}\n")
    return DeploymentChoice("here", folder / "home", folder)


@pytest.mark.parametrize(
    "cron", ["0 2 * * *", "0 2 * * 1#2", "*/5 1-3,22 * * mon-fri", "59 23 31 12 7", "0-30/10 2 * jan *", "0 2 29 2 *"]
)
def test_what_dagster_takes_is_taken(cron: str, tmp_path: Path) -> None:
    check_schedule(load_deployment("here", choice(tmp_path, cron).project))


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("abc xyz * * *", "not a time that Dagster takes: five fields"),
        ("0 0 * foo *", "not a time that Dagster takes"),
        ("0 2 * *", "not a time that Dagster takes"),
        ("0 2 * * * *", "not a time that Dagster takes"),
        ("0 25 * * *", "not a time that Dagster takes"),
        ("*/0 2 * * *", "not a time that Dagster takes"),
        ("0 2 30 2 *", "not a time that Dagster takes"),
        ("0 2 31 4 *", "never comes"),
    ],
)
def test_what_dagster_does_not_take_is_one_line(cron: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        build_defs(choice(tmp_path, cron))
    told = str(caught.value)
    assert told.startswith(f"deployment here: schedule.cron: '{cron}' ") and why in told and "\n" not in told


@pytest.mark.slow
def test_the_doctor_and_dagster_say_it(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = choice(tmp_path, "0 0 * foo *")
    for name, value in {"EC1_DEPLOYMENT": "here", "EC1_HOME": chosen.home, "EC1_PROJECT": chosen.project}.items():
        monkeypatch.setenv(name, str(value))
    said = "deployment here: schedule.cron: '0 0 * foo *' is not a time that Dagster takes"
    doctor = subprocess.run([sys.executable, "-m", "jobs.doctor"], cwd=project, capture_output=True, text=True)
    (found,) = (each for each in json.loads(doctor.stdout) if each["subject"] == "schedule")
    assert found["level"] == "problem" and found["detail"].startswith(said)
    dagster = str(Path(sys.executable).with_name("dagster"))
    validated = subprocess.run(
        [dagster, "definitions", "validate", "-w", "workspace.yaml"], cwd=project, capture_output=True, text=True
    )
    assert validated.returncode != 0 and said in validated.stdout + validated.stderr

"""What a server is set up with: systemd's own check of the units, and the Compose specification's schema."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from ec1.cli import COMMANDS

SCHEMA = Path(__file__).with_name("compose-spec.json")


@pytest.fixture(scope="module")
def compose(project: Path) -> dict[str, Any]:
    return dict(YAML(typ="safe", pure=True).load(project / "deploy" / "compose.yaml"))


def test_the_compose_file_is_one(compose: dict[str, Any]) -> None:
    schema = json.loads(SCHEMA.read_text())
    # Named, because the file writes its draft's address in a way that jsonschema does not know.
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(compose)
    broken = {**compose, "services": {"ec1": {"comand": ["ui"]}}}
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(broken)


def test_the_compose_file_says_what_ec1_reads(compose: dict[str, Any], project: Path) -> None:
    ec1 = compose["services"]["ec1"]
    read = (project / "resources" / "environment.py").read_text() + (project / "ec1" / "cli.py").read_text()
    read += (project / "configs" / "dagster-postgres.yaml").read_text()
    for name in ec1["environment"]:
        assert name in read, f"nothing reads {name}"
    assert (project / ec1["build"]["dockerfile"]).is_file()
    assert ec1["command"][0] in COMMANDS
    assert "/run/lock:/run/lock" in ec1["volumes"], "the lock of the card is the machine's"
    assert all(port.startswith("127.0.0.1:") for port in compose["services"]["postgres"]["ports"])


@pytest.mark.needs("systemd-analyze")
def test_systemd_takes_the_units(project: Path, tmp_path: Path) -> None:
    units = []
    for path in sorted((project / "deploy" / "systemd").glob("ec1*.*")):
        if path.suffix in (".service", ".timer"):
            # It looks for the programs and the user, which are not on this machine.
            text = path.read_text().replace("/srv/ec1/checkout", str(tmp_path)).replace("User=ec1\n", "User=daemon\n")
            (tmp_path / path.name).write_text(text)
            units.append(tmp_path / path.name)
    program = tmp_path / ".venv" / "bin" / "ec1"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    def verify() -> str:
        command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, units)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # Of the machine's own units it may complain, too.
        return "\n".join(line for line in done.stderr.splitlines() if str(tmp_path) in line or "ec1" in line)

    assert len(units) == 5 and verify() == ""
    units[0].write_text(units[0].read_text().replace("[Service]", "[Service]\nExecStartt=/bin/true"))
    assert re.search("Unknown key (name )?'ExecStartt'", verify())

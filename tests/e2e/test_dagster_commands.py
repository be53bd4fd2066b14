"""Dagster's own commands work on the project as its users expect."""

import datetime as dt
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import CommandLine

from ec1.documents.listing import Listing
from ec1.home import Home

pytestmark = pytest.mark.slow
# The night of an empty home that exists.
NIGHT = dt.datetime.now(dt.UTC).date().isoformat()


@pytest.mark.parametrize(
    "command",
    [
        ["dg", "check", "defs"],
        ["dagster", "definitions", "validate"],
        # On an empty home, and on an instance of its own that ends with the command.
        ["dg", "launch", "--assets", "source_documents", "--partition", NIGHT],
    ],
    ids=" ".join,
)
def test_command(command: list[str], project: Path, home: Home) -> None:
    program = Path(sys.executable).with_name(command[0])
    environment = CommandLine(project, home).environment
    done = subprocess.run([program, *command[1:]], cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    if "launch" in command:
        assert len(Listing.load(home.night(NIGHT) / "source_documents.json").changed) == 26

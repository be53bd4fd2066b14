"""Dagster's own commands work on the project as its users expect."""

import datetime as dt
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
from commandline import CommandLine

from ec1.documents.listing import Listing
from ec1.home import Home
from jobs.instance import prepare_instance

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "command",
    [
        ["dg", "check", "defs"],
        ["dagster", "definitions", "validate"],
        # On an empty home, and on an instance of its own that ends with the command.
        ["dg", "launch", "--assets", "source_documents", "--partition", "TODAY"],
    ],
    ids=" ".join,
)
def test_command(command: list[str], project: Path, home: Home) -> None:
    program = Path(sys.executable).with_name(command[0])
    environment = CommandLine(project, home).environment
    # The night of an empty home that exists.
    night = dt.datetime.now(dt.UTC).date().isoformat()
    words = [night if word == "TODAY" else word for word in command[1:]]
    done = subprocess.run([program, *words], cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    if "launch" in command:
        assert len(Listing.load(home.night(night) / "source_documents.json").changed) == 26


def test_the_tables_of_an_instance_are_brought_up_to_date_and_its_nights_stay(project: Path, home: Home) -> None:
    """What docs/server.md asks for after an upgrade, on an instance that has a run."""
    environment = CommandLine(project, home).environment
    with prepare_instance(home) as instance:
        run = instance.create_run_for_job(dg.job(name="a_night")(lambda: None))
    done = subprocess.run(
        [Path(sys.executable).with_name("dagster"), "instance", "migrate"],
        cwd=project,
        env={**environment, "DAGSTER_HOME": str(home.dagster)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with prepare_instance(home) as instance:
        assert instance.has_run(run.run_id)

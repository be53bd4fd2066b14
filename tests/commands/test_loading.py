"""A command loads what it needs: not the other commands."""

import subprocess
import sys

from click.testing import CliRunner

from ec1.cli import COMMANDS, command_line

HEAVY = ("uvicorn", "starlette", "dagster", "torch", "mcp", "bs4")


def test_a_command_does_not_load_the_others() -> None:
    program = (
        "import sys; from ec1 import cli; sys.argv = ['ec1', 'night', '--help']\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "print('LOADED', *(name for name in sys.modules if name.startswith('ec1.commands.')), "
        f"*(name for name in {HEAVY} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = done.stdout.partition("LOADED ")[2].split()
    assert sorted(loaded) == ["ec1.commands.night", "ec1.commands.report", "ec1.commands.shell"]


def test_a_command_that_is_none_is_told_what_it_may_have_been() -> None:
    commands = command_line().commands
    assert list(commands) == list(COMMANDS) and commands.get("nigth") is None
    assert "Did you mean 'night'" in CliRunner().invoke(command_line(), ["nigth"]).output

"""What each `--help` says of the command line itself."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from ec1.cli import command_line

ROOT = command_line()


def commands(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, by the words that name it; groups are commands too."""
    yield path
    for name, each in getattr(group, "commands", {}).items():
        yield from commands(each, (*path, name))


@pytest.mark.parametrize("path", list(commands(ROOT)), ids=" ".join)
def test_each_help_ends_with_the_exit_statuses_and_a_flag_takes_no_value(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(ROOT, [*path, "--help"], env={"COLUMNS": "100", "TERM": "dumb"})  # type: ignore[arg-type]
    text = " ".join(done.output.split())
    assert done.exit_code == 0 and "Exit status: 0 done, 1 failed, 2 usage or configuration, 3 partial" in text
    assert text.rstrip(" │╯─╰").endswith("130 interrupted.")
    assert "<bool>" not in text.lower() and "boolean" not in text.lower()

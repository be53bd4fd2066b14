"""Every command of the tutorial is run, in its order, on a home in which its first command was run."""

import shlex
from pathlib import Path

import pytest
from commandline import RealNight
from page_commands import commands_of

pytestmark = pytest.mark.system
PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "tutorial.md"
EC1 = ".venv/bin/ec1"
NIGHT, ASK = "make night", f"{EC1} adapters try fernhollow/engineering"
# A model is loaded for each: the README gives the same two, and its test runs them on the same home.
BY_THE_README = {NIGHT, ASK}
SAYS = {
    "report": "fernhollow/engineering",
    "graph show": "Eleanor Voss",
    "recipe diff": "max_steps",
    "train": "finished: 2 of 2 steps",
    "run list": "by-hand",
    "adapters list": "fernhollow/engineering@v1",
    "adapters show": "nats/token",
}
"""What a command's answer holds, since the page says so."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's folder, with the file that the page has them write."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "quick.yaml").write_text(PAGE.read_text().split("```yaml\n# quick.yaml\n")[1].split("```")[0])
    return folder


def test_it_begins_with_a_night_and_asks_the_adapter_last() -> None:
    first, *others = commands_of(PAGE)
    assert (first, others[-1]) == (NIGHT, ASK)
    assert set(commands_of(PROJECT / "README.md")) >= BY_THE_README
    assert all(command.startswith(f"{EC1} ") for command in others)
    assert [words for words in SAYS if not any(each.startswith(f"{EC1} {words}") for each in others)] == []


@pytest.mark.parametrize("command", [each for each in commands_of(PAGE) if each not in BY_THE_README])
def test_command(command: str, real_night: RealNight, desk: Path) -> None:
    arguments = shlex.split(command)[1:]
    with real_night.ec1.start(*arguments, folder=desk) as process:
        output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    for words, said in SAYS.items():
        if " ".join(arguments).startswith(words):
            assert said in output
    if "--html" in arguments:
        assert "Eleanor Voss" in (desk / "eleanor.html").read_text()

"""Every command of the tutorial is run, in its order, on a home in which its first command was run."""

import shlex
from pathlib import Path

import pytest
from commandline import RealNight
from page_commands import commands_of

pytestmark = pytest.mark.slow
PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
# The home's night is it; the README's test runs the command itself.
NIGHT = "make night"
EC1 = ".venv/bin/ec1"
SAYS = {
    "report": "fernhollow/engineering",
    "graph show": "Eleanor Voss",
    "recipe diff": "max_steps",
    "train": "the gate would say",
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
    assert first == NIGHT
    assert all(command.startswith(f"{EC1} ") for command in others)
    assert others[-1].startswith(f"{EC1} adapters try fernhollow/engineering")
    assert [words for words in SAYS if not any(each.startswith(f"{EC1} {words}") for each in others)] == []


@pytest.mark.parametrize("command", [each for each in commands_of(PAGE) if each != NIGHT])
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

"""The commands that a page of the documentation gives its readers."""

import re
from pathlib import Path

CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands_of(page: Path) -> list[str]:
    """What follows `$ ` in the blocks of a page, without comments."""
    lines = [line for block in CONSOLE.findall(page.read_text(encoding="utf-8")) for line in block.splitlines()]
    given = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [line.split("  #")[0].split(" #")[0].strip() for line in given]

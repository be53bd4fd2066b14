"""What all commands share: the options in front of a command's name, exit statuses, and how output is printed."""

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from ec1.deployment import Deployment, load_deployment
from ec1.home import Home
from ec1.project import nightly_recipes
from ec1.training.recipes import ResolvedRecipe

DONE, FAILED, USAGE, PARTIAL = 0, 1, 2, 3
INTERRUPTED = 128 + signal.SIGINT

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Options:
    """What every command knows: the options in front of the command's name."""

    deployment_name: str
    home: Home
    project: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """The shell's, for what is started from here."""

    def deployment(self) -> Deployment:
        return load_deployment(self.deployment_name, self.project)

    def recipes(self) -> list[ResolvedRecipe]:
        return nightly_recipes(self.deployment(), self.project)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str))  # noqa: T201


def printable(text: object) -> str:
    """Text from outside as one line that cannot steer a terminal: control and half characters become `\\x1b`."""
    shown = str(text).replace("\n", " ").replace("\t", " ")
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode() for each in shown
    )

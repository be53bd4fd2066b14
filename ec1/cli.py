"""`ec1`, the command line. Thin: every command calls one thing in the domain, or starts Dagster.

This is the only module of the package that a shell's environment reaches, through the options' `envvar`.
Exit status: 0 done, 1 failed, 2 usage or configuration, 3 partial (work was deferred to a later night).
"""

import datetime as dt
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from ec1.deployment import Deployment, load_deployment
from ec1.errors import EC1Error, InputError
from ec1.home import Home

PROJECT = Path(__file__).resolve().parent.parent
DONE, FAILED, USAGE, PARTIAL = 0, 1, 2, 3

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

app = typer.Typer(
    help="EC1: turns what an organisation wrote and did today into a better model tonight.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
recipe_app = typer.Typer(help="Recipes: check and print them.", no_args_is_help=True)
adapters_app = typer.Typer(
    help="Adapters: what was trained, from what, and whether it is intact.", no_args_is_help=True
)
app.add_typer(recipe_app, name="recipe")
app.add_typer(adapters_app, name="adapters")


@dataclass(frozen=True)
class Options:
    """What every command knows: the options in front of the command's name."""

    deployment_name: str
    home: Home

    def deployment(self) -> Deployment:
        return load_deployment(self.deployment_name, PROJECT)


@app.callback()
def _options(
    context: typer.Context,
    deployment: Annotated[
        str, typer.Option(envvar="EC1_DEPLOYMENT", help="a file of configs/deployments, without .yaml")
    ] = "embedded",
    home: Annotated[Path, typer.Option(envvar="EC1_HOME", help="where EC1 keeps its files")] = PROJECT / ".ec1",
) -> None:
    context.obj = Options(deployment, Home(home.expanduser().resolve()))


def main() -> None:
    """Run the command line; errors that are meant for a person become one line and an exit status."""
    try:
        app()
    except InputError as error:
        _fail(error, USAGE)
    except EC1Error as error:
        _fail(error, FAILED)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(128 + signal.SIGINT)


def _fail(error: EC1Error, status: int) -> NoReturn:
    err.print(f"error: {error}", markup=False)
    sys.exit(status)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, default=str))  # noqa: T201

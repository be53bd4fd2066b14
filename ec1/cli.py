"""`ec1`, the command line. Thin: every command calls one function of the domain, or starts Dagster.

This is the only module of the package that a shell's environment reaches, through the options' `envvar`.
Exit status: 0 done, 1 failed, 2 usage or configuration, 3 partial (work was deferred to a later night).
"""

import importlib
import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ec1.commands.shell import FAILED, INTERRUPTED, USAGE, Options, err, out
from ec1.errors import EC1Error, InputError
from ec1.home import CHECKOUT, Home
from ec1.launch.temporary import temporary_folder
from ec1.night.health.storage_health import recording
from ec1.refused import advice_for

COMMANDS = {
    "init": "init:init",
    "night": "night:night",
    "report": "report:report",
    "ui": "night:ui",
    "studio": "studio:studio",
    "plan": "night:plan",
    "submit": "submit:submit",
    "train": "train:train",
    "sweep": "train:sweep",
    "adopt": "adopt:adopt",
    "score": "night:score",
    "worker": "worker:worker",
    "doctor": "doctor:doctor",
    "backup": "backup:backup",
    "restore": "backup:restore",
    "forget": "forget:forget",
    "recipe": "recipes:recipe_app",
    "adapters": "adapters:adapters_app",
    "graph": "graph:graph_app",
    "documents": "documents:documents_app",
    "extraction": "extraction:extraction_app",
    "corpus": "corpus:corpus_app",
    "run": "runs:run_app",
    "serve": "serve:serve_app",
    "feedback": "feedback:feedback_app",
}
"""Each command -> module of `ec1.commands` and what it holds: a command's function, or the application of a group."""
EXIT_STATUSES = (
    "Exit status: 0 done, 1 failed, 2 usage or configuration, 3 partial (work was left for a later night), "
    "130 interrupted."
)
PLAIN: dict[str, Any] = {"pretty_exceptions_enable": False, "add_completion": False}


class LoadedWhenAsked(Mapping[str, Any]):
    """The commands by name. A command's module is imported when it is asked for: all take twice as long as any one."""

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __getitem__(self, name: str) -> Any:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(importlib.import_module(f"ec1.commands.{module}"), attribute)
        alone = typer.Typer(**PLAIN)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
            group: Any = typer.main.get_command(alone)
            command = group.commands[name]
        else:
            alone.command(name)(found)
            command = typer.main.get_command(alone)
        waiting = [command]
        while waiting:
            waiting += getattr(complete(waiting.pop()), "commands", {}).values()
        return command


class Commands(typer.core.TyperGroup):
    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.commands: Any = LoadedWhenAsked()


def complete(command: Any) -> Any:
    """The command with what typer does not say: its help ends with the exit statuses, and a flag takes no value."""
    command.epilog = EXIT_STATUSES
    for parameter in (*command.params, command.get_help_option(command.context_class(command))):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return command


app = typer.Typer(
    cls=Commands,
    help="EC1: turns what an organisation wrote and did today into a better model tonight.",
    no_args_is_help=True,
    **PLAIN,
)


def _print_version(asked: bool) -> None:
    if asked:
        out.print(f"ec1 {importlib.metadata.version('ec1')}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    deployment: Annotated[
        str, typer.Option(envvar="EC1_DEPLOYMENT", help="a file of configs/deployments, without .yaml")
    ] = "embedded",
    home: Annotated[Path, typer.Option(envvar="EC1_HOME", help="where EC1 keeps its files")] = Path(".ec1"),
    project: Annotated[
        Path, typer.Option(envvar="EC1_PROJECT", help="the folder whose configs/ holds deployments and recipes")
    ] = CHECKOUT,
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="print the version and leave")
    ] = False,
) -> None:
    project = project.expanduser().resolve()
    environment = dict(os.environ)
    if "TMPDIR" in environment:
        environment["TMPDIR"] = tempfile.tempdir = temporary_folder()
    options = Options(deployment, Home((project / home.expanduser()).resolve()), project, environment)
    recording(options.home)
    context.obj = options


def command_line() -> Any:
    """All commands, to be called."""
    return complete(typer.main.get_command(app))


def main() -> None:
    """Run the command line; errors that are meant for a person become one line and an exit status."""
    try:
        command_line()()
    except InputError as error:
        _fail(error, USAGE)
    except EC1Error as error:
        _fail(error, FAILED)
    except OSError as error:
        # A full disk, a read-only home, a path that is too long.
        _fail(advice_for(error), FAILED)
    except KeyboardInterrupt:
        err.print("interrupted")
        sys.exit(INTERRUPTED)


def _fail(error: EC1Error | str, status: int) -> NoReturn:
    err.print(f"error: {error}")
    sys.exit(status)


if __name__ == "__main__":
    main()

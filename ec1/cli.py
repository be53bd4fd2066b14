"""`ec1`, the command line. Thin: every command calls one function of the domain, or starts Dagster.

This is the only module of the package that a shell's environment reaches, through the options' `envvar`.
Exit status: 0 done, 1 failed, 2 usage or configuration, 3 partial (work was deferred to a later night).
"""

import importlib.metadata
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from ec1.commands.adapters import adapters_app
from ec1.commands.adopt import adopt
from ec1.commands.backup import backup, restore
from ec1.commands.corpus import corpus_app
from ec1.commands.doctor import doctor
from ec1.commands.documents import documents_app
from ec1.commands.extraction import extraction_app
from ec1.commands.feedback import feedback_app
from ec1.commands.forget import forget
from ec1.commands.generated import corpus_admit, corpus_generate
from ec1.commands.graph import graph_app
from ec1.commands.init import init
from ec1.commands.night import night, plan, score, ui
from ec1.commands.recipes import recipe_app
from ec1.commands.report import report
from ec1.commands.runs import run_app
from ec1.commands.serve import serve_app
from ec1.commands.shell import FAILED, INTERRUPTED, USAGE, Options, err, out
from ec1.commands.studio import studio
from ec1.commands.submit import submit
from ec1.commands.train import sweep, train
from ec1.commands.worker import worker
from ec1.errors import EC1Error, InputError
from ec1.home import CHECKOUT, Home
from ec1.night.health.storage_health import recording
from ec1.refused import advice_for

app = typer.Typer(
    help="EC1: turns what an organisation wrote and did today into a better model tonight.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(recipe_app, name="recipe")
app.add_typer(adapters_app, name="adapters")
app.add_typer(graph_app, name="graph")
app.add_typer(documents_app, name="documents")
app.add_typer(extraction_app, name="extraction")
corpus_app.command("generate")(corpus_generate)
corpus_app.command("admit")(corpus_admit)
app.add_typer(corpus_app, name="corpus")
app.add_typer(run_app, name="run")
app.add_typer(serve_app, name="serve")
app.add_typer(feedback_app, name="feedback")
EXIT_STATUSES = (
    "Exit status: 0 done, 1 failed, 2 usage or configuration, 3 partial (work was left for a later night), "
    "130 interrupted."
)
for command in (
    init,
    night,
    report,
    ui,
    studio,
    plan,
    submit,
    train,
    sweep,
    adopt,
    score,
    worker,
    doctor,
    backup,
    restore,
    forget,
):
    app.command()(command)


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
    options = Options(deployment, Home((project / home.expanduser()).resolve()), project, dict(os.environ))
    recording(options.home)
    context.obj = options


def command_line() -> Callable[[], None]:
    """All commands, with what typer does not say: each help ends with the exit statuses, and a flag takes no value."""
    root = typer.main.get_command(app)
    waiting: list[Any] = [root]
    while waiting:
        command = waiting.pop()
        waiting += getattr(command, "commands", {}).values()
        command.epilog = EXIT_STATUSES
        for parameter in (*command.params, command.get_help_option(command.context_class(command))):
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
    return root


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
    err.print(f"error: {error}", markup=False)
    sys.exit(status)


if __name__ == "__main__":
    main()

"""`ec1 init`: a deployment of one's own."""

import datetime as dt
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import click
import typer

from ec1.commands.night import print_plan
from ec1.commands.shell import Options, err, out, printable
from ec1.deployment import load_deployment
from ec1.errors import InputError
from ec1.home import CHECKOUT, Home
from ec1.night.steps.recipes import nightly_recipes, recipe_folders
from ec1.recipes.lint import lint


def init(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="of the deployment and its tenant: a-z, 0-9 and '-'; asked for if left out")
    ] = None,
    device: Annotated[
        Literal["auto", "cuda", "cpu"], typer.Option(help="where models run; auto: a GPU if there is one")
    ] = "auto",
    documents: Annotated[
        Path | None,
        typer.Option(help="a folder of documents of any kind: it is looked through, and streams are written"),
    ] = None,
    git: Annotated[
        list[Path] | None, typer.Option(help="a git repository: its commits become tuples of the role engineering")
    ] = None,
    rows: Annotated[
        list[Path] | None,
        typer.Option(help="a file or folder of rows, such as a data set of the hub: a role of its name learns them"),
    ] = None,
) -> None:
    """Write a commented deployment that fits what you have, and say what tonight would do. Overwrites nothing."""
    # Imported here: it loads libraries that the other commands do without.
    from ec1.night.operations.new_deployment import InitSources, set_up

    options: Options = context.obj
    if name is None:
        if not sys.stdin.isatty():
            raise InputError("a deployment needs a name: ec1 init NAME")
        name, documents, git, rows = _asked(documents, git, rows)
    sources = InitSources(
        documents=_path(documents) if documents is not None else None,
        repositories=tuple(map(_path, git or ())),
        rows=tuple(map(_path, rows or ())),
    )
    home = _home(context, options, name)
    chosen = _device() if device == "auto" else device
    made = set_up(name, options.project, home, chosen, sources, _progress)
    deployment = load_deployment(name, options.project)
    findings = lint(list(deployment.recipes), recipe_folders(deployment, options.project))
    for line in (*(f"wrote {_shown(file)}" for file in made.files), *map(str, findings), *made.sentences):
        out.print(printable(line))
    own = Options(name, home, options.project, options.environment)
    if sources != InitSources():
        _progress("planning tonight")
        print_plan(own, nightly_recipes(deployment, options.project), dt.datetime.now(dt.UTC))
    _print_steps(own, made.files[0])


def _print_steps(options: Options, file: Path) -> None:
    settings = [f"EC1_DEPLOYMENT={options.deployment_name}", f"EC1_HOME={shlex.quote(str(options.home.root))}"]
    if options.project != CHECKOUT:
        settings.append(f"EC1_PROJECT={shlex.quote(str(options.project))}")
    steps = (
        f"export {' '.join(settings)}",
        f"edit {_shown(file)}: your documents, your model, your card, if they are to be others",
        "ec1 doctor         # can a night run here",
        "ec1 plan           # what the next night would do",
        "ec1 night          # run it",
    )
    out.print("next:")
    for step in steps:
        out.print(f"  {step}")


def _asked(
    documents: Path | None, git: list[Path] | None, rows: list[Path] | None
) -> tuple[str, Path | None, list[Path], list[Path]]:
    """What a person on a terminal answers; an empty answer leaves a thing out."""
    name = str(typer.prompt("Name of the deployment (a-z, 0-9, -)"))

    def ask(text: str, given: Path | None) -> Path | None:
        if given is not None:
            return given
        kind = click.Path(exists=True, path_type=Path)
        answer = typer.prompt(f"{text}, or nothing", default="", show_default=False)
        return Path(kind.convert(answer, None, None)) if answer else None

    folder = ask("A folder of documents", documents)
    repository = ask("A git repository to learn from", git[0] if git else None)
    file = ask("A file of rows to learn (JSONL, Parquet, CSV)", rows[0] if rows else None)
    return name, folder, [repository] if repository else [], [file] if file else []


def _home(context: typer.Context, options: Options, name: str) -> Home:
    """The home that was named, or one of the deployment's own: two deployments do not share one."""
    assert context.parent is not None
    source = context.parent.get_parameter_source("home")
    if source is not None and source.name == "DEFAULT":
        return Home(options.project / f".ec1-{name}")
    return options.home


def _progress(text: str) -> None:
    err.print(printable(text), style="dim")


def _path(path: Path) -> Path:
    return path.expanduser().resolve()


def _device() -> Literal["cuda", "cpu"]:
    import pynvml

    try:
        pynvml.nvmlInit()
        return "cuda" if pynvml.nvmlDeviceGetCount() else "cpu"
    except pynvml.NVMLError:
        return "cpu"


def _shown(path: Path) -> str:
    here = os.path.relpath(path)
    return here if not here.startswith("..") else str(path)

"""`ec1 init`: a deployment of one's own."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from ec1.commands.shell import Options, out
from ec1.deployment import load_deployment
from ec1.documents.propose import propose_streams
from ec1.documents.unread import by_suffix
from ec1.home import CHECKOUT
from ec1.night.operations.new_deployment import write_deployment
from ec1.night.steps.recipes import recipe_folders
from ec1.recipes.lint import lint


def init(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="of the deployment and its tenant: a-z, 0-9 and '-'")],
    device: Annotated[
        Literal["auto", "cuda", "cpu"], typer.Option(help="where models run; auto: a GPU if there is one")
    ] = "auto",
    documents: Annotated[
        Path | None,
        typer.Option(help="a folder of documents of any kind: it is looked through, and streams are written"),
    ] = None,
) -> None:
    """Write a commented deployment with its first recipe, and say what to do next. Overwrites nothing."""
    options: Options = context.obj
    chosen = _device() if device == "auto" else device
    root = documents.expanduser().resolve() if documents is not None else None
    proposal = propose_streams(root) if root is not None else None
    files = write_deployment(name, options.project, chosen, root, proposal.streams if proposal is not None else None)
    deployment = load_deployment(name, options.project)
    findings = lint(list(deployment.recipes), recipe_folders(deployment, options.project))
    for file in files:
        out.print(f"wrote {_shown(file)}", markup=False)
    for finding in findings:
        out.print(str(finding), markup=False)
    if proposal is not None:
        for stream, counts in proposal.counts.items():
            out.print(f"stream {stream}: {by_suffix(counts) or 'no files yet'}", markup=False)
        if unread := str(proposal.unread):
            out.print(unread, markup=False)
    settings = [f"EC1_DEPLOYMENT={name}", f"EC1_HOME={shlex.quote(str(options.project / f'.ec1-{name}'))}"]
    if options.project != CHECKOUT:
        settings.append(f"EC1_PROJECT={shlex.quote(str(options.project))}")
    steps = (
        f"export {' '.join(settings)}",
        f"edit {_shown(files[0])}: your documents, your model, your card",
        "ec1 doctor         # can a night run here",
        "ec1 recipe lint    # are the recipes valid",
        "ec1 plan           # what the next night would do",
        "ec1 night          # run it",
    )
    out.print("next:")
    for step in steps:
        out.print(f"  {step}", markup=False)


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

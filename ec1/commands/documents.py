"""`ec1 documents`: what phase 1 reads."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import Options, out, print_json, printable
from ec1.queries import documents as queries

documents_app = typer.Typer(help="Documents: how phase 1 will read them.", no_args_is_help=True)


@documents_app.callback()
def _group() -> None:
    """Keep `preview` a command of the group while it is the only one."""


@documents_app.command("preview")
def preview(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="a file; it may lie outside the document root")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show a document as phase 1 will read it: its fields and its text, page by page."""
    options: Options = context.obj
    found = queries.preview(options.deployment(), options.home, path)
    if as_json:
        print_json(asdict(found))
        return
    stream = f"stream {found.stream}, {found.id}" if found.stream else "no stream of this deployment reads it"
    _print(found.title, f"{found.path}: {stream}, {len(found.text):,} characters")
    if found.fields:
        _print("--- fields", *found.fields.split("\n"))
    offset = len(found.fields)
    starts = [(max(0, start - offset), place) for start, place in found.places] or [(0, "text")]
    ends = [*(start for start, _ in starts[1:]), len(found.text)]
    for (start, place), end in zip(starts, ends, strict=True):
        _print(f"--- {place}", *found.text[start:end].rstrip().split("\n"))


def _print(*lines: str) -> None:
    for line in lines:
        out.print(printable(line), markup=False)

"""`ec1 documents`: what phase 1 reads."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ec1.commands.shell import Options, out, print_json, printable
from ec1.plural import counted
from ec1.queries import documents as queries

documents_app = typer.Typer(help="Documents: how phase 1 will read them.", no_args_is_help=True)


@documents_app.command("preview")
def preview(
    context: typer.Context,
    path: Annotated[Path, typer.Argument(help="a file; it may lie outside the document root")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show a document as phase 1 will read it: its fields, its text page by page, its chunks, and what is left out."""
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
    if found.chunks is None:
        _print("--- chunks are cut by the model's tokenizer, which is not here yet: ec1 plan brings it")
    else:
        _print(f"--- {counted(len(found.chunks), 'chunk')}", *(f"characters {a:,} to {b:,}" for a, b in found.chunks))
    if found.left_out:
        _print("--- left out", *found.left_out)


@documents_app.command("trace")
def trace(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="its path below the document root, its id, or its SHA-256's beginning")],
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Say where a document went: results, graph, exports, tuples, service-content."""
    options: Options = context.obj
    found = queries.trace(options.deployment(), options.home, name)
    if as_json:
        print_json([asdict(each) for each in found])
        return
    for each in found:
        why = f": {each.reason}" if each.reason else ""
        _print(f"{each.path}: stream {each.stream}, {each.id or 'no id'}, {each.status} in night {each.night}{why}")
        for kind, values in (("result", each.results), ("export", each.exports), ("tuples", each.tuples)):
            _print(*(f"  {kind:<10} {value}" for value in values))
        _print(f"  graph      {len(each.entities)} entities: {', '.join(each.entities[:10])}")
        _print(*([f"  service-content was sent {each.sent} names"] if each.sent else []))


def _print(*lines: str) -> None:
    for line in lines:
        out.print(printable(line))

"""`ec1 studio`: the local page that shows data, nights and versions, and takes judgements."""

import sys
from typing import Annotated

import typer

from ec1.commands.shell import DONE, INTERRUPTED, Options, run_module


def studio(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="on 127.0.0.1")] = 3100,
    read_only: Annotated[bool, typer.Option("--read-only", help="show everything and change nothing")] = False,
    labels: Annotated[
        str | None, typer.Option("--as", help="your access labels, with commas; '*' for all; default: none")
    ] = None,
    gateway: Annotated[
        str | None, typer.Option(help="where `ec1 serve` answers; default: the deployment's port on this machine")
    ] = None,
) -> None:
    """Open Studio, the local page: training data, nights, versions, the graph, and judgements that count.

    With EC1_UI_TOKEN set, each request must carry that token: open /?token=... once. EC1_API_KEY is the gateway's key.
    """
    options: Options = context.obj
    given = [("--as", labels), ("--gateway", gateway)]
    arguments = [
        *(f"{name}={value}" for name, value in given if value is not None),
        *(["--read-only"] if read_only else []),
    ]
    status = run_module(["studio", "--port", str(port), *arguments], options)
    # Ctrl-C is how one leaves it.
    sys.exit(DONE if status == INTERRUPTED else status)

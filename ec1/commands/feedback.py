"""`ec1 feedback`: what users of served answers gave, in front of the door to the corpus."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from ec1.commands.forget import forget as forget_everywhere
from ec1.commands.shell import Options, out, print_answer, printable
from ec1.errors import InputError
from ec1.queries.page import Page
from ec1.who import who_acts

feedback_app = typer.Typer(
    help="Feedback on served answers: it waits until somebody releases it for training.", no_args_is_help=True
)

_SHOWN = 400
Ids = Annotated[list[str], typer.Argument(help="as `ec1 feedback review` names them")]


@feedback_app.command()
def review(
    context: typer.Context,
    role: Annotated[str | None, typer.Option(help="tenant/role; default: all")] = None,
    limit: Annotated[int, typer.Option(min=1, help="rows of a page")] = 20,
    cursor: Annotated[str | None, typer.Option(help="of the page behind the last one")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Show what waits for its release, the oldest first: what was asked, and what would be learnt."""
    from ec1.queries.feedback import waiting
    from ec1.serving.versions import parse_name

    options: Options = context.obj
    parsed = parse_name(role) if role else None
    if role and (parsed is None or parsed[2] is not None):
        raise InputError(f"{role!r} is not a role: write tenant/role")
    found = waiting(options.deployment(), options.home, parsed[:2] if parsed else None, limit, cursor)
    print_answer(found, as_json, _lines)


def _lines(page: Page[Any]) -> Iterator[str]:
    if not page.items:
        yield "no feedback waits"
    for row in page.items:
        who = f"{row.key or 'no key'}, {row.person or 'nobody in particular'}"
        what = f"{row.tenant}/{row.role}  {row.verdict}"
        yield f"{row.id}  {row.at:%Y-%m-%d %H:%M}  {what}  by {who}; {row.people} said so"
        for column in ("prompt", "completion", "chosen", "rejected"):
            for text in _texts(row.record.get(column, ())):
                yield f"    {column + ':':<12} {printable(text[:_SHOWN])}{' […]' if len(text) > _SHOWN else ''}"
    if page.items:
        yield "look for names, addresses, numbers and passwords that were left in; then `ec1 feedback release ID…`"
    if page.next:
        yield f"more: --cursor {page.next}"


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(message["content"]) for message in value]


@feedback_app.command()
def release(context: typer.Context, rows: Ids) -> None:
    """Let rows into the corpus: the next night counts them, and trains on a quarter of them at most."""
    for row in rows:
        path = _decide(context, row, "release")
        out.print(f"{row}: {'released' if path else 'was released before'}")


@feedback_app.command()
def drop(context: typer.Context, rows: Ids) -> None:
    """Never release rows, nor the same texts again."""
    for row in rows:
        _decide(context, row, "drop")
        out.print(f"{row}: dropped")


def _decide(context: typer.Context, row: str, what: str) -> Any:
    from ec1.queries.feedback import held_rows

    options: Options = context.obj
    with held_rows(options.deployment(), options.home) as held:
        if held is None:
            raise InputError(f"no feedback is called {row!r}: nothing waits in this home")
        return held.release(row, who_acts()) if what == "release" else held.drop(row, who_acts())


@feedback_app.command()
def forget(
    context: typer.Context,
    user: Annotated[str, typer.Option(help="as the application names them in its requests")],
    yes: Annotated[bool, typer.Option("--yes", help="do it; without this, only say what would be removed")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Take back what one user gave: rows that wait, tuples, all that was made of them, and versions that learnt."""
    from ec1.serving.server import open_capture

    options: Options = context.obj
    capture = open_capture(options.deployment(), options.home)
    try:
        pseudonym = capture.forget(user) if yes else capture.people.of(user)
    finally:
        capture.close()
    if not pseudonym:
        raise InputError("--user is empty: nobody in particular cannot be forgotten")
    forget_everywhere(context, source=f"person:{pseudonym}", dry_run=not yes, as_json=as_json)
